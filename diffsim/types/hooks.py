"""Hooks: the user's own forces, actuator laws, sensors, distance fields, contact filter and plugins, as pure functions.

    model = model.replace(hooks=Hooks(passive=lambda model, state, data: -0.1 * state.qvel))

Hooks are static: a model with a new function needs a new compilation. Their arguments are the model, the state, and a
Data that holds what is computed before the hook is called (positions and velocities); its other fields are None.

A `Plugin` defines what an element `<plugin plugin="my.name">` of a model does:

    law = Plugin({"gain": 1.0}, states=1, force=force, advance=advance)
    model = diffsim.load("model.xml", hooks=Hooks(plugins={"my.name": law}))

Instances of plugins are counted and named as in MuJoCo (`plugin_*`): first the named instances of `<extension>`, then
the instances that elements declare themselves. Settings are values of the model (`plugin_number`), and states are in
`State.plugin_state`, so that there are derivatives with respect to both. MuJoCo's own plugins are implemented elsewhere
in the package, without hooks.
Source: MuJoCo "Extensions", engine plugins; mjplugin.h of 3.8.1.
"""

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.errors import UnsupportedError
from diffsim.xla.compiled import zeros

# (topology, geom1 (n,), geom2 (n,)) -> (n,) bool
Filter = Callable[[Any, np.ndarray, np.ndarray], np.ndarray]
# (model, state, data) -> array
Hook = Callable[[Any, Any, Any], Array]
# (model, state, inputs, data) -> array
DrivenHook = Callable[[Any, Any, Any, Any], Array]
# (point, parameters) -> distance
DistanceField = Callable[[Array, Array], Array]
NamedFields = tuple[tuple[str, DistanceField], ...]
# the settings of an instance of a plugin, by name
Settings = dict[str, Array]
# a count that is the same for all instances of a plugin, or a function of an instance's settings that returns it
Count = int | Callable[[Mapping[str, np.ndarray]], int]


class PluginUse(NamedTuple):
    """One instance of a plugin, with the arguments for the plugin's functions.

    Attributes:
      model, state, inputs: the model, the state and its inputs.
      data: has all fields that are computed before the function is called; its other fields are None.
      settings: the settings of the instance by name, () or (k,) as in the plugin's defaults.
      plugin_state: (states,) the states of the instance.
      ids: (n,) numpy array of the actuators, sensors or bodies that use the instance.
    """

    model: Any
    state: Any
    inputs: Any
    data: Any
    settings: Settings
    plugin_state: Array
    ids: np.ndarray


# a function of a `Plugin`
Function = Callable[[PluginUse], Array]


def check_settings(settings: Iterable[str], known: Iterable[str]) -> None:
    """Raises ValueError for a setting that a plugin does not have."""
    for name in settings:
        if name not in known:
            raise ValueError(f"has no setting '{name}', only {', '.join(known) or 'none'}")


@dataclasses.dataclass(frozen=True)
class Plugin:
    """The functions of a plugin. Each takes a `PluginUse`, unless said otherwise; a plugin may leave out any of them.

    Attributes:
      settings: default values, each a number or a sequence, of the settings that `<config>` can change, by name.
      states: number of states of an instance, or a function of its settings that returns the number.
      dim: number of values that a sensor returns, or a function of its settings that returns the number.
      reset: settings -> (states,) initial states; without it they are zero.
      advance: -> (states,) the states one timestep later; `state` and `data` are those at the beginning of the step.
      force: -> (n,) forces of actuators, N or N m, before they are limited.
      act_dot: -> (n, actdim) d act / dt of actuators, per second; the actuators need `actdim`. Without it they have the
        dynamics of their dyntype.
      passive: -> (nv,) generalized force that each instance adds to qfrc_passive, whether or not a body uses it.
      sensor: -> (n, dim) readings, before their cutoff.
      distance: (point, parameters) -> distance of a geom of type sdf, as in `Hooks.sdf`; the parameters are the
        settings in their order.
    """

    settings: Mapping[str, float | Sequence[float]] | tuple[tuple[str, Any], ...] = ()
    states: Count = 0
    dim: Count = 1
    reset: Callable[[Settings], Array] | None = None
    advance: Function | None = None
    force: Function | None = None
    act_dot: Function | None = None
    passive: Function | None = None
    sensor: Function | None = None
    distance: Callable[[Array, Array], Array] | None = None

    def __post_init__(self) -> None:
        rows = self.settings.items() if isinstance(self.settings, Mapping) else self.settings
        plain = (tuple(np.ravel(value).tolist()) if np.ndim(value) else float(value) for _, value in rows)  # type: ignore[arg-type]
        object.__setattr__(self, "settings", tuple(zip([name for name, _ in rows], plain, strict=True)))

    def values(self, texts: Mapping[str, str]) -> dict[str, np.ndarray]:
        """The settings of an instance by name, from the texts of its `<config>` elements and the defaults.

        Raises:
          ValueError: a setting is unknown, or does not have as many numbers as its default.
        """
        values = {name: np.asarray(value, float) for name, value in dict(self.settings).items()}
        check_settings(texts, values)
        for name, text in texts.items():
            numbers = np.array([float(word) for word in text.split()])
            if numbers.size != values[name].size or not np.isfinite(numbers).all():
                raise ValueError(f"setting '{name}' takes {values[name].size} numbers, not '{text}'")
            values[name] = numbers.reshape(values[name].shape)
        return values


@dataclasses.dataclass(frozen=True)
class Hooks:
    """The user's functions that stages call, like MuJoCo's callbacks; None by default.

    Attributes:
      passive: (model, state, data) -> (nv,) generalized force that is added to qfrc_passive, N or N m.
      act_dyn: (model, state, inputs, data) -> (na,) d act / dt, per second, used for actuators with dyntype `user`.
      act_gain: (model, state, inputs, data) -> (nu,) force per signal (control or activation), used for actuators with
        gaintype `user`.
      act_bias: (model, state, inputs, data) -> (nu,) force, N or N m, used for actuators with biastype `user`.
      sensor: (model, state, inputs, data) -> (nsensordata,) readings before their cutoff, used for sensors of type
        `user`, which return zero without it. Its Data has all fields except the sensor readings.
      contact_filter: (topology, geom1, geom2) -> (n,) bool, True for pairs of geoms that cannot touch; geom1 and geom2
        (n,) are numpy arrays. Like mjcb_contactfilter, it replaces contype and conaffinity, and does not apply to
        explicit pairs. It is called only when a program is traced; the pairs that it excludes have no slots in the
        contact buffer.
      sdf: signed distance functions of geoms of type sdf whose `<plugin>` is not one of MuJoCo's, by the name of the
        plugin: (point, parameters) -> distance. The point (3,), m, is in the frame of the mesh's file; the parameters
        (k,) are the numbers of the plugin's `<config>` elements in their order. The distance (), m, is negative inside,
        and its slope is at most 1. Mass, bounds, pictures and contacts with planes come from the geom's mesh.
      plugins: the plugins of actuators, sensors, bodies and geoms, by the name that the model uses. Give them when the
        model is loaded, since they define its sizes: `diffsim.load(path, hooks=...)`.
    """

    passive: Hook | None = None
    act_dyn: DrivenHook | None = None
    act_gain: DrivenHook | None = None
    act_bias: DrivenHook | None = None
    sensor: DrivenHook | None = None
    contact_filter: Filter | None = None
    sdf: Mapping[str, DistanceField] | NamedFields | None = None
    plugins: Mapping[str, Plugin] | tuple[tuple[str, Plugin], ...] | None = None

    def __post_init__(self) -> None:
        if self.plugins is not None:
            object.__setattr__(self, "plugins", tuple(sorted(dict(self.plugins).items())))
            fields = {name: plugin.distance for name, plugin in self.plugins if plugin.distance is not None}  # type: ignore[union-attr,misc]
            object.__setattr__(self, "sdf", dict(self.sdf or ()) | fields or None)
        if self.sdf is not None:
            object.__setattr__(self, "sdf", tuple(sorted(dict(self.sdf).items())))


def count_of(count: Count, values: Mapping[str, np.ndarray]) -> int:
    """The number of states, or of readings, of an instance with these settings."""
    return int(count(values) if callable(count) else count)


def instances(topology: Any) -> list[tuple[str, dict[str, str]]]:
    """The plugin name and the settings of each instance, including instances of MuJoCo's plugins."""
    return [tuple(json.loads(text)) for text in topology.plugins]  # type: ignore[misc]


def plugin_uses(
    model: Any, state: Any, inputs: Any, data: Any, job: str, kind: str = "body"
) -> Iterator[tuple[Plugin, PluginUse]]:
    """Yields the plugin and the arguments of each instance whose plugin has the function `job`.

    Args:
      model, state, inputs, data: the arguments that all instances share.
      job: a field of `Plugin`; "states" for all instances.
      kind: the objects in `ids`: "body", "actuator" or "sensor".

    Raises:
      UnsupportedError: a plugin is neither MuJoCo's nor one of the model's hooks.
    """
    topology = model.topology
    known = dict(model.hooks.plugins or ())
    for number, (name, _) in enumerate(instances(topology)):
        # -1 marks an instance of one of MuJoCo's own plugins
        if topology.plugin_numberadr[number] < 0:
            continue
        if name not in known:
            reason = f"the plugin '{name}' is unknown: load the model with hooks=Hooks(plugins={{'{name}': ...}})"
            raise UnsupportedError.of("<plugin>", reason)
        if getattr(known[name], job) is None:
            continue
        ids = np.flatnonzero(getattr(topology, f"{kind}_plugin") == number)
        use = PluginUse(
            model=model,
            state=state,
            inputs=inputs,
            data=data,
            settings=_settings_of(model, number, known[name]),
            plugin_state=state.plugin_state[_place(topology, number)],
            ids=ids,
        )
        yield known[name], use


def _place(topology: Any, number: int) -> slice:
    """The indices of an instance's states in `State.plugin_state`."""
    first = int(topology.plugin_stateadr[number])
    return slice(first, first + int(topology.plugin_statenum[number]))


def _settings_of(model: Any, number: int, plugin: Plugin) -> Settings:
    """The settings of an instance by name, read from `model.plugin_number`."""
    first = int(model.topology.plugin_numberadr[number])
    settings = {}
    for name, value in plugin.settings:
        size = int(np.size(value))
        numbers = model.plugin_number[first : first + size]
        settings[name] = numbers if np.ndim(value) else numbers[0]
        first += size
    return settings


def first_plugin_state(model: Any) -> Array:
    """(npluginstate,) the initial states of all plugins."""
    values = zeros(model.topology.npluginstate, model.qpos0.dtype)
    for number, (name, _) in enumerate(instances(model.topology)):
        plugin = dict(model.hooks.plugins or ()).get(name)
        if plugin is not None and plugin.reset is not None:
            first = plugin.reset(_settings_of(model, number, plugin))
            values = values.at[_place(model.topology, number)].set(first)
    return values


def advance_plugins(model: Any, state: Any, inputs: Any, data: Any) -> Array:
    """(npluginstate,) the states of all plugins one timestep later."""
    values = state.plugin_state
    if not model.topology.npluginstate:
        return values
    parts = []
    for plugin, use in plugin_uses(model, state, inputs, data, "states"):
        later = use.plugin_state if plugin.advance is None else jnp.asarray(plugin.advance(use), values.dtype)
        if later.shape != use.plugin_state.shape:
            raise ValueError(
                f"advance of a plugin returned shape {later.shape}, but its states have shape {use.plugin_state.shape}"
            )
        parts.append(later)
    return jnp.concatenate(parts)

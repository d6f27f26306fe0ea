"""Plugins: their instances, the elements that use them, and their settings.

Instances are numbered as in MuJoCo: first the named instances of `<extension>`, then one for each element that names no
instance, in the order of meshes, actuators, sensors, bodies and geoms. MuJoCo's own plugins are implemented, with their
settings, in `actuator/pid.py`, `sensor/touch_grid.py`, `flex/cable.py` and `assets/field_plugins.py`; a plugin of the
user is a hook (`types/hooks.py`). Source: MuJoCo "XML reference", extension.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from diffsim.actuator import pid
from diffsim.base.enums import BiasType, DynType, GainType
from diffsim.compiler.assets.field_plugins import field_parameters
from diffsim.compiler.draft import Draft, Node, addresses
from diffsim.flex import cable
from diffsim.geometry.sdf.functions import FUNCTIONS
from diffsim.mjcf.elements.asset import Mesh
from diffsim.mjcf.elements.body import Body
from diffsim.mjcf.elements.deformable import MUJOCO, Config, PluginInstance
from diffsim.mjcf.elements.deformable import Plugin as PluginElement
from diffsim.mjcf.resources import AssetError
from diffsim.mjcf.schema import Element
from diffsim.sensor import touch_grid
from diffsim.types.hooks import count_of

# MuJoCo's plugins other than distance fields, and the kind of object that can use each
KNOWN = {pid.NAME: "actuator", touch_grid.NAME: "sensor", cable.NAME: "body"}
# the function that a plugin of the user needs for each kind of object
JOBS = {"actuator": "force", "sensor": "sensor", "body": "passive", "geom": "distance"}


class _Instance(NamedTuple):
    """An instance of a plugin.

    Attributes:
      plugin: name of the plugin.
      settings: its settings as texts, by key.
      states: number of states of a plugin of the user.
      parameters: (k,) parameters of a plugin of the user.
      of_user: whether the user has given the plugin as a hook.
    """

    plugin: str
    settings: dict[str, str]
    states: int
    parameters: np.ndarray
    of_user: bool


def plugin_instances(draft: Draft) -> None:
    """Fields of all instances: plugins, plugin_stateadr, plugin_statenum, plugin_numberadr, ..., and their sizes.

    Notes in `Draft.instance_of` which instance an element uses.
    """
    spec = draft.spec
    rows = list[_Instance]()
    elements: list[Any] = list(spec.all(PluginInstance))
    inner: list[Any] = spec.all(PluginElement)
    others: list[Any] = [node.source for kind in ("actuator", "sensor") for node in draft.nodes[kind]]
    ordered = [element for element in inner if isinstance(element.parent, Mesh)]
    ordered += [element for element in others if element.tag == "plugin"]
    ordered += [element for element in inner if not isinstance(element.parent, Mesh)]
    numbers: dict[int | str, int] = {}
    for element in [*elements, *(element for element in ordered if element.instance is None)]:
        if _identity(element) in numbers:
            continue
        numbers[_identity(element)] = len(rows)
        holder: Any = element.parent if isinstance(element, PluginInstance) else element
        name = holder.plugin
        settings = {setting.key: setting.value for setting in element.each(Config)}
        plugin = draft.plugins.get(name)
        if name is None:
            draft.problems.add(element, "needs attribute 'plugin' or 'instance'")
        values = None if plugin is None else _checked(draft, element, plugin.values, settings, {})
        states = 0 if plugin is None else count_of(plugin.states, values or {})
        parameters = np.concatenate([np.zeros(0), *map(np.ravel, (values or {}).values())])
        rows.append(
            _Instance(
                plugin=name or "",
                settings=settings,
                states=states,
                parameters=parameters,
                of_user=plugin is not None,
            )
        )
        node = draft.add("plugin", Node(element, element, len(rows) - 1))
        if node.name:
            numbers[node.name] = node.id
    for element in ordered:
        number = numbers.get(_identity(element) if element.instance is None else element.instance)
        if number is None:
            draft.problems.add(element, f"no plugin instance is called '{element.instance}'")
            continue
        name = rows[number].plugin
        draft.instance_of[id(element)] = number
        if element.plugin not in (None, name):
            message = f"instance '{element.instance}' belongs to plugin '{name}', not to '{element.plugin}'"
            draft.problems.add(element, message)
    draft.problems.raise_if_any()
    states = np.array([row.states for row in rows], int)
    counts = np.array([len(row.parameters) for row in rows], int)
    of_user = np.array([row.of_user for row in rows], bool)
    draft.fields.update(
        nplugin=len(rows),
        npluginstate=int(states.sum()),
        npluginnumber=int(counts.sum()),
        plugin_stateadr=addresses(states),
        plugin_statenum=states,
        plugin_numberadr=np.where(of_user, addresses(counts), -1).astype(int),
        plugin_numbernum=counts,
        plugin_number=np.concatenate([np.zeros(0), *(row.parameters for row in rows)]),
        plugins=tuple(json.dumps((row.plugin, row.settings)) for row in rows),
    )


def plugin_rows(draft: Draft) -> None:
    """body_plugin, geom_plugin, actuator_plugin, sensor_plugin and actuator_pidprm."""
    parameters = []
    for kind in JOBS:
        column = np.full(len(draft.nodes[kind]), -1)
        for node in draft.nodes[kind]:
            element: Any = node.source if node.source.tag == "plugin" else node.source.first(PluginElement)
            if element is None:
                continue
            column[node.id] = number = draft.instance_of[id(element)]
            name, settings = json.loads(draft.fields["plugins"][number])
            job = JOBS[kind]
            hint = f"load the model with hooks=Hooks(plugins={{'{name}': Plugin({JOBS[kind]}=...)}})"
            if name in draft.plugins and getattr(draft.plugins[name], job) is None:
                message = f"plugin '{name}' has no function '{job}', which every {kind} with a plugin needs"
                draft.problems.add(element, message, hint)
            if kind != "geom" and name not in draft.plugins and KNOWN.get(name) != kind:
                hint = (
                    f"of MuJoCo's plugins diffsim supports {', '.join(sorted(KNOWN))}"
                    if name.startswith(MUJOCO)
                    else hint
                )
                draft.problems.unsupported(element, f"no {kind} can use plugin '{name}'", hint)
            if kind == "actuator" and name == pid.NAME:
                parameters.append(_checked(draft, element, pid.parameters, settings, np.zeros(len(pid.SETTINGS))))
            elif kind == "actuator" and name in draft.plugins:
                # compile it like an actuator with gain, bias and dynamics of type user
                node.e.gaintype, node.e.biastype = GainType.USER, BiasType.USER
                node.e.dyntype = node.e.dyntype if draft.plugins[name].act_dot is None else DynType.USER
        draft.fields[f"{kind}_plugin"] = column
    _check_unused(draft)
    draft.problems.raise_if_any()
    cable_rows(draft)
    prm = np.array(parameters).reshape(-1, len(pid.SETTINGS))
    draft.fields.update(npid=len(parameters), actuator_pidprm=prm)


def _check_unused(draft: Draft) -> None:
    """Notes errors in the settings of instances that no element uses, since MuJoCo initializes these too."""
    for number in set(range(len(draft.nodes["plugin"]))) - set(draft.instance_of.values()):
        element = draft.nodes["plugin"][number].source
        name, settings = json.loads(draft.fields["plugins"][number])
        if name == pid.NAME:
            draft.problems.add(element, "no actuator uses this instance of mujoco.pid", "remove the instance")
        elif name == touch_grid.NAME:
            _checked(draft, element, touch_grid.grid_of, settings, None)
        elif name == cable.NAME:
            _checked(draft, element, cable.moduli, settings, None)
        elif name in FUNCTIONS:
            try:
                field_parameters(name, settings)
            except AssetError as error:
                draft.problems.add(element, str(error), error.hint)


def cable_rows(draft: Draft) -> None:
    """Fields of cables: each body of an instance, except for the first, bends against its parent."""
    fields = draft.fields
    seen = set[int]()
    rows: list[tuple[int, np.ndarray, np.ndarray]] = []
    for node in draft.nodes["body"]:
        number = int(fields["body_plugin"][node.id])
        name, settings = json.loads(fields["plugins"][number]) if number >= 0 else ("", {})
        if name != cable.NAME:
            continue
        shear, young = _checked(draft, draft.nodes["plugin"][number].source, cable.moduli, settings, (0.0, 0.0))
        first = number not in seen
        seen.add(number)
        if first:
            continue
        geom = int(fields["body_geomadr"][node.id])
        body = node.id
        section = cable.section(int(fields["geom_type"][geom]), np.asarray(fields["geom_size"][geom]))
        # the curvature at rest: the rotation vector from the parent to the body at qpos0, with an angle in (-pi, pi]
        quat = np.asarray(fields["body_quat"][body], float)
        sine = float(np.linalg.norm(quat[1:]))
        angle = 2 * np.arctan2(sine, quat[0])
        angle = angle - 2 * np.pi if angle > np.pi else angle
        rest = quat[1:] / sine * angle if sine > 0 and settings.get("flat") != "true" else np.zeros(3)
        rows.append((body, section * np.array([shear, young, young]), rest))
    fields |= cable.no_cables()
    if rows:
        ids, stiffness, curvature = (np.array(column) for column in zip(*rows, strict=True))
        fields |= {"cable_bodyid": ids, "ncable": len(ids), "cable_stiffness": stiffness, "cable_curvature": curvature}
        fields["cable_length"] = np.linalg.norm(np.asarray(fields["body_pos"])[ids], axis=1)


def plugin_dim(draft: Draft, node: Node) -> int:
    """The number of values of a sensor with a plugin."""
    name, settings = json.loads(draft.fields["plugins"][draft.fields["sensor_plugin"][node.id]])
    if name == touch_grid.NAME:
        return _checked(draft, node.source, lambda texts: touch_grid.grid_of(texts).dim, settings, 0)
    plugin = draft.plugins[name]
    return count_of(plugin.dim, plugin.values(settings))


def own_states(fields: Mapping) -> np.ndarray:
    """(nu, 2) bool: which states of mujoco.pid each actuator has; no columns if no actuator has this plugin."""
    # mujoco.pid is the only plugin of MuJoCo for actuators, and plugins of MuJoCo have no address of parameters; the
    # number appended is for actuators without a plugin (-1)
    plugin = np.asarray(fields["actuator_plugin"]).reshape(-1)
    of_pid = (plugin >= 0) & (np.append(np.asarray(fields["plugin_numberadr"], int), 0)[plugin] < 0)
    has = np.zeros((len(plugin), pid.STATES if of_pid.any() else 0), bool)
    if has.size:
        has[of_pid] = pid.has_states(np.asarray(fields["actuator_pidprm"]))
    return has


def _identity(element: Any) -> int:
    """A number that is equal for elements of the same instance: bodies of a composite share the list of settings."""
    return id(element.children if isinstance(element.parent, Body) else element)


def _checked(draft: Draft, element: Element, read, settings: dict[str, str], instead):  # type: ignore[no-untyped-def]
    """read(settings); if it raises ValueError, the error is noted and the result is `instead`."""
    try:
        return read(settings)
    except ValueError as error:
        draft.problems.add(element, f"the plugin {error}")
        return instead

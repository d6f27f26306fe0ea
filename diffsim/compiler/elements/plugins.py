"""Plugins of actuators and sensors: those of MuJoCo's that are JAX functions here, with the numbers of their settings.

Which they are, and what settings they take, stands with their functions (`actuator/pid.py`, `sensor/touch_grid.py`).
Plugins of distance fields are elsewhere (`assets/field_plugins.py`). Source: MuJoCo "XML reference", extension.
"""

import json
from collections.abc import Mapping

import numpy as np

from diffsim.actuator import pid
from diffsim.compiler.draft import Draft, Node
from diffsim.flex import cable
from diffsim.mjcf.elements.deformable import Config, Plugin, PluginInstance
from diffsim.sensor import touch_grid

# what may use each of MuJoCo's plugins
KNOWN = {pid.NAME: "actuator", touch_grid.NAME: "sensor"}
HINT = {
    "actuator": "your own law is <general dyntype='user' gaintype='user'> with Hooks(act_dyn=..., act_gain=...)",
    "sensor": "your own sensor is <user> with Hooks(sensor=...)",
}


def plugin_rows(draft: Draft) -> None:
    """plugins (a JSON text of name and settings for each use), actuator_plugin, sensor_plugin, actuator_pidprm."""
    uses: list[str] = []
    # by identity: an instance that several elements name is one
    known: dict[int, int] = {}
    fields, parameters = draft.fields, []
    for kind in ("actuator", "sensor"):
        numbers = np.full(len(draft.nodes[kind]), -1)
        for node in draft.nodes[kind]:
            found = _use_of(draft, node, kind)
            if found is None:
                continue
            instance, name, settings = found
            if id(instance) not in known:
                known[id(instance)] = len(uses)
                uses.append(json.dumps([name, settings]))
            numbers[node.id] = known[id(instance)]
            if kind == "actuator":
                parameters.append(_checked(draft, node, pid.parameters, settings, np.zeros(len(pid.SETTINGS))))
        fields[f"{kind}_plugin"] = numbers
    cable_rows(draft)
    draft.problems.raise_if_any()
    fields.update(plugins=tuple(uses), npid=len(parameters))
    fields["actuator_pidprm"] = np.array(parameters).reshape(-1, len(pid.SETTINGS))


def cable_rows(draft: Draft) -> None:
    """The bodies of cables: each bends against the one before it in its instance, and the first against nothing."""
    fields, seen = draft.fields, set[int]()
    rows: list[tuple[int, np.ndarray, np.ndarray]] = []
    named = {each.name: each for each in draft.spec.all(PluginInstance)}
    for node in draft.nodes["body"]:
        use = node.source.first(Plugin)
        if use is None:
            continue
        # bodies of one composite share the settings of its plugin
        instance = named[use.instance] if use.instance is not None else use
        name = instance.parent.plugin if use.instance is not None else use.plugin  # type: ignore[union-attr]
        if name != cable.NAME:
            draft.problems.unsupported(use, f"plugin '{name}' is none of bodies that diffsim knows", "take it out")
            continue
        settings = {setting.key: setting.value for setting in instance.each(Config)}
        shear, young = _checked(draft, node, cable.moduli, settings, (0.0, 0.0))
        first = id(instance.children) not in seen
        seen.add(id(instance.children))
        if first:
            continue
        geom, body = int(fields["body_geomadr"][node.id]), node.id
        section = cable.section(int(fields["geom_type"][geom]), np.asarray(fields["geom_size"][geom]))
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


def grid_dim(draft: Draft, node: Node) -> int:
    """How many numbers a plugin's sensor gives."""
    settings = json.loads(draft.fields["plugins"][draft.fields["sensor_plugin"][node.id]])[1]
    return _checked(draft, node, lambda given: touch_grid.grid_of(given).dim, settings, 0)


def own_states(fields: Mapping) -> np.ndarray:
    """(nu, 2) which activations of its plugin an actuator has; no columns where none has a plugin."""
    plugin = np.asarray(fields["actuator_plugin"]).reshape(-1)
    found = np.zeros((len(plugin), pid.STATES if (plugin >= 0).any() else 0), bool)
    if found.size:
        found[plugin >= 0] = pid.has_states(np.asarray(fields["actuator_pidprm"]))
    return found


def _use_of(draft: Draft, node: Node, kind: str) -> tuple[object, str, dict[str, str]] | None:
    """What tells one instance from another, the name of the plugin, and its settings; None if there is none."""
    source = node.source
    if "plugin" not in source.attributes() or node.source.tag != "plugin":
        return None
    instance, name = source, source.plugin  # type: ignore[attr-defined]
    if source.instance is not None:  # type: ignore[attr-defined]
        named = {each.name: each for each in draft.spec.all(PluginInstance)}
        instance = named[source.instance]  # type: ignore[attr-defined]
        owner = instance.parent.plugin  # type: ignore[union-attr]
        if name not in (None, owner):
            draft.problems.add(source, f"instance '{instance.name}' is one of plugin '{owner}', not of '{name}'")
        name = owner
    if name is None:
        draft.problems.add(source, "has neither attribute 'plugin' nor 'instance'")
        return None
    if KNOWN.get(name) != kind:
        draft.problems.unsupported(source, f"plugin '{name}' is no {kind} that diffsim knows", HINT[kind])
        return None
    return instance, name, {setting.key: setting.value for setting in instance.each(Config)}


def _checked(draft: Draft, node: Node, read, settings: dict[str, str], instead):  # type: ignore[no-untyped-def]
    """What `read` makes of settings; a problem where it refuses them."""
    try:
        return read(settings)
    except ValueError as error:
        draft.problems.add(node.source, f"the plugin {error}")
        return instead

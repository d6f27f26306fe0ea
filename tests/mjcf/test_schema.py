"""The declared elements and attributes are exactly MuJoCo's: compared with the schema that the library prints."""

import re

import oracle

from diffsim.base.enums import SensorType
from diffsim.mjcf.elements import Default, Mujoco, sensor
from diffsim.mjcf.schema import children_of, xml_name

ROW = re.compile(r"^( *)([\w()]+) \(([!?*R])\)\s*(.*)$")

# read and refused in a default class too; MuJoCo's own table leaves these to its reader
BEYOND = {"plugin", "frame", "replicate", "body", "default"}
# attributes of later versions that are read and simulated (docs: Files of newer MuJoCo)
NEWER = {
    "/geom": {"surfacevel"},
    "/attach": {"frame"},
    "/general": {"input"},
    "/default/tendon": {"armature", "actuatorfrcrange", "actuatorfrclimited"},
}


def printed_schema():
    """MuJoCo's schema as nested dicts: name, multiplicity, attributes, children."""
    root, stack = None, []
    for line in oracle.mujoco.mj_printSchema(False, False).split("\n"):
        row = ROW.match(line)
        if row:
            node = {"once": row[3] == "?", "attributes": set(row[4].split()), "children": {}}
            del stack[len(row[1]) // 3 :]
            if stack:
                stack[-1]["children"]["worldbody" if row[2] == "(world)body" else row[2]] = node
            else:
                root = node
            stack.append(node)
        elif line.strip():
            stack[-1]["attributes"] |= set(line.split())
    return root


def compare(node, cls, path, in_default):
    found = []
    newer = {name for end, names in NEWER.items() if path.endswith(end) for name in names}
    ours = {xml_name(name) for name in cls.legal(in_default)} - newer
    if ours != node["attributes"]:
        found.append((path, sorted(ours ^ node["attributes"])))
    children = children_of(cls, path.split("/")[-1])
    if set(children) - BEYOND != set(node["children"]) - BEYOND:
        found.append((path, sorted(set(children) ^ set(node["children"]))))
    for tag, child in node["children"].items():
        if child["once"] != children[tag].once:
            found.append((f"{path}/{tag}", "multiplicity"))
        found += compare(child, children[tag].cls, f"{path}/{tag}", in_default or cls is Default)
    return found


def test_schema_is_mujocos():
    assert compare(printed_schema(), Mujoco, "mujoco", False) == []


def test_every_sensor_type_has_a_tag():
    assert {cls(tag=tag).type for tag, cls in sensor.TAGS.items()} == set(SensorType)

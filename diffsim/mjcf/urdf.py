"""URDF: converts it to MJCF nodes, each with the file and line of its URDF element, which are then read like any MJCF.

Links become bodies, nested as the joints define. Links without a parent are fixed to the world (add a free joint to let
the robot move). A link called "world" is the world itself, without its inertial. Angles are in radians. In a `<mujoco>`
element inside the robot, the sections compiler, option and size are read; others are ignored, with a warning. By
default visual geoms are discarded here, and static bodies are fused later.

diffsim follows MuJoCo 3.8.1 in these points: the rotation of an inertial origin is ignored; an inertia of zeros counts
as missing; limits also apply to continuous joints; limits with only one end, or with the ends swapped, do not apply; a
collision geom has the color of the visual before it; if a mesh file is used again after use in two scales, the geom
gets the mesh in the first scale. As in MuJoCo, mimic is ignored, with a warning that gives the equivalent equality
constraint; velocity limits, safety, calibration, transmissions and elements of other programs are ignored too.
Source: http://wiki.ros.org/urdf/XML; MuJoCo "URDF extensions"; mjXURDF (3.8.1).
"""

import warnings
from collections.abc import Mapping
from pathlib import PurePosixPath

import numpy as np

from diffsim.base.errors import Problems, near_match
from diffsim.mjcf.kinds import BadValue
from diffsim.mjcf.number_kinds import RealsKind, Vector, number
from diffsim.mjcf.orientation import from_euler, from_z_axis, matrix
from diffsim.mjcf.resources import OutsideError, ResourceError, Resources
from diffsim.mjcf.source import Node

# sections of a <mujoco> element inside a robot
EXTENSION = ("compiler", "option", "size")
# name of the link that is the world
WORLD = "world"

# number of folders in which a package is looked for: the robot's folder and those above it
HIGHEST = 8

# attributes of <inertia>, in the order of MJCF's fullinertia
INERTIA = ("ixx", "iyy", "izz", "ixy", "ixz", "iyz")

# For each type of URDF joint its MJCF joints: the suffix of the name, the type, and its axis: x, y or z (0, 1, 2)
# of a frame whose z axis is the axis of the URDF joint.
JOINTS: Mapping[str, tuple[tuple[str, str, int], ...]] = {
    "revolute": (("", "hinge", 2),),
    "continuous": (("", "hinge", 2),),
    "prismatic": (("", "slide", 2),),
    "fixed": (),
    "floating": (("", "free", 2),),
    "planar": (("_TX", "slide", 0), ("_TY", "slide", 1), ("_RZ", "hinge", 2)),
    "spherical": (("", "ball", 2),),
}

# For each shape, the URDF attributes that give MJCF's size: name, number of values, and factor (MJCF has half sizes).
SHAPES: Mapping[str, tuple[tuple[str, int, float], ...]] = {
    "box": (("size", 3, 0.5),),
    "cylinder": (("radius", 1, 1.0), ("length", 1, 0.5)),
    "sphere": (("radius", 1, 1.0),),
    "capsule": (("radius", 1, 1.0), ("length", 1, 0.5)),
}


def translate(root: Node, resources: Resources, problems: Problems) -> Node:
    """The MJCF of a `<robot>`; errors are noted in `problems`."""
    return _Robot(root, resources, problems).model()


class _Robot:
    """One robot while it is converted.

    Attributes:
      root: the `<robot>`.
      resources: where its files are.
      problems: where errors are noted.
      sections: the sections of its `<mujoco>` element.
      colors: colors by the name of their material.
      names: names of geoms so far.
      meshes: the scales in which each mesh file has been used so far.
      assets: the `<asset>` section so far.
      settings: the `<compiler>` section.
    """

    def __init__(self, root: Node, resources: Resources, problems: Problems) -> None:
        self.root = root
        self.resources = resources
        self.problems = problems
        extension = self.one(root, "mujoco")
        self.sections = [] if extension is None else extension.children
        self.colors = self._colors()
        self.names: set[str] = set()
        self.meshes: dict[str, list[Vector]] = {}
        self.assets = Node("asset", {}, root.file, root.line)
        self.settings = self._compiler()

    def model(self) -> Node:
        """The whole model."""
        bodies = self._bodies()
        top = self._put_under_parents(bodies)
        world = bodies.pop(WORLD, None) or Node("worldbody", {}, self.root.file, self.root.line)
        world.children += [body for body in top if body is not world]
        kept = [self.settings, *(section for section in self.sections if section.tag in EXTENSION[1:])]
        named = {"model": self.root.attributes["name"]} if self.root.attributes.get("name") else {}
        return Node("mujoco", named, self.root.file, self.root.line, [*kept, self.assets, world])

    # ------------------------------------------------------------------------------------------------------ settings

    def _compiler(self) -> Node:
        """The compiler settings: MuJoCo's settings for URDF, then the settings in the `<mujoco>` element."""
        for tag in dict.fromkeys(section.tag for section in self.sections):
            same = [section for section in self.sections if section.tag == tag]
            if tag not in EXTENSION:
                warnings.warn(
                    f"{same[0].file}:{same[0].line} <{tag}> in the <mujoco> of a URDF is ignored, as MuJoCo does;"
                    f" it reads {', '.join(EXTENSION)}",
                    stacklevel=2,
                )
            elif len(same) > 1:
                self.problems.add(same[1], f"there is more than one <{tag}>")
        compiler = next((section for section in self.sections if section.tag == "compiler"), None)
        place = compiler or self.root
        attributes = {"fusestatic": "true", **(compiler.attributes if compiler else {}), "angle": "radian"}
        self.discards = attributes.pop("discardvisual", "true") == "true"
        return Node("compiler", attributes, place.file, place.line, compiler.children if compiler else [])

    def _colors(self) -> dict[str, str]:
        """Colors by the name of their material; the first definition counts."""
        colors: dict[str, str] = {}
        waiting = [self.root]
        while waiting:
            node = waiting.pop()
            waiting.extend(reversed(node.children))
            name = node.attributes.get("name")
            if node.tag == "material" and name and name not in colors:
                color = self.one(node, "color")
                if color is not None:
                    colors[name] = self.numbers(color, "rgba", 4, required=True)
        return colors

    # --------------------------------------------------------------------------------------------------------- bodies

    def _bodies(self) -> dict[str, Node]:
        """A body for each link, by name, with everything except its joint and its pose."""
        bodies: dict[str, Node] = {}
        for link in self.root.children:
            if link.tag != "link":
                continue
            name = self.text(link, "name")
            if name in bodies:
                first = bodies[name]
                self.problems.add(link, f"the name is already used by the link at {first.file}:{first.line}")
            is_world = name == WORLD
            body = Node(
                tag="worldbody" if is_world else "body",
                attributes={} if is_world else {"name": name},
                file=link.file,
                line=link.line,
                said="link",
            )
            inertial = self.one(link, "inertial")
            if inertial is not None and not is_world:
                body.children.append(self._inertial(inertial))
            body.children += self._geoms(link)
            bodies[name] = body
        return bodies

    def _inertial(self, source: Node) -> Node:
        """The `<inertial>` of a link."""
        attributes = self.pose(source) | {"mass": "0"}
        mass, inertia = self.one(source, "mass", required=True), self.one(source, "inertia", required=True)
        if mass is not None:
            attributes["mass"] = self.numbers(mass, "value", 1, required=True)
        if inertia is not None:
            values = [self.numbers(inertia, name, 1, required=True) for name in INERTIA]
            if any(float(value) for value in values):
                attributes["fullinertia"] = " ".join(values)
                attributes.pop("quat")
        return Node("inertial", attributes, source.file, source.line)

    def _geoms(self, link: Node) -> list[Node]:
        """The geoms of a link: of its collisions and, unless they are discarded, of its visuals."""
        geoms: list[Node] = []
        rgba = ""
        for source in link.children:
            if source.tag == "visual":
                rgba = self._color(source) or rgba
                if self.discards:
                    continue
                # drawn only: without contacts and mass
                defaults = {"contype": "0", "conaffinity": "0", "group": "1", "density": "0"}
            elif source.tag == "collision":
                defaults = {}
            else:
                continue
            attributes = defaults | self.pose(source) | self._shape(source) | ({"rgba": rgba} if rgba else {})
            name = source.attributes.get("name", "")
            if name and name not in self.names:
                attributes["name"] = name
                self.names.add(name)
            geoms.append(Node("geom", attributes, source.file, source.line, said=source.tag))
        return geoms

    def _color(self, visual: Node) -> str:
        """The color of a visual, its own or its material's; empty if it has none."""
        material = self.one(visual, "material")
        if material is None:
            return ""
        color = self.one(material, "color")
        if color is not None:
            return self.numbers(color, "rgba", 4, required=True)
        return self.colors.get(self.text(material, "name"), "")

    def _shape(self, source: Node) -> dict[str, str]:
        """The type and size, or mesh, of a visual or collision."""
        geometry = self.one(source, "geometry", required=True)
        if geometry is None:
            return {}
        for tag, parts in SHAPES.items():
            shape = self.one(geometry, tag)
            if shape is not None:
                size = []
                for name, count, factor in parts:
                    values = self.numbers(shape, name, count, required=True).split()
                    size += [number(float(value) * factor) for value in values]
                return {"type": tag, "size": " ".join(size)}
        mesh = self.one(geometry, "mesh")
        if mesh is not None:
            return {"type": "mesh", "mesh": self._mesh(mesh)}
        self.problems.add(geometry, "has no shape", f"expected one of: {', '.join([*SHAPES, 'mesh'])}")
        return {}

    def _mesh(self, source: Node) -> str:
        """The name of the mesh asset for a file and a scale, which is created if it does not exist."""
        file = self._file(self.text(source, "filename"))
        scale = np.array([float(value) for value in (self.numbers(source, "scale", 3) or "1 1 1").split()])
        stem = PurePosixPath(file.replace("\\", "/")).stem
        known = self.meshes.setdefault(stem, [])
        # a quirk of 3.8.1: a file that is used again in a known scale gets the mesh of its first scale
        if any(np.array_equal(other, scale) for other in known):
            return stem
        name = f"{stem}{len(known)}" if known else stem
        known.append(scale)
        attributes = {"name": name, "file": file, "scale": " ".join(map(number, scale))}
        self.assets.children.append(Node("mesh", attributes, source.file, source.line))
        return name

    def _file(self, name: str) -> str:
        """A file name without `file://`; `package://p/x` is p/x or x, in the robot's folder or in one above it."""
        name = name.removeprefix("file://")
        if not name.startswith("package://") or self.settings.attributes.get("strippath") == "true":
            return name
        full = name.removeprefix("package://").lstrip("/")
        inside = full.partition("/")[2] or full
        folder = self.settings.attributes.get("meshdir") or self.settings.attributes.get("assetdir") or ""
        outside = ""
        for up in range(HIGHEST):
            for place in ("../" * up + full, "../" * up + inside):
                try:
                    if self.resources.locate(place, folder):
                        return place
                except OutsideError:
                    outside = outside or place
                except ResourceError:
                    pass
        # when the file is read, the error message will say that it is outside, and how to allow this
        return outside or full

    # --------------------------------------------------------------------------------------------------------- joints

    def _put_under_parents(self, bodies: dict[str, Node]) -> list[Node]:
        """Puts each body under its parent, with its joints and its pose; returns the bodies without a parent."""
        hanging: dict[str, Node] = {}
        for joint in self.root.children:
            if joint.tag != "joint":
                continue
            parent, child = (self._end(joint, tag, bodies) for tag in ("parent", "child"))
            if not parent or not child:
                continue
            if child in hanging:
                self.problems.add(joint, f"link '{child}' is already the child of {hanging[child].label}")
                continue
            hanging[child] = joint
            bodies[parent].children.append(bodies[child])
            bodies[child].attributes.update(self.pose(joint))
            first = 1 if any(part.tag == "inertial" for part in bodies[child].children) else 0
            bodies[child].children[first:first] = self._joints(joint)
        self._check_loops(bodies, hanging)
        return [body for name, body in bodies.items() if name not in hanging]

    def _warn_of_mimic(self, joint: Node) -> None:
        """Warns that a mimic joint moves freely, and says which equality constraint ties it to the other joint."""
        mimic = self.one(joint, "mimic")
        if mimic is None:
            return
        line = f"{self.numbers(mimic, 'offset', 1) or 0} {self.numbers(mimic, 'multiplier', 1) or 1}"
        ends = f'joint1="{self.text(joint, "name")}" joint2="{self.text(mimic, "joint")}"'
        warnings.warn(
            f"{mimic.file}:{mimic.line}: <mimic> is ignored, as in MuJoCo: the joint moves freely. To tie the joints, "
            f"write the robot as MJCF (diffsim.mjcf.write) and add "
            f'<equality><joint {ends} polycoef="{line} 0 0 0"/></equality>',
            stacklevel=2,
        )

    def _end(self, joint: Node, tag: str, bodies: dict[str, Node]) -> str:
        """The link that is the parent or child (`tag`) of a joint; empty, with an error, if there is none."""
        end = self.one(joint, tag, required=True)
        name = self.text(end, "link") if end is not None else ""
        if end is not None and name and name not in bodies:
            self.problems.add(end, f"there is no link '{name}'", near_match(name, bodies))
        elif tag == "child" and name == WORLD:
            self.problems.add(joint, "the world cannot be the child of a joint")
        return name if name in bodies else ""

    def _check_loops(self, bodies: dict[str, Node], hanging: dict[str, Node]) -> None:
        """Notes an error if the joints (`hanging`, by child link) form a loop."""
        parents = {child: self._end(joint, "parent", bodies) for child, joint in hanging.items()}
        for name in parents:
            seen = {name}
            at = parents[name]
            while at in parents and at not in seen:
                seen.add(at)
                at = parents[at]
            if at in seen:
                self.problems.add(hanging[at], "the joints form a loop", "a URDF must be a tree")
                return

    def _joints(self, source: Node) -> list[Node]:
        """The MJCF joints of a URDF joint."""
        kind, name = self.text(source, "type"), self.text(source, "name")
        if kind not in JOINTS:
            hint = near_match(kind, JOINTS) or "expected one of: " + ", ".join(JOINTS)
            self.problems.add(source, f"attribute 'type': unknown keyword '{kind}'", hint)
            return []
        axis = self.one(source, "axis")
        along = self.numbers(axis, "xyz", 3, required=True) if axis is not None else "1 0 0"
        direction = np.array([float(value) for value in along.split()])
        # a planar joint is two slides and a hinge along the axes of a frame with z along its axis
        frame = matrix(from_z_axis(direction)) if direction.any() else np.eye(3)
        joints = []
        for suffix, joint_type, column in JOINTS[kind]:
            attributes = {"name": name + suffix, "type": joint_type}
            if joint_type != "free":
                attributes["axis"] = along if column == 2 else " ".join(map(number, frame[:, column]))
            joints.append(Node("joint", attributes | self._dynamics(source), source.file, source.line))
        if joints:
            joints[0].attributes.update(self._limits(source))
        if len(joints) == 1:
            self._warn_of_mimic(source)
        return joints

    def _dynamics(self, joint: Node) -> dict[str, str]:
        """The damping and friction of a joint."""
        dynamics = self.one(joint, "dynamics")
        if dynamics is None:
            return {}
        names = {"damping": "damping", "frictionloss": "friction"}
        return {name: value for name, attribute in names.items() if (value := self.numbers(dynamics, attribute, 1))}

    def _limits(self, joint: Node) -> dict[str, str]:
        """The limits of position and force of a joint."""
        limit = self.one(joint, "limit")
        if limit is None:
            return {}
        lower, upper = self.numbers(limit, "lower", 1), self.numbers(limit, "upper", 1)
        effort = abs(float(self.numbers(limit, "effort", 1) or 0))
        limits = {"range": f"{lower or 0} {upper or 0}"} if lower or upper else {}
        if bool(lower) != bool(upper) or float(lower or 0) > float(upper or 0):
            limits["limited"] = "false"
        if effort > 0:
            limits["actuatorfrcrange"] = f"{number(-effort)} {number(effort)}"
        return limits

    # ----------------------------------------------------------------------------------------------- parts of elements

    def one(self, node: Node, tag: str, required: bool = False) -> Node | None:
        """The only sub-element with a tag, or None."""
        children = [child for child in node.children if child.tag == tag]
        if len(children) > 1:
            self.problems.add(children[1], f"appears more than once in {node.label}")
        if required and not children:
            self.problems.add(node, f"needs a <{tag}>")
        return children[0] if children else None

    def text(self, node: Node, name: str) -> str:
        """The text of a required attribute."""
        if not node.attributes.get(name):
            self.problems.add(node, f"attribute '{name}' is required")
        return node.attributes.get(name, "")

    def numbers(self, node: Node, name: str, count: int, required: bool = False) -> str:
        """An attribute of `count` numbers, as text; empty if it is missing."""
        if name not in node.attributes and not required:
            return ""
        kind = RealsKind(length=count, fewest=count)
        try:
            value = kind.parse(self.text(node, name))
        except BadValue as bad:
            self.problems.add(node, f"attribute '{name}': {bad.message}", bad.hint)
            value = None
        if value is None:
            return " ".join("0" * count) if required else ""
        return kind.text(value)

    def pose(self, node: Node) -> dict[str, str]:
        """Position and orientation of `<origin>`."""
        origin = self.one(node, "origin")
        xyz = self.numbers(origin, "xyz", 3) if origin is not None else ""
        rpy = self.numbers(origin, "rpy", 3) if origin is not None else ""
        # roll, pitch and yaw turn about the fixed axes x, y and z, in this order
        quat = from_euler([float(angle) for angle in (rpy or "0 0 0").split()], "XYZ", degree=False)
        return {"pos": xyz or "0 0 0", "quat": " ".join(map(number, quat))}

"""Geoms: pose, size, bounds, and the mass and inertia that they contribute to their bodies.

fromto gives the center, the half length, and a z axis that points from the second point to the first. The mass is
given, or is density times volume (times area for shells); mass_properties.py has the formulas.

A mesh geom is placed at the inertial frame of its mesh. A primitive that is fitted to a mesh takes its sizes from the
box with equal inertia or, with the compiler setting `fitaabb`, from the bounding box. Of the mesh itself it only keeps
the pose and the index.
Source: MuJoCo "Modeling", geom; "XML reference", geom, mesh and fitscale.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from diffsim.base.enums import GeomType
from diffsim.compiler.assets.compiled_mesh import Mesh
from diffsim.compiler.assets.field_plugins import NO_FIELD, SAMPLED, FieldUse, field_of
from diffsim.compiler.draft import Draft, Node
from diffsim.compiler.elements.constraints import CONDIMS
from diffsim.compiler.elements.mass_properties import MASS_PROPERTIES, MassProperties, bounding_box, fluid_coefficients
from diffsim.mjcf.orientation import TINY, compose, from_z_axis, orientation_of, rotate, unit
from diffsim.mjcf.resources import AssetError

Array = np.ndarray
Fit = Callable[[Array], list[float]]

# sizes of a fitted primitive from the half sizes of the box with equal inertia
BY_INERTIA: dict[GeomType, Fit] = {
    GeomType.SPHERE: lambda box: [box.sum() / 3],
    GeomType.CAPSULE: lambda box: [(box[0] + box[1]) / 2, max(0.0, box[2] - (box[0] + box[1]) / 4)],
    GeomType.CYLINDER: lambda box: [(box[0] + box[1]) / 2, box[2]],
    GeomType.ELLIPSOID: lambda box: list(box),
    GeomType.BOX: lambda box: list(box),
}

# sizes of a fitted primitive from the half sizes of the bounding box
BY_BOUNDS: dict[GeomType, Fit] = {
    GeomType.SPHERE: lambda box: [box.max()],
    GeomType.CAPSULE: lambda box: [max(box[0], box[1]), box[2] - max(box[0], box[1])],
    GeomType.CYLINDER: lambda box: [max(box[0], box[1]), box[2]],
    GeomType.ELLIPSOID: lambda box: list(box),
    GeomType.BOX: lambda box: list(box),
}


def mesh_shape(mesh: Mesh) -> MassProperties:
    """Mass properties and bounds of a mesh geom; its sizes are the half sizes of a box around the origin."""
    box = mesh.box

    def moments(size: Array) -> Array:
        return ((box**2).sum() - box**2) / 3

    return MassProperties(
        sizes=0,
        volume=lambda size: mesh.volume,
        solid=moments,
        area=lambda size: mesh.volume,
        shell=moments,
        radius=lambda size: sqrt(mesh.reach @ mesh.reach),
        half=lambda size: (mesh.high - mesh.low) / 2,
        center=lambda size: (mesh.high + mesh.low) / 2,
    )


def hfield_shape(field: Array) -> MassProperties:
    """Mass properties and bounds of a height field with hfield_size (4,); it weighs as much as a box."""
    x, y, top, base = field
    box = MASS_PROPERTIES[GeomType.BOX]
    return MassProperties(
        sizes=0,
        volume=box.volume,
        solid=box.solid,
        area=box.area,
        shell=box.shell,
        radius=lambda size: sqrt(x * x + y * y + max(top * top, base * base)),
        half=lambda size: np.array([x, y, (top + base) / 2]),
        center=lambda size: np.array([0.0, 0.0, (top - base) / 2]),
    )


# types that can be given by two points (fromto)
EXTENDED = (GeomType.CAPSULE, GeomType.CYLINDER, GeomType.ELLIPSOID, GeomType.BOX)


def orientation(draft: Draft, node: Node, e: Any = None) -> Array:
    """The unit quaternion of an element with quat, axisangle, xyaxes, zaxis or euler; notes an error in it."""
    e = e or node.e
    try:
        return orientation_of(e, draft.settings(node))
    except ValueError as error:
        draft.problems.add(node.source, str(error))
        return unit(e.quat)[0]


def shaped_pose(draft: Draft, node: Node, kind: GeomType) -> tuple[Array, Array, Array]:
    """Position, quaternion and sizes of a geom or site, in the frame of its body."""
    e = node.e
    size = np.array(e.size, float)
    size = np.append(size, np.zeros(3 - len(size)))
    if e.fromto is None:
        pos = np.array(e.pos, float)
        quat = orientation(draft, node)
    else:
        pos, quat, size = _from_to(draft, node, kind, size)
    return *compose(*node.frame, pos, quat), size


def _from_to(draft: Draft, node: Node, kind: GeomType, size: Array) -> tuple[Array, Array, Array]:
    """Center, orientation and sizes of a geom between two points."""
    first = node.e.fromto[:3]
    second = node.e.fromto[3:]
    axis, length = unit(first - second)
    if kind not in EXTENDED:
        draft.problems.add(node.source, "attribute 'fromto' needs a capsule, cylinder, box or ellipsoid")
    elif np.any(node.e.pos):
        draft.problems.add(node.source, "attributes 'pos' and 'fromto' cannot both be given")
    elif length < TINY:
        draft.problems.add(node.source, "attribute 'fromto': the points are too close")
    elif not np.isfinite(length):
        draft.problems.add(node.source, "attribute 'fromto': the points are too far apart")
        length = 0.0
    if kind in (GeomType.ELLIPSOID, GeomType.BOX):
        size = np.array([size[0], size[0], length / 2])
    else:
        size[1] = length / 2
    return (first + second) / 2, from_z_axis(axis) if length else np.array([1.0, 0, 0, 0]), size


def check_size(draft: Draft, node: Node, kind: GeomType, size: Array) -> None:
    """Notes sizes that are not positive, and replaces them by 1; of a plane only the third, the grid spacing."""
    needed = [2] if kind == GeomType.PLANE else range(MASS_PROPERTIES[kind].sizes)
    name = ("an " if kind == GeomType.ELLIPSOID else "a ") + kind.name.lower()
    count = MASS_PROPERTIES[kind].sizes
    for index in needed:
        if not size[index] > 0:
            hint = f"{name} has {count} size{'s' * (count > 1)}" if size[index] == 0 else ""
            draft.problems.add(node.source, f"attribute 'size': size {index + 1} of {name} must be positive", hint)
            size[index] = 1.0


def geom_rows(draft: Draft) -> None:
    """Rows of all geoms."""
    for node in draft.nodes["geom"]:
        kind = GeomType(node.e.type)
        form = _form(draft, node, kind)
        if form is not None:
            node.row = _geom_row(draft, node, kind, form)
    draft.problems.raise_if_any()
    # names of distance fields become indices, and all geoms get the same number of parameters
    rows = [node.row for node in draft.nodes["geom"]]
    names = sorted({row["geom_sdf"] for row in rows} - {""})
    most = max((len(row["geom_sdfparam"]) for row in rows), default=0)
    for row in rows:
        row["geom_sdf"] = names.index(row["geom_sdf"]) if row["geom_sdf"] else -1
        row["geom_sdfparam"] = np.append(row["geom_sdfparam"], np.zeros(most - len(row["geom_sdfparam"])))
    draft.fields.update(sdf_names=tuple(names), nsdfparam=most)


@dataclass(frozen=True)
class _Form:
    """Pose, size and shape of a geom.

    Attributes:
      pos, quat: pose in the frame of its body.
      size: (3,) m.
      shape: its mass properties and bounds.
      data: index of its mesh or height field, -1 if it has none.
      material: name of its material.
      field: the distance field of a geom of type sdf.
    """

    pos: Array
    quat: Array
    size: Array
    shape: MassProperties
    data: int
    material: str | None
    field: FieldUse = NO_FIELD


def _form(draft: Draft, node: Node, kind: GeomType) -> _Form | None:
    """The form of a geom; notes an error and returns None if its asset is missing."""
    e = node.e
    mesh, field = draft.find(node.source, "mesh", e.mesh), draft.find(node.source, "hfield", e.hfield)
    for needed, attribute in ((GeomType.MESH, "mesh"), (GeomType.SDF, "mesh"), (GeomType.HFIELD, "hfield")):
        if kind == needed and not getattr(e, attribute):
            draft.problems.add(node.source, f"a {kind.name.lower()} geom needs attribute '{attribute}'")
    if e.hfield and kind != GeomType.HFIELD:
        draft.problems.add(node.source, "attribute 'hfield' needs type 'hfield'")
    pos, quat, size = shaped_pose(draft, node, kind)
    if mesh is not None:
        form = _Form(pos, quat, size, MASS_PROPERTIES[GeomType.BOX], -1, e.material)
        return _mesh_form(draft, node, kind, mesh, form)
    if kind == GeomType.HFIELD and field is not None:
        x, y, top, base = field.e.size
        # as in MuJoCo, the field weighs as much as a box whose top is at half of the full elevation
        size = np.array([x, y, 0.25 * top + 0.5 * base])
        return _Form(pos, quat, size, hfield_shape(field.e.size), field.id, e.material)
    if kind not in MASS_PROPERTIES:
        return None
    check_size(draft, node, kind, size)
    return _Form(pos, quat, size, MASS_PROPERTIES[kind], -1, e.material)


def _mesh_form(draft: Draft, node: Node, kind: GeomType, asset: Node, form: _Form) -> _Form | None:
    """The form of a mesh geom or of a primitive that is fitted to a mesh."""
    mesh: Mesh = asset.row["mesh"]
    if node.e.fromto is not None:
        draft.problems.add(node.source, "attributes 'fromto' and 'mesh' cannot both be given")
    if kind in (GeomType.MESH, GeomType.SDF):
        size = mesh.reach
        center = np.zeros(3)
        shape = mesh_shape(mesh)
        if node.e.shellinertia:
            hint = 'give the mesh inertia="shell"'
            draft.problems.add(node.source, "attribute 'shellinertia' does not apply to a mesh geom", hint)
    elif kind in BY_INERTIA:
        by_bounds = draft.spec.compiler.fitaabb
        sizes = BY_BOUNDS[kind]((mesh.high - mesh.low) / 2) if by_bounds else BY_INERTIA[kind](mesh.box)
        size = np.concatenate([sizes, form.size[len(sizes) :]]) * node.e.fitscale
        center = (mesh.high + mesh.low) / 2 if by_bounds else np.zeros(3)
        shape = MASS_PROPERTIES[kind]
        check_size(draft, node, kind, size)
    else:
        draft.problems.add(node.source, f"a {kind.name.lower()} cannot be fitted to a mesh")
        return None
    pos, quat = compose(form.pos, form.quat, mesh.pos + rotate(mesh.quat, center), mesh.quat)
    field = _field(draft, node, mesh) if kind == GeomType.SDF else NO_FIELD
    return _Form(pos, quat, size, shape, asset.id, form.material or asset.e.material, field)


def _field(draft: Draft, node: Node, mesh: Mesh) -> FieldUse:
    """The distance field of a geom of type sdf: the field of its plugin, or by default the octree of its mesh."""
    try:
        field = field_of(draft, node) or SAMPLED
    except AssetError as error:
        draft.problems.add(node.source, str(error), error.hint)
        return NO_FIELD
    if field is SAMPLED and mesh.octree is None:
        message = f"mesh '{node.e.mesh}' is the surface of a plugin's field and has no octree"
        draft.problems.add(node.source, message, "give the geom the mesh's <plugin> too")
    return field


def _geom_row(draft: Draft, node: Node, kind: GeomType, form: _Form) -> dict:
    """The fields of a geom, and its "mass" (kg) and "inertia" (3,) kg m^2 for its body; notes errors."""
    e, body, size, shape = node.e, node.body, form.size, form.shape
    if kind == GeomType.PLANE and body is not None and moves(body):
        draft.problems.add(node.source, "a plane is only allowed on a body that does not move")
    if e.condim not in CONDIMS:
        draft.problems.add(node.source, f"attribute 'condim': must be 1, 3, 4 or 6, not {e.condim}")
    mass, inertia = _mass(draft, node, shape, size)
    fluid = fluid_coefficients(kind, size, e.fluidcoef) if e.fluidshape else np.zeros(12)
    return {
        "geom_type": kind,
        "geom_bodyid": body.id if body else 0,
        "geom_contype": e.contype,
        "geom_conaffinity": e.conaffinity,
        "geom_condim": e.condim,
        "geom_dataid": form.data,
        "geom_sdf": form.field.name,
        "geom_sdfparam": form.field.parameters,
        "geom_matid": draft.optional(node, "material", form.material),
        "geom_group": e.group,
        "geom_priority": e.priority,
        "geom_solmix": e.solmix,
        "geom_solref": e.solref,
        "geom_solimp": e.solimp,
        "geom_size": size,
        "geom_aabb": bounding_box(shape, size),
        "geom_rbound": shape.radius(size),
        "geom_pos": form.pos,
        "geom_quat": form.quat,
        "geom_friction": e.friction,
        "geom_margin": e.margin,
        "geom_gap": e.gap,
        "geom_fluid": fluid,
        "geom_surfacevel": e.surfacevel,
        "geom_rgba": e.rgba,
        "mass": mass,
        "inertia": inertia,
    }


def moves(body: Node) -> bool:
    """Whether the body or one of its ancestors has a joint."""
    return bool(body.under.get("joint")) or (body.parent is not None and moves(body.parent))


def _mass(draft: Draft, node: Node, shape: MassProperties, size: Array) -> tuple[float, Array]:
    """Mass (kg) and principal moments of inertia (kg m^2) about the center of the geom."""
    e = node.e
    volume, unit_inertia = (shape.area, shape.shell) if e.shellinertia else (shape.volume, shape.solid)
    amount = volume(size)
    mass = e.mass if e.mass is not None else e.density * amount
    if mass < 0 or e.density < 0:
        draft.problems.add(node.source, "mass and density cannot be negative")
    if mass == 0 or (e.mass is not None and amount < TINY):
        return 0.0, np.zeros(3)
    return float(mass), mass * unit_inertia(size)

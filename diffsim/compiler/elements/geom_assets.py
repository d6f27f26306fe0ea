"""Geoms that get their shape from an asset: meshes, height fields, and primitives fitted to a mesh.

A mesh geom stands where its mesh's inertial frame is. A fitted primitive takes its sizes from the box of equal inertia,
or with the compiler setting `fitaabb` from the bounding box, and keeps nothing else of the mesh but its place and its
number.
Source: MuJoCo "XML reference", geom, mesh and fitscale.
"""

from collections.abc import Callable
from math import sqrt

import numpy as np

from diffsim.base.enums import GeomType
from diffsim.compiler.assets.compiled_mesh import Mesh
from diffsim.compiler.draft import Draft, Node
from diffsim.compiler.elements.mass_properties import MASS_PROPERTIES, MassProperties
from diffsim.mjcf.orientation import rotate

Array = np.ndarray
Fit = Callable[[Array], list[float]]

# sizes from the half sizes of the box of equal inertia
BY_INERTIA: dict[GeomType, Fit] = {
    GeomType.SPHERE: lambda box: [box.sum() / 3],
    GeomType.CAPSULE: lambda box: [(box[0] + box[1]) / 2, max(0.0, box[2] - (box[0] + box[1]) / 4)],
    GeomType.CYLINDER: lambda box: [(box[0] + box[1]) / 2, box[2]],
    GeomType.ELLIPSOID: lambda box: list(box),
    GeomType.BOX: lambda box: list(box),
}

# sizes from the half sizes of the bounding box
BY_BOUNDS: dict[GeomType, Fit] = {
    GeomType.SPHERE: lambda box: [box.max()],
    GeomType.CAPSULE: lambda box: [max(box[0], box[1]), box[2] - max(box[0], box[1])],
    GeomType.CYLINDER: lambda box: [max(box[0], box[1]), box[2]],
    GeomType.ELLIPSOID: lambda box: list(box),
    GeomType.BOX: lambda box: list(box),
}

FITTED = BY_INERTIA.keys()


def fitted(draft: Draft, node: Node, kind: GeomType, mesh: Mesh, size: Array) -> tuple[Array, Array]:
    """Sizes of a primitive that stands for a mesh, and its center in the mesh's frame."""
    by_bounds = draft.spec.compiler.fitaabb
    table = BY_BOUNDS if by_bounds else BY_INERTIA
    found = table[kind]((mesh.high - mesh.low) / 2 if by_bounds else mesh.box)
    size = np.concatenate([found, size[len(found) :]]) * node.e.fitscale
    return size, (mesh.high + mesh.low) / 2 if by_bounds else np.zeros(3)


def mesh_place(mesh: Mesh, center: Array) -> tuple[Array, Array]:
    """Pose of a geom in the frame that its element gives: the mesh's, with its center moved."""
    return mesh.pos + rotate(mesh.quat, center), mesh.quat


def mesh_shape(mesh: Mesh) -> MassProperties:
    """What a mesh geom weighs and how far it reaches; its sizes are the half sizes of a box around the origin."""
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


def hfield_size(field: Array) -> Array:
    """Sizes of a height field's geom."""
    return np.array([field[0], field[1], 0.25 * field[2] + 0.5 * field[3]])


def hfield_shape(field: Array) -> MassProperties:
    """What a height field's geom weighs and how far it reaches, given hfield_size; it weighs as a box does."""
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

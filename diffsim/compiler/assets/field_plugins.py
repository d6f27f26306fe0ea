"""Distance fields from `<plugin>`: the function and its parameters, and the surface of the field as a mesh.

A mesh with such a plugin is the surface of its field, sampled on a grid. The numbers of grid points along its three
sides add up to about 300. A geom of type sdf has the same plugin and collides with the field itself; without a plugin
it collides with the octree of its mesh. A plugin that is not one of MuJoCo's is a function of the user, set on the
model (`Hooks.sdf`). The compiler only knows its parameters, in their order, and cannot make its surface.

The surface is found by marching cubes, as in MuJoCo. A cube of the grid has 8 corners and 12 edges. For each of the 256
sets of corners inside the surface, `TRIANGLES` lists the edges that its triangles join. Corner (x, y, z) has the number
x + 2 y + 4 z. Edges along x come first, then edges along y, then along z; within an axis they are numbered by the other
two coordinates of their first corner, the lower axis fastest. Vertices are numbered in the order in which the cubes
first reach them; cubes are visited with x fastest.
Source: MuJoCo "XML reference", extension; `mjCMesh::LoadSDF` of user_mesh.cc (3.8.1). Lorensen and Cline 1987;
MarchingCubeCpp (public domain) for the table and for the order.
"""

import json
from collections.abc import Mapping
from typing import NamedTuple

import jax
import numpy as np

from diffsim.base.errors import near_match
from diffsim.compiler.draft import Draft, Node
from diffsim.compiler.host.interpret import interpret
from diffsim.geometry.sdf.data import OCTREE
from diffsim.geometry.sdf.functions import FUNCTIONS, FieldFunction
from diffsim.mjcf.elements.deformable import MUJOCO, Plugin
from diffsim.mjcf.files.surface import Surface, unit_or_up
from diffsim.mjcf.resources import AssetError

Array = np.ndarray

# the numbers of grid points along the three sides add up to about this, as in MuJoCo
POINTS = 300


class FieldUse(NamedTuple):
    """A distance field: the name of its plugin (empty if there is no field) and its parameters (k,)."""

    name: str
    parameters: np.ndarray

    @property
    def function(self) -> FieldFunction:
        """The function of the plugin.

        Raises:
          AssetError: it is a function of the user.
        """
        if self.name not in FUNCTIONS:
            hint = "give the mesh a file, vertices or a builtin shape, and the plugin only to the geom"
            raise AssetError(
                f"plugin '{self.name}' is a function of the user, so the compiler cannot make its surface", hint
            )
        return FUNCTIONS[self.name]


# a geom or mesh without a field
NO_FIELD = FieldUse("", np.zeros(0))
# the field sampled in the octree of a mesh
SAMPLED = FieldUse(OCTREE, np.zeros(0))


def field_of(draft: Draft, node: Node) -> FieldUse | None:
    """The field that `<plugin>` gives to a geom or mesh; None if it has no plugin.

    Raises:
      AssetError: diffsim does not have this plugin of MuJoCo, or a parameter is unknown or not a number.
    """
    plugin = node.e.first(Plugin)
    if plugin is None:
        return None
    number = draft.instance_of[id(plugin)]
    name, settings = json.loads(draft.fields["plugins"][number])
    if name in FUNCTIONS:
        return FieldUse(name, field_parameters(name, settings))
    if name.startswith(MUJOCO):
        hint = near_match(name, FUNCTIONS, listed=8)
        raise AssetError(f"plugin '{name}' is not a distance field that diffsim supports", hint)
    if name in draft.plugins:
        first, count = (draft.fields[f"plugin_number{end}"][number] for end in ("adr", "num"))
        return FieldUse(name, draft.fields["plugin_number"][first : first + count])
    return FieldUse(name, np.array([_number(*setting) for setting in settings.items()]))


def field_parameters(name: str, settings: Mapping[str, str]) -> np.ndarray:
    """The parameters of one of MuJoCo's fields, as its settings give them.

    Raises:
      AssetError: a setting is unknown or not a number.
    """
    function = FUNCTIONS[name]
    parameters = np.array(function.defaults)
    for key, value in settings.items():
        if key not in function.names:
            hint = near_match(key, function.names, listed=8)
            raise AssetError(f"plugin '{name}' has no setting '{key}'", hint)
        parameters[function.names.index(key)] = _number(key, value)
    return parameters


def _number(key: str, text: str) -> float:
    """A setting as a number. Raises AssetError if it is not a finite number."""
    try:
        value = float(text)
    except ValueError:
        value = np.nan
    if not np.isfinite(value):
        raise AssetError(f"setting '{key}' of the plugin must be a number, not '{text}'")
    return value


def field_surface(field: FieldUse) -> Surface:
    """The surface of a field. Raises AssetError if the field has no surface on the grid."""
    with jax.enable_x64(True):
        half = np.array(interpret(field.function.half_sides, field.parameters), float)
        sizes = np.floor(POINTS / half.sum() * half) + 1 if (half > 0).all() else np.zeros(3)
        if not (sizes >= 2).all():
            raise AssetError(f"a field with half sides {half.tolist()} m has no surface on a grid")
        sides = [-h + 2 * h * np.arange(n) / (n - 1) for h, n in zip(half, sizes, strict=True)]
        grid = np.stack(np.meshgrid(*sides, indexing="ij"), axis=-1)
        values = interpret(field.function.distance, field.parameters, grid)
    surface = _marching_cubes(values, -half, half)
    if not len(surface.face):
        raise AssetError(f"a field with parameters {field.parameters.tolist()} has no surface")
    return surface


# for each of the 256 sets of corners inside: three edges (hexadecimal digits) for each triangle; "-" if there are none
TABLE = """
- 048 509 495489 1a4 1801a8 1a4950 51a5a99a8 b15 5b1804 0b109b 14818bb89 a5ba45 05b0b88ba 40949aa9b 8ba89b 286
062046 950628 295256654 41a286 a62a21120 0958621a4 61a621251295 28615b 604620b15 b09b10628 46162916919b
5a45ba286 2a625a5ba052 286a9ba49409 2a629a9ba 927 048792 250275 827874475 1a4279 1801a8792 250275a41
827871175a81 b15279 0485b1279 7b1712210 48242112717b a5ba45279 7928ba80b05b ba7a407a0702 7827b8ba8 879867
904947746 086065567 467475 7867981a4 79661a916901 a41567506086 a51a65675 87986715b 15b746794904 08606bb6710b
17b147467 4ba45b698679 670ba0a605b0790 ba06707b0860a40 67b6ba 36a a36048 36a095 94895436a 341364 680603301
341364950 958836538513 36a5b1 15b48036a 0b109b6a3 6a3b89b18148 b36b65564 8368030b305b 6b360b09b406 6b368b89b
2a328a 4a3430032 a28a32509 34a394954293 841812213 013032 509213281841 529512132 2a328a5b1 b150320434a3
38a32819b109 9b4324294a34b14 5b4428b24b32 b05b30320 3249b4b34094284 32939b 792a36 2796a3048 527502a36
36a475487827 436413927 927301360680 164136075027 138758518278368 36a79215b 0486a379215b a362102717b1
36ab17127142482 2795645b6b36 2798060360535b3 02b64b40b36b27b 6838b387b827 37939aa98 a04a30390379 8a0a370a7075
34a374754 184178798371 937903013 758138378418508 137175 5b1a98a39379 15ba34304370790 8a7107087b17a37
37a74a7147b1 4539838437935b3 9070370b305b 08437b 7b3 73b 0483b7 5093b7 4954893b7 b7341a 81a80173b 1a4b73095
3b79a895a51a 173157 715731804 973930031 148187789317 3a4347745 80aa7307a057 a40a03309397 3973a9a89 286b73
062046b73 2869503b7 b73654625295 3b7a41286 73b1201a2a62 1a48629503b7 3b762a21a291951 173157862 246204357315
628031093973 469319149739629 8627457343a4 57a20a05a62a73a 2867393093a0a40 2969a693a973 3923b9 3923b9480
b50b03302 54b482b42b23 93b92341a 0a801a2b923b 41a3023b0b50 235a858251a53b5 592521123 804123152592 031023
814821231 3a4349945239 a852353a5925805 43a403023 23a2a8 63b6b88b9 63b6b00b9460 86383003b0b5 b63b56546
1a48b986b63b 016b969063b61a6 1a450b03b083863 a616516b563b 985863583531 319469639049159 608630310 314346
983453593a43863 3a6059 6383083403a4 3a6 6b76ab b6ab76048 6b76ab095 854895a76ab7 1b7174476 0680b6b761b0
9504764171b7 891761681b71951 a15a56657 0486576a5a15 7696a1961910 7618919714816a1 476457 068056576 940974764
897876 72878bb8a b7aa0470a720 095b8ab78728 ab25424a2952b72 4284121721b7 71b721201 0954181281b2b72 5191291721b7
872817157a18 20a57a72a15a04a 1078a7a17287097 14a297 872847457 205257 842472497409 972 26a2a99ab 4809ab92a26a
26a2a55ab025 542ab2b526a2482 4166921961b9 b960161b6806926 64b02b26b50b41b 2681b5 6a1612215259 0489252152616a1
a26a12102 a16126182148 259265645 058568526592 026064 268 8ab8b9 4904a9ab9 0b508b8ab ab5a54 1841b8b98 01b0b9
1b4b84b08b50 b51 5a159a98a 4a0a90a59a15 10818a 14a 459498 590 084 -
"""
TRIANGLES = TABLE.split()

# (x, y, z) of the first corner of each edge of a cube, by the axis of the edge
STARTS = np.array(
    [
        [(0, 0, 0), (0, 1, 0), (0, 0, 1), (0, 1, 1)],
        [(0, 0, 0), (1, 0, 0), (0, 0, 1), (1, 0, 1)],
        [(0, 0, 0), (1, 0, 0), (0, 1, 0), (1, 1, 0)],
    ]
)


def _marching_cubes(values: Array, low: Array, high: Array) -> Surface:
    """The zero surface of values on a grid; negative values are inside.

    Args:
      values: (nx, ny, nz) at the grid points; at least two along each axis.
      low, high: (3,) m, the first and the last grid point.

    Returns:
      The surface in float32, with area-weighted mean normals.
    """
    values = values.astype(np.float32)
    # for each cube, 8 bits that say which of its corners are inside; then the cubes that the surface crosses: those
    # with corners on both sides (neither 0 nor 255), with x fastest
    inside = (values < 0).astype(np.uint8)
    corners = np.zeros([size - 1 for size in values.shape], np.uint8)
    for corner in range(8):
        x, y, z = (slice(bit, bit - 1 or None) for bit in ((corner >> axis) & 1 for axis in range(3)))
        corners |= inside[x, y, z] << corner
    cubes = np.stack(np.nonzero((corners.T != 0) & (corners.T != 255))[::-1], axis=1)
    edge, vertex, key = map(np.concatenate, zip(*(_crossed_edges(values, axis) for axis in range(3)), strict=True))
    order = np.argsort(key)
    # the vertex on each edge of the grid, by the axis and the first corner of the edge
    number = np.full((3, *values.shape), -1)
    number[tuple(edge[order].T)] = np.arange(len(edge))
    vertex = vertex[order].astype(float)
    face = _triangles(cubes, corners[tuple(cubes.T)], number)
    # the sum of the triangles' normals at each vertex, weighted by area
    a, b, c = (vertex[face[:, corner]] for corner in range(3))
    normal = np.zeros_like(vertex)
    for corner in range(3):
        np.add.at(normal, face[:, corner], np.cross(c - b, a - b))
    # from grid units to metres, in MuJoCo's order of operations
    place = 2 * ((high - low) / 2) * vertex / (np.array(values.shape) - 1) + low
    return Surface(place.astype(np.float32), face, unit_or_up(normal).astype(np.float32))


def _crossed_edges(values: Array, axis: int) -> tuple[Array, Array, Array]:
    """The edges of the grid along an axis that the surface crosses.

    Returns:
      The axis and the first corner of each edge (k, 4); the vertex on it (k, 3), in grid units, by linear
      interpolation; and a number (k,) that increases in the order in which the cubes reach the edges.
    """
    ahead = np.roll(values, -1, axis)
    crossed = (values < 0) != (ahead < 0)
    np.moveaxis(crossed, axis, 0)[-1] = False
    place = np.stack(np.nonzero(crossed), axis=1)
    start, end = values[crossed], ahead[crossed]
    vertex = place.astype(np.float32)
    vertex[:, axis] += start / (start - end)
    edge = np.concatenate([np.full((len(place), 1), axis), place], axis=1)
    # Up to four cubes share an edge. The first of them has the lowest index along both other axes: one less than the
    # edge, except at the border of the grid. In it the edge has the number 4 axis + behind[0] + 2 behind[1] (`STARTS`).
    others = [other for other in range(3) if other != axis]
    behind = np.minimum(place[:, others], 1)
    cube = place.copy()
    cube[:, others] -= behind
    nx, ny, _ = values.shape
    return edge, vertex, ((cube[:, 2] * ny + cube[:, 1]) * nx + cube[:, 0]) * 12 + 4 * axis + behind @ [1, 2]


def _triangles(cubes: Array, corners: Array, number: Array) -> Array:
    """(k, 3) the triangles of all cubes, in the order of cubes and of the table."""
    length = np.array([0 if row == "-" else len(row) for row in TRIANGLES])
    table = np.zeros((256, length.max()), int)
    for row, edges in enumerate(TRIANGLES):
        table[row, : length[row]] = [int(edge, 16) for edge in edges] if length[row] else []
    starts = STARTS.reshape(12, 3)
    edge = table[corners]
    place = cubes[:, None] + starts[edge]
    rows = number[edge // 4, place[..., 0], place[..., 1], place[..., 2]]
    return rows[np.arange(table.shape[1]) < length[corners][:, None]].reshape(-1, 3).astype(np.int32)

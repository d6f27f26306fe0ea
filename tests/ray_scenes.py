"""Scenes with geoms of every type, bumpy meshes and rough height fields, and rays that mostly aim at them."""

import functools
from typing import Any, NamedTuple

import numpy as np
from oracle import load_pair, sample

from diffsim.types import Model

Array = np.ndarray

# geoms in bodies of their own, by type; height fields and planes stand still
GEOMS = {
    "plane": ("type='plane' size='2 3 .1'",),
    "sphere": ("type='sphere' size='.4'",),
    "capsule": ("type='capsule' size='.2 .4'",),
    "ellipsoid": ("type='ellipsoid' size='.2 .4 .6'",),
    "cylinder": ("type='cylinder' size='.3 .4'",),
    "box": ("type='box' size='.2 .4 .3'",),
    "mesh": tuple(f"type='mesh' mesh='{name}'" for name in ("ball", "coarse", "block")),
    "hfield": tuple(f"type='hfield' hfield='{name}'" for name in ("rough", "few")),
}
FIXED = ("plane", "hfield")


class Scene(NamedTuple):
    """A model in both engines, posed, and rays (k, 3)."""

    model: Model
    mjmodel: Any
    mjdata: Any
    origin: Array
    direction: Array

    @property
    def xmat(self) -> Array:
        """(ngeom, 3, 3)"""
        return self.mjdata.geom_xmat.reshape(-1, 3, 3)


def ball(rings: int, height: float = 0.1) -> tuple[Array, Array]:
    """Vertices and triangles of a bumpy ball of about 4 rings^2 triangles."""
    count = 2 * rings
    polar = np.linspace(0, np.pi, rings + 1)[1:-1, None]
    azimuth = 2 * np.pi * np.arange(count)[None] / count
    radius = 0.5 * (1 + height * np.sin(7 * polar) * np.cos(5 * azimuth))
    flat = np.broadcast_arrays(np.sin(polar) * np.cos(azimuth), np.sin(polar) * np.sin(azimuth), np.cos(polar))
    vertex = np.concatenate([(np.stack(flat, -1) * radius[..., None]).reshape(-1, 3), [[0, 0, 0.5], [0, 0, -0.5]]])
    ring, after = np.arange(count), (np.arange(count) + 1) % count
    faces = [np.stack([0 * ring + len(vertex) - 2, ring, after], -1)]
    for first in range(0, (rings - 2) * count, count):
        below = first + count
        faces += [np.stack([first + ring, below + ring, below + after], -1)]
        faces += [np.stack([first + ring, below + after, first + after], -1)]
    last = (rings - 2) * count
    faces += [np.stack([0 * ring + len(vertex) - 1, last + after, last + ring], -1)]
    return vertex, np.concatenate(faces)


def numbers(values: Array) -> str:
    """As in MJCF."""
    return " ".join(f"{value:.6g}" for value in np.ravel(values))


def mesh(name: str, vertex: Array, face: Array) -> str:
    """A <mesh>."""
    return f"<mesh name='{name}' vertex='{numbers(vertex)}' face='{' '.join(map(str, face.ravel()))}'/>"


def field(name: str, nrow: int, ncol: int, size: str) -> str:
    """A rough <hfield>."""
    heights = np.random.default_rng(nrow).uniform(size=nrow * ncol)
    return f"<hfield name='{name}' nrow='{nrow}' ncol='{ncol}' size='{size}' elevation='{numbers(heights)}'/>"


@functools.cache
def assets(rings: int = 12) -> str:
    """Three meshes, the finest of about 4 rings^2 triangles, and two height fields."""
    corners = np.stack(np.meshgrid([-0.2, 0.3], [-0.1, 0.4], [-0.3, 0.2]), -1).reshape(-1, 3)
    block = f"<mesh name='block' vertex='{numbers(corners)}'/>"
    fields = field("rough", 13, 22, ".8 .5 .3 .1"), field("few", 2, 3, ".5 .4 .6 .2")
    return "".join([mesh("ball", *ball(rings)), mesh("coarse", *ball(4)), block, *fields])


def xml(kinds: tuple[str, ...], rings: int = 12, in_world: str = "", after: str = "") -> str:
    """A model with the geoms of some types, spread over a few metres."""
    rng = np.random.default_rng(len(kinds))
    bodies = []
    for kind in kinds:
        for geom in GEOMS[kind]:
            place = numbers(rng.normal(size=3) * 0.4 * len(kinds) ** 0.5)
            turn = numbers(rng.normal(size=3) * 40)
            joint = "" if kind in FIXED else "<freejoint/>"
            bodies.append(
                f"<body pos='{place}' euler='{turn}'>{joint}<geom contype='0' conaffinity='0' {geom}/></body>"
            )
    return f"<mujoco><asset>{assets(rings)}</asset><worldbody>{in_world}{''.join(bodies)}</worldbody>{after}</mujoco>"


def scene(kinds: tuple[str, ...], count: int, seed: int, rings: int = 12) -> Scene:
    """Rays from everywhere, also from inside, a third of them far away, that mostly aim at a geom."""
    model, mjmodel = load_pair(xml(kinds, rings))
    mjdata = sample(mjmodel, seed)
    rng = np.random.default_rng(seed)
    origin = rng.normal(size=(count, 3)) * rng.choice([0.5, 1.5, 10], size=(count, 1))
    aim = mjdata.geom_xpos[rng.integers(0, mjmodel.ngeom, count)] + 0.2 * rng.normal(size=(count, 3))
    along = aim - origin
    # some along the axes, where boxes and cells have no slope
    axis = rng.uniform(size=count) < 0.1
    along[axis] = np.eye(3)[rng.integers(0, 3, axis.sum())] * rng.choice([-1, 1], size=(axis.sum(), 1))
    origin[axis] = aim[axis] - along[axis]
    return Scene(model, mjmodel, mjdata, origin, along)

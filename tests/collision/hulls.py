"""Hulls of few vertices, scenes of some of them in the air, poses, and the depth of two hulls by all facets."""

from typing import Any

import numpy as np
import oracle
from scipy.spatial import ConvexHull
from scipy.spatial.transform import Rotation

BOX = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])


def cloud(count: int, seed: int) -> np.ndarray:
    """Points on a stretched sphere: all are vertices of the hull."""
    points = np.random.default_rng(seed).normal(size=(count, 3))
    return 0.2 * points / np.linalg.norm(points, axis=1, keepdims=True) * np.array([1, 0.7, 0.5])


def column(count: int, radius: float, half: float) -> np.ndarray:
    """The vertices of an upright prism with a regular base."""
    angle = 2 * np.pi * np.arange(count) / count
    base = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    return np.concatenate([np.c_[base, np.full(count, z)] for z in (-half, half)])


MESHES = {
    "stone": cloud(20, 1),
    "pebble": cloud(18, 2),
    "gravel": cloud(22, 3),
    "block": BOX * [0.1, 0.15, 0.2],
    "brick": BOX * [0.2, 0.1, 0.06],
    "nut": column(6, 0.15, 0.1),
    "wedge": np.array([[0, 0, 0], [0.3, 0, 0], [0, 0.3, 0], [0, 0, 0.3], [0.1, 0.1, 0.3]]),
}
GEOMS = {
    "ball": "type='sphere' size='.1'",
    "rod": "type='capsule' size='.06 .15'",
    "crate": "type='box' size='.1 .13 .17'",
    **{name: f"type='mesh' mesh='{name}'" for name in MESHES},
}
KINDS = [
    ("ball", "stone"),
    ("rod", "stone"),
    ("crate", "block"),
    ("crate", "nut"),
    ("block", "nut"),
    ("stone", "pebble"),
]
# how far up the flat top of each is, and the flat bottom down
TOPS = {"crate": 0.17, "block": 0.2, "nut": 0.1}


def free_scene(*names: str) -> str:
    """A model of free bodies with one geom each."""
    used = sorted(set(names) & set(MESHES))
    meshes = "".join(f"<mesh name='{n}' vertex='{' '.join(map(str, MESHES[n].ravel()))}'/>" for n in used)
    bodies = "".join(f"<body><freejoint/><geom {GEOMS[name]}/></body>" for name in names)
    return f"<mujoco><asset>{meshes}</asset><worldbody>{bodies}</worldbody></mujoco>"


def random_states(mjmodel: Any, count: int, seed: int = 0) -> list:
    """Two bodies deep in each other, touching and apart."""
    rng = np.random.default_rng(seed)
    states = []
    for k in range(count):
        poses = [np.concatenate([(0.02, 0.1, 0.2, 0.3)[k % 4] * rng.normal(size=3), rng.normal(size=4)]) for _ in "ab"]
        states.append(oracle.posed(mjmodel, np.concatenate(poses)))
    return states


def flat_states(mjmodel: Any, kinds: tuple[str, str], count: int, seed: int = 0) -> list:
    """One body on top of the other, turned, shifted and tilted a little, the whole in any orientation."""
    rng = np.random.default_rng(seed)
    if not set(kinds) <= set(TOPS):
        return random_states(mjmodel, count, seed)
    states = []
    for k in range(count):
        height = TOPS[kinds[0]] + TOPS[kinds[1]] - (0.001, 0.01)[k % 2]
        shift = np.array([*rng.uniform(-0.1, 0.1, size=2), height])
        turn = Rotation.from_euler("z", rng.uniform(0, 2 * np.pi))
        tilt = Rotation.from_rotvec((0, 1e-4)[k // 2 % 2] * rng.normal(size=3))
        whole = Rotation.from_quat(rng.normal(size=4))
        first, second = whole.as_quat()[[3, 0, 1, 2]], (whole * tilt * turn).as_quat()[[3, 0, 1, 2]]
        states.append(oracle.posed(mjmodel, np.concatenate([np.zeros(3), first, whole.apply(shift), second])))
    return states


def vertices_of(mjmodel: Any, data: Any, geom: int) -> np.ndarray:
    """The corners (n, 3) of a box or mesh geom in the world."""
    mesh = mjmodel.geom_dataid[geom]
    local = BOX * mjmodel.geom_size[geom]
    if mesh >= 0:
        local = mjmodel.mesh_vert[mjmodel.mesh_vertadr[mesh] :][: mjmodel.mesh_vertnum[mesh]]
    return local @ data.geom_xmat[geom].reshape(3, 3).T + data.geom_xpos[geom]


def depth_by_all_facets(first: np.ndarray, second: np.ndarray) -> float:
    """How deep two hulls are in each other: the least distance of the origin from the facets of their difference."""
    hull = ConvexHull((second[:, None] - first[None]).reshape(-1, 3))
    return float(np.min(-hull.equations[:, 3]))

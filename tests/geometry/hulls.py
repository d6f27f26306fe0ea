"""Hulls of few vertices, scenes of some of them in the air, poses, and the distance of two hulls by all facets."""

from typing import Any

import numpy as np
import oracle
from scipy.spatial import ConvexHull
from scipy.spatial.transform import Rotation

BOX = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])


def cloud(count: int, seed: int = 0) -> np.ndarray:
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
    "egg": "type='ellipsoid' size='.1 .15 .2'",
    "can": "type='cylinder' size='.12 .16'",
    **{name: f"type='mesh' mesh='{name}'" for name in MESHES},
}
KINDS = [
    ("ball", "stone"),
    ("rod", "stone"),
    ("crate", "block"),
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


def core_of(mjmodel: Any, data: Any, geom: int) -> tuple[np.ndarray, float]:
    """The corners (n, 3) in the world of a geom without its rounding, and the radius of that."""
    mesh, kind, size = mjmodel.geom_dataid[geom], mjmodel.geom_type[geom], mjmodel.geom_size[geom]
    local, radius = BOX * size, 0.0
    if mesh >= 0:
        local = mjmodel.mesh_vert[mjmodel.mesh_vertadr[mesh] :][: mjmodel.mesh_vertnum[mesh]]
    elif kind == oracle.mujoco.mjtGeom.mjGEOM_SPHERE:
        local, radius = np.zeros((1, 3)), size[0]
    elif kind == oracle.mujoco.mjtGeom.mjGEOM_CAPSULE:
        local, radius = np.array([[0, 0, -1], [0, 0, 1]]) * size[1], size[0]
    return local @ data.geom_xmat[geom].reshape(3, 3).T + data.geom_xpos[geom], radius


def separation_by_all_facets(first: np.ndarray, second: np.ndarray) -> tuple[float, np.ndarray]:
    """Signed distance of two hulls and the normal from the first to the second, by all facets of their difference."""
    difference = (second[:, None] - first[None]).reshape(-1, 3)
    hull = ConvexHull(difference)
    heights = hull.equations[:, 3]
    if np.max(heights) <= 0:
        deepest = np.argmax(heights)
        return float(heights[deepest]), -hull.equations[deepest, :3]
    nearest = min((nearest_of_triangle(*difference[corners]) for corners in hull.simplices), key=np.linalg.norm)
    return float(np.linalg.norm(nearest)), nearest / np.linalg.norm(nearest)


def nearest_of_triangle(*corners: np.ndarray) -> np.ndarray:
    """The point of a triangle that is nearest to the origin: of its plane if that is inside, or of an edge."""
    a, b, c = corners
    edges = np.stack([b - a, c - a], axis=1)
    weights = np.linalg.lstsq(edges, -a, rcond=None)[0]
    if np.all(weights >= 0) and np.sum(weights) <= 1:
        return a + edges @ weights
    ends = ((a, b), (b, c), (c, a))
    return min((p + np.clip(-p @ (q - p) / ((q - p) @ (q - p)), 0, 1) * (q - p) for p, q in ends), key=np.linalg.norm)

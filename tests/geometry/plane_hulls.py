"""Random hulls over a plane: models of several, states in which they touch it, and how far our step is from C MuJoCo.

A plane touches a hull in its lowest vertex and in the first neighbours of this vertex that are low enough, so that the
contacts depend on the order of the graph of the hull.
"""

from typing import Any, NamedTuple

import jax
import numpy as np
import oracle
from scipy.spatial import ConvexHull
from scipy.spatial.transform import Rotation
from uncompiled import uncompiled

import diffsim

# the solver of both runs until rounding stops it
EXACT = {"tolerance": 1e-15, "iterations": 100, "ls_iterations": 100}
OPTION = " ".join(f'{name}="{value}"' for name, value in EXACT.items())
# m, how deep the lowest vertex is
DEPTHS = (-0.001, 0.0005, 0.004, 0.03)


class Comparison(NamedTuple):
    """How our contacts and accelerations differ from the oracle's.

    Attributes:
      hulls, states, contacts: numbers of what was compared.
      other: states with another contact: number, pair, or place, depth or normal off by over 1e-9.
      qacc: the largest error of an acceleration, relative to the largest acceleration of the state.
    """

    hulls: int
    states: int
    contacts: int
    other: int
    qacc: float


def random_vertices(rng: np.random.Generator) -> np.ndarray:
    """4 to 60 points (n, 3) m: in a ball, or on a stretched one."""
    count = int(rng.integers(4, 61))
    points = rng.normal(size=(count, 3))
    if rng.integers(2):
        points /= np.linalg.norm(points, axis=1, keepdims=True)
    # MuJoCo keeps vertices in float32
    return (0.1 * points * rng.uniform(0.4, 1.5, 3)).astype(np.float32).astype(float)


def scene(hulls: list[np.ndarray]) -> str:
    """Free hulls that touch a plane and not each other."""
    meshes = "".join(
        f"<mesh name='m{k}' vertex='{' '.join(map(repr, h.ravel().tolist()))}'/>" for k, h in enumerate(hulls)
    )
    body = "<body><freejoint/><geom type='mesh' mesh='m{}' contype='0' conaffinity='1'/></body>"
    bodies = "".join(body.format(k) for k in range(len(hulls)))
    return f"""<mujoco><option {OPTION}/><asset>{meshes}</asset><worldbody>
      <geom type='plane' size='1 1 1' contype='1' conaffinity='0'/>{bodies}</worldbody></mujoco>"""


def touching_states(mjmodel: Any, count: int, rng: np.random.Generator) -> list:
    """States with each hull in any orientation, or on one of its sides, its lowest vertex below the plane, moving."""
    states = []
    for _ in range(count):
        data = oracle.mujoco.MjData(mjmodel)
        for body in range(1, mjmodel.nbody):
            mesh = mjmodel.geom_dataid[mjmodel.body_geomadr[body]]
            vertex = mjmodel.mesh_vert[mjmodel.mesh_vertadr[mesh] :][: mjmodel.mesh_vertnum[mesh]]
            turn = Rotation.from_quat(rng.normal(size=4))
            if rng.integers(2):
                # a side points down, but for a small tilt
                sides = ConvexHull(vertex).equations[:, :3]
                side = sides[rng.integers(len(sides))]
                turn = Rotation.align_vectors([[0, 0, -1]], [side])[0]
                turn = Rotation.from_rotvec(rng.choice([0, 1e-3, 0.05]) * rng.normal(size=3)) * turn
            height = -(turn.apply(vertex)[:, 2].min()) - rng.choice(DEPTHS)
            address = 7 * (body - 1)
            data.qpos[address : address + 7] = [*rng.normal(size=2), height, *turn.as_quat()[[3, 0, 1, 2]]]
        data.qvel[:] = rng.choice([0, 1]) * rng.normal(size=mjmodel.nv)
        oracle.mujoco.mj_forward(mjmodel, data)
        states.append(data)
    return states


def compare(count: int, states: int, seed: int, together: int = 10) -> Comparison:
    """Compares contacts and accelerations of random hulls, some in one model, in random states (float64)."""
    rng = np.random.default_rng(seed)
    contacts, other, worst = 0, 0, 0.0
    for start in range(0, count, together):
        text = scene([random_vertices(rng) for _ in range(min(together, count - start))])
        model, mjmodel = diffsim.load(text, max_contacts=4 * together), oracle.load_with_assets(text, {})
        theirs = touching_states(mjmodel, states, rng)
        batch = jax.tree.map(lambda *leaves: np.stack(leaves), *map(oracle.state_of, theirs))
        ours = uncompiled(jax.vmap(diffsim.forward, in_axes=(None, 0)))(model, batch)
        for k, data in enumerate(theirs):
            contacts += data.ncon
            try:
                oracle.assert_same_contacts(jax.tree.map(lambda leaf, k=k: leaf[k], ours.contact), data, 1e-9)
            except AssertionError:
                other += 1
            worst = max(worst, float(np.max(np.abs(ours.qacc[k] - data.qacc)) / np.max(np.abs(data.qacc))))
    return Comparison(count, states * -(-count // together), contacts, other, worst)

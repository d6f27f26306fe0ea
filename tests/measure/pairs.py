"""Random poses of every pair of geom types beside MuJoCo; one line of counts for each pair.

python -m tests.measure.pairs --poses 2000 --seed 0 --only stone --numpy

With --numpy the traced program is run by numpy: sooner, for compiling is most of what this costs.

Poses: deep in each other, touching, grazing (a tenth of a millimetre in or out), apart, and aligned in quarter turns.
Counted are poses where one finds contacts and the other none; deepest distances that differ by more than 1e-6, where
ours is the smaller one (`below`) or the larger one (`above`); normals that differ by more than 1e-3 where the distances
agree; and poses with other numbers of contacts. A distance is the greatest gap of all directions, so that the gap along
MuJoCo's normal says who is right: fails if it is greater than our distance by more than 1e-5 (`wrong`), or if existence
differs where the distance is more than 1e-6. On a height field, whose prisms are many, poses of round bodies where the
deepest distances differ by more than 1e-5 are judged by the greatest gap of each prism among many directions.

Differences that are meant:
- A box or mesh on a height field: MuJoCo 3.8.1 gives the corners of its prisms no numbers, takes two corners of the
  difference for one, and stops with too small a depth and another normal. Here it has a margin of 1e-9, which switches
  that comparison off: it then finds what we find (test_terrain.py).
- A round body deep in another: MuJoCo stops at a tolerance of 1e-6 or after 35 steps, up to 2e-4 short of the depth.
- Flat on flat: of more than four points we keep the four that span the greatest area; MuJoCo's often span less. It
  clips only where the margin is zero, we always.
- A capsule along a flat side: both have its ends; the third point is the middle of these, in MuJoCo near the middle.
- Boxes aligned in quarter turns: edges lie over edges, and rounding decides which of their points are one.
- A cylinder on a flat side: five points from tilting both bodies; which come first, and which count as new, may differ.
"""

import argparse
import itertools
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import oracle
from geometry.hulls import GEOMS, MESHES
from geometry.test_round_hulls import greatest_gap
from scipy.spatial.transform import Rotation
from uncompiled import uncompiled

from diffsim.collision import collide
from diffsim.compiler.convert import from_mujoco
from diffsim.types.data import Kinematics

NAMES = ("ball", "rod", "egg", "can", "crate", "stone")
FIXED = {"floor": "type='plane' size='1 1 1'", "hills": "type='hfield' hfield='h'"}
PAIRS = (*itertools.product(FIXED, NAMES), *itertools.combinations_with_replacement(NAMES, 2))
BATCH = 250
CLOSE, TURNED = 1e-6, 1e-3
ROUND = (oracle.mujoco.mjtGeom.mjGEOM_ELLIPSOID, oracle.mujoco.mjtGeom.mjGEOM_CYLINDER)


def scene(first: str, second: str) -> Any:
    """Two free bodies, or one on a floor or hills."""
    names = [name for name in (first, second) if name not in FIXED]
    vertices = {name: " ".join(map(str, MESHES[name].ravel())) for name in names if name in MESHES}
    meshes = "".join(f"<mesh name='{name}' vertex='{numbers}'/>" for name, numbers in vertices.items())
    heights = " ".join(map(str, np.random.default_rng(0).uniform(size=60).round(3)))
    meshes += f"<hfield name='h' nrow='6' ncol='10' size='1 .7 .2 .1' elevation='{heights}'/>"
    margin = "margin='1e-9'" if first == "hills" and second in ("crate", "stone") else ""
    fixed = "".join(f"<geom {FIXED[name]} {margin}/>" for name in (first, second) if name in FIXED)
    bodies = "".join(f"<body><freejoint/><geom {GEOMS[name]}/></body>" for name in names)
    text = f"<mujoco><asset>{meshes}</asset><worldbody>{fixed}{bodies}</worldbody></mujoco>"
    return oracle.load_with_assets(text, {})


def pose(mjmodel: Any, kind: int, rng: np.random.Generator) -> Any:
    """One pose of the last body against the first geom."""
    spread = (0.03, 0.15, 0.25, 0.5, 0.2)[kind]
    turns = Rotation.random(2, random_state=int(rng.integers(1 << 31)))
    place = spread * rng.normal(size=3)
    if kind == 4:
        quarter = Rotation.from_euler("xyz", rng.integers(4, size=3) * np.pi / 2)
        turns = Rotation.concatenate([turns[0], turns[0] * quarter])
        place = turns[0].apply(np.eye(3)[rng.integers(3)] * rng.uniform(0.05, 0.4))
    quats = turns.as_quat()[:, [3, 0, 1, 2]]
    moving = mjmodel.nq // 7
    qpos = np.concatenate([np.concatenate([k * place, quats[k]]) for k in range(2)][-moving:])
    data = oracle.posed(mjmodel, qpos)
    if kind == 2 and mjmodel.geom_type[0] != oracle.mujoco.mjtGeom.mjGEOM_HFIELD:
        ends = np.zeros(6)
        distance = oracle.mujoco.mj_geomDistance(mjmodel, data, 0, 1, 10, ends)
        along = (ends[3:] - ends[:3]) / (distance or 1)
        qpos[-7:-4] -= along * (distance + rng.choice([-1e-4, 1e-4]))
        data = oracle.posed(mjmodel, qpos)
    return data


def reach(mjmodel: Any, data: Any, geom: int, direction: np.ndarray) -> float:
    """How far a convex geom reaches along a direction, m."""
    kind, size = oracle.mujoco.mjtGeom(mjmodel.geom_type[geom]), mjmodel.geom_size[geom]
    local = direction @ data.geom_xmat[geom].reshape(3, 3)
    name, aside, up = kind.name.removeprefix("mjGEOM_"), np.linalg.norm(local[:2]), abs(local[2])
    if name == "MESH":
        mesh = mjmodel.geom_dataid[geom]
        vertex = mjmodel.mesh_vert[mjmodel.mesh_vertadr[mesh] :][: mjmodel.mesh_vertnum[mesh]]
        return float(direction @ data.geom_xpos[geom] + np.max(vertex @ local))
    own = {
        "SPHERE": size[0],
        "CAPSULE": size[0] + size[1] * up,
        "CYLINDER": size[0] * aside + size[1] * up,
        "ELLIPSOID": np.linalg.norm(size * local),
        "BOX": size @ np.abs(local),
    }
    return float(direction @ data.geom_xpos[geom] + own[name])


def proven(mjmodel: Any, data: Any, contact: int) -> float:
    """The gap of two convex geoms along MuJoCo's normal: their distance is no smaller; of others what MuJoCo says."""
    ends, normal = data.contact.geom[contact], data.contact.frame[contact, :3]
    if np.any(mjmodel.geom_type[ends] <= int(oracle.mujoco.mjtGeom.mjGEOM_HFIELD)):
        return float(data.contact.dist[contact])
    return -reach(mjmodel, data, ends[1], -normal) - reach(mjmodel, data, ends[0], normal)


def prisms(mjmodel: Any) -> list[np.ndarray]:
    """The prisms (6, 3) of the only height field, in its frame."""
    rows, columns = int(mjmodel.hfield_nrow[0]), int(mjmodel.hfield_ncol[0])
    x, y, top, base = mjmodel.hfield_size[0]
    heights, found = mjmodel.hfield_data.reshape(rows, columns) * top, []
    for row, column in itertools.product(range(rows - 1), range(columns - 1)):
        for corners in (((1, 0), (0, 0), (1, 1)), ((0, 0), (0, 1), (1, 1))):
            r, c = (np.array(corners) + np.array([row, column])).T
            across = np.stack([(2 * c / (columns - 1) - 1) * x, (2 * r / (rows - 1) - 1) * y], axis=1)
            levels = np.full(3, -base), heights[r, c]
            found.append(np.concatenate([np.c_[across, level] for level in levels]))
    return found


def true_depth(mjmodel: Any, data: Any) -> float:
    """The least signed distance of the prisms of a height field from an ellipsoid or a cylinder, by many directions."""
    field, body = (mat.reshape(3, 3) for mat in data.geom_xmat)
    places = [prism @ field.T + data.geom_xpos[0] - data.geom_xpos[1] for prism in prisms(mjmodel)]
    is_can = mjmodel.geom_type[1] == oracle.mujoco.mjtGeom.mjGEOM_CYLINDER
    about = mjmodel.geom_size[1], is_can
    near = [place @ body for place in places if np.min(np.linalg.norm(place, axis=1)) < 2 * mjmodel.geom_rbound[1]]
    return min(greatest_gap(np.random.default_rng(0), *about, place) for place in near)


def is_wrong(mjmodel: Any, data: Any, contact: int, ours: float) -> bool:
    """Whether the deepest distance, MuJoCo's own being of this contact, is not what it should be."""
    kinds = mjmodel.geom_type[data.contact.geom[contact]]
    if kinds[0] == oracle.mujoco.mjtGeom.mjGEOM_HFIELD and kinds[1] in ROUND:
        return abs(ours - data.contact.dist[contact]) > 1e-5 and abs(ours - true_depth(mjmodel, data)) > 1e-6
    return ours < proven(mjmodel, data, contact) - 1e-5


def counts(mjmodel: Any, states: list, contacts: Any) -> dict[str, int]:
    """What is counted for one pair."""
    found = dict.fromkeys(("touching", "existence", "below", "above", "normals", "number", "wrong"), 0)
    for k, data in enumerate(states):
        used = np.flatnonzero((np.asarray(contacts.geom[k])[:, 0] >= 0) & (np.asarray(contacts.dist[k]) < 0))
        found["touching"] += data.ncon > 0
        if not data.ncon or not len(used):
            differs = (data.ncon > 0) != (len(used) > 0)
            depth = max([-data.contact.dist.min(initial=0), *(-np.asarray(contacts.dist[k])[used])])
            found["existence"] += differs
            found["wrong"] += differs and depth > CLOSE
            continue
        ours, theirs = used[np.argmin(contacts.dist[k][used])], np.argmin(data.contact.dist)
        more = float(contacts.dist[k][ours]) - data.contact.dist[theirs]
        found["below"] += more < -CLOSE
        found["wrong"] += abs(more) > CLOSE and is_wrong(mjmodel, data, theirs, float(contacts.dist[k][ours]))
        found["above"] += more > CLOSE
        turned = np.abs(contacts.frame[k][ours, 0] - data.contact.frame[theirs, :3]).max()
        found["normals"] += abs(more) <= CLOSE and turned > TURNED
        found["number"] += len(used) != data.ncon
    return found


def main() -> int:
    """Sweeps the pairs and prints a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--poses", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=[""], help="of pairs whose names hold one of these")
    parser.add_argument("--numpy", action="store_true", help="run the traced program by numpy, uncompiled")
    asked = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    wrong, begun = 0, time.process_time()
    for first, second in PAIRS:
        if not any(part in f"{first}-{second}" for part in asked.only):
            continue
        mjmodel, rng = scene(first, second), np.random.default_rng(asked.seed)
        model, run = (
            from_mujoco(mjmodel),
            (uncompiled if asked.numpy else jax.jit)(jax.vmap(collide, in_axes=(None, 0))),
        )
        total: dict[str, int] = {}
        for start in range(0, asked.poses, BATCH):
            states = [pose(mjmodel, k % 5, rng) for k in range(start, min(start + BATCH, asked.poses))]
            records = [oracle.record_of(Kinematics, mjmodel, data) for data in states]
            found = counts(mjmodel, states, run(model, jax.tree.map(lambda *x: jnp.asarray(np.stack(x)), *records)))
            total = {name: total.get(name, 0) + int(count) for name, count in found.items()}
        wrong += total["wrong"]
        said = ", ".join(f"{name} {count}" for name, count in total.items())
        spent, begun = time.process_time() - begun, time.process_time()
        print(f"{first}-{second}: {asked.poses} poses, {said} ({spent:.0f} s)", flush=True)
        jax.clear_caches()
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())

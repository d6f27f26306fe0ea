"""Contacts of distance fields in random poses beside MuJoCo; one line of counts for each pair.

python -m tests.measure.fields --poses 200 --seed 0 --only nut

Counted are contacts by how far distance, position or normal are from MuJoCo's: within 1e-6 (`same`); within 20 times
what MuJoCo's own contact moves by when the field is shifted by 1e-8, the step of its differences for gradients
(`unsure`); of the first two searches against a box, which begin on its corner and in its middle plane, where rounding
decides (`tied`); and others (`other`). Poses where numbers of contacts differ are counted alone (`numbers`), and beside
them those in which MuJoCo's own number changes by that shift. Fails if more than a twentieth is `other`: line
searches turn on differences between its gradients and ours. Contacts with a mesh are compared by falling depth.

A difference that is meant: MuJoCo passes over a mesh, or a branch of the tree of its triangles, whose box has its
middle further out in the field than its corners reach. Outside of an octree's root the field grows faster than
distance does, so that it misses corners that are inside (octree-mesh, seed 1, the 26th pose: 11 mm deep). Not so ours.
"""

import argparse
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import oracle
from geometry.field_scenes import OCTREE, SETTINGS, SHAPES, extension, field_geom
from geometry.hulls import BOX

import diffsim
from diffsim.collision import collide
from diffsim.types.data import Kinematics

SEARCHES, SHIFT = 20, 1e-8
# of a mesh of 12 triangles: MuJoCo stops at the 50th point
MESH = "<mesh name='crate' vertex='" + " ".join(map(str, (BOX * [0.2, 0.3, 0.25]).ravel())) + "'/>"
FEWER = 4
KINDS: tuple[str, ...] = ("same", "unsure", "tied", "other")


def scene(name: str, shape: str) -> str:
    """A field that moves, and another shape that does not."""
    known, searches = {**SHAPES, "mesh": "type='mesh' mesh='crate'"}, FEWER if shape == "mesh" else SEARCHES
    fixed = field_geom(name, "euler='20 30 40'") if shape == "field" else f"<geom {known[shape]} euler='20 30 40'/>"
    assets = extension(name).replace("<asset>", "<asset>" + MESH)
    return f"""<mujoco>{assets}<option sdf_iterations='10' sdf_initpoints='{searches}'/><worldbody>{fixed}
      <body><freejoint/>{field_geom(name)}</body></worldbody></mujoco>"""


def columns(contact: Any) -> np.ndarray:
    """Distance, position and normal (n, 7) of the oracle's contacts."""
    return np.concatenate([contact.dist[:, None], contact.pos, contact.frame[:, :3]], axis=1)


def compare(name: str, shape: str, poses: int, rng: np.random.Generator) -> tuple[dict[str, int], int, int]:
    """Contacts by kind, and poses with other numbers of contacts: ours and the oracle's, and the oracle's alone."""
    text = scene(name, shape)
    model, mjmodel = diffsim.load(text), oracle.load_oracle(text)
    run = jax.jit(lambda poses: collide(model, poses))
    counts: dict[str, int] = dict.fromkeys(KINDS, 0)
    numbers = own = 0
    for _ in range(poses):
        qpos = np.concatenate([0.4 * rng.normal(size=3), rng.normal(size=4)])
        data = oracle.posed(mjmodel, qpos)
        theirs = columns(data.contact)
        shifted = columns(oracle.posed(mjmodel, qpos + SHIFT * rng.normal(size=7)).contact)
        found = run(jax.tree.map(jnp.asarray, oracle.record_of(Kinematics, mjmodel, data)))
        used = np.flatnonzero((np.asarray(found.dist) < 0) & (np.asarray(found.geom)[:, 0] >= 0))
        used = used[np.argsort(np.asarray(found.sort_key)[used])]
        parts = (np.asarray(part)[used] for part in (found.dist[:, None], found.pos, found.frame[:, 0]))
        ours = np.concatenate(list(parts), axis=1)
        own += len(shifted) != len(theirs)
        if len(ours) != len(theirs):
            numbers += 1
            continue
        if shape == "mesh":
            ours, theirs, shifted = (rows[np.argsort(rows[:, 0])] for rows in (ours, theirs, shifted))
        error = np.abs(ours - theirs).max(axis=1, initial=0)
        moves = np.abs(shifted - theirs).max(axis=1, initial=0) if len(shifted) == len(theirs) else np.inf
        tied = (np.arange(len(ours)) < 2) & (shape == "box")
        kind = np.select([error <= 1e-6, error <= 20 * moves, tied], [0, 1, 2], 3)
        for k, word in enumerate(KINDS):
            counts[word] += int(np.sum(kind == k))
    return counts, numbers, own


def main() -> int:
    """Prints a line for each pair; 1 if some pair fails."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--poses", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    failed = False
    for name in (*SETTINGS, OCTREE):
        for shape in (*SHAPES, "mesh", "field"):
            if asked.only in f"{name}-{shape}":
                counts, numbers, own = compare(name, shape, asked.poses, np.random.default_rng(asked.seed))
                failed |= 20 * counts["other"] > sum(counts.values())
                words = " ".join(f"{word} {count}" for word, count in counts.items())
                print(f"{name}-{shape}: {asked.poses} poses, contacts: {words}; numbers {numbers} ({own})", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

"""Contacts and distances of every pair of geom types, their derivatives beside differences.

python -m tests.measure.derivatives --poses 100 --seed 0 --only stone --compiled

Poses and pairs are those of pairs.py, with meshes whose sides are flat beside them. In each pose everything
moves along one random direction at once: both poses, all sizes, all vertices, heights and sizes of a height field.
Vertices of flat sides move by one random matrix, which keeps the sides flat: else each side becomes several. Of
each contact (`contacts`), and of the nearest points of both geoms (`distance`, also far apart; what it says of height
fields is refused), distance, position and normal are compared: the forward derivative with Richardson differences, and
the reverse one with the forward one.

Counted are rows: `same` where the derivative is the difference to 1e-6 of one plus its size; `off` where it is not;
`edges` where the slope to the left is another than that to the right however small the step (a feature ends there:
poses in quarter turns are such), or the contact is not there a step aside (the second one of parallel rods); `unclear`
where differences of two step sizes disagree by more than a tenth of that bar, because a feature changes within the
smallest steps. `worst` is the greatest error of what is compared, over one plus size. Fails if any is `off`, if reverse
and forward differ by 1e-9, or if less than half can be compared.
"""

import argparse
import functools
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import oracle
from uncompiled import uncompiled

import diffsim
from diffsim.collision import collide
from diffsim.compiler.convert import from_mujoco
from diffsim.math.rotation import quat_exp, quat_to_mat
from diffsim.math.vector import mul_mat
from diffsim.types.data import Kinematics
from diffsim.types.model import Model
from tests.measure.pairs import PAIRS, pose, scene

Array = jax.Array
# bars: of errors, of reverse beside forward, over one plus size
BAR, TRANSPOSED = 1e-6, 1e-9
STEPS = (1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 3e-6)
BATCH = 50
# what is moved, by how much: vertices and heights less, that hulls stay near what they were
LEAVES = {"geom_size": 0.1, "mesh_vert": 0.1, "hfield_data": 0.3, "hfield_size": 0.1}
FLAT = (("ball", "nut"), ("rod", "block"), ("can", "nut"), ("crate", "wedge"), ("block", "nut"), ("floor", "nut"))

Outputs = Callable[[Model, Kinematics], Array]


class Counts(NamedTuple):
    """Rows by what came of them, and the worst errors."""

    same: int = 0
    off: int = 0
    edges: int = 0
    unclear: int = 0
    worst: float = 0.0
    transposed: float = 0.0

    def plus(self, other: "Counts") -> "Counts":
        """Both."""
        return Counts(
            *map(sum, zip(self[:4], other[:4], strict=True)), *map(max, zip(self[4:], other[4:], strict=True))
        )


def contacts(model: Model, poses: Kinematics) -> Array:
    """Distance, position and normal (n, 7) of the contact candidates, zero where there is none."""
    found = collide(model, poses)
    columns = jnp.concatenate([found.dist[:, None], found.pos, found.frame[:, 0]], axis=1)
    return jnp.where((found.geom[:, 0] >= 0)[:, None], columns, 0)


def distance(model: Model, poses: Kinematics) -> Array:
    """Distance, nearest point of the first and normal (1, 7) of both geoms."""
    found = diffsim.geom_distance(model, poses, 0, 1)
    return jnp.concatenate([found.distance[None], found.point1, found.normal])[None]


def moved(model: Model, poses: Kinematics, change: dict[str, Array], step: Array) -> tuple[Model, Kinematics]:
    """Everything after a step along a direction."""
    turn = quat_to_mat(quat_exp(step * change["turn"]))
    xpos = poses.geom_xpos + step * change["shift"]
    there = poses.replace(geom_xpos=xpos, geom_xmat=mul_mat(turn, poses.geom_xmat))
    return model.replace(**{name: getattr(model, name) + step * change[name] for name in LEAVES}), there


def program(outputs: Outputs, model: Model) -> Callable[..., tuple]:
    """(step, direction, poses, weights) -> value, slope along the direction, and that slope by reverse mode."""

    def at(step: Array, change: dict[str, Array], poses: Kinematics, weights: Array) -> tuple[Array, Array, Array]:
        function = lambda change: outputs(*moved(model, poses, change, jnp.ones(())))  # noqa: E731
        place = jax.tree.map(lambda x: step * x, change)
        value, slope = jax.linearize(function, place)
        pulled = jax.linear_transpose(slope, place)(jnp.broadcast_to(weights, value.shape))[0]
        both = zip(jax.tree.leaves(pulled), jax.tree.leaves(change), strict=True)
        return value, slope(change), sum(jnp.vdot(a, b) for a, b in both)

    return at


def values(outputs: Outputs, model: Model) -> Callable[..., Array]:
    """(steps (k,), direction, poses) -> values (k, rows, 7)."""

    def along(steps: Array, change: dict[str, Array], poses: Kinematics) -> Array:
        return jax.vmap(lambda step: outputs(*moved(model, poses, change, step)))(steps)

    return along


def directions(model: Model, count: int, flat: bool, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """A random direction of each pose; sides of meshes stay `flat`, or not."""
    leaves = {name: (size, getattr(model, name).shape) for name, size in LEAVES.items()}
    leaves |= {"shift": (0.5, (model.ngeom, 3)), "turn": (1.0, (model.ngeom, 3))}
    found = {name: size * rng.normal(size=(count, *shape)) for name, (size, shape) in leaves.items()}
    stretched = np.asarray(model.mesh_vert) @ rng.normal(size=(count, 3, 3))
    return found | ({"mesh_vert": stretched} if flat else {})


def judged(now: np.ndarray, slope: np.ndarray, near: np.ndarray) -> Counts:
    """Counts of some rows (n, 7) of one pose, given values (len(STEPS), 4, n, 7) at steps of h, -h, 2 h, -2 h."""
    ahead, behind, further, before = np.moveaxis(near, 1, 0)
    h = np.array(STEPS)[:, None, None]
    differences = (8 * (ahead - behind) - (further - before)) / (12 * h)
    size = 1 + np.abs(differences).max(axis=2)
    apart = np.abs(np.diff(differences, axis=0)).max(axis=2) / size[1:]
    # the estimate that agrees best with the one before it
    best, rows = np.argmin(apart, axis=0), np.arange(now.shape[0])
    clear = apart[best, rows] < 0.1 * BAR
    # a corner of the function: what the slopes of both sides differ by does not shrink with the step
    corner = np.abs(ahead + behind - 2 * now).max(axis=2) / np.array(STEPS)[:, None]
    # contacts that are not there are zero
    gone = np.any(np.all(near == 0, axis=3), axis=1)[best + 1, rows]
    edge = ((corner[-1] > 0.1 * corner[1]) & (corner[-1] > 1e-5)) | gone
    error = np.abs(slope - differences[best + 1, rows]).max(axis=1) / size[best + 1, rows]
    good = clear & ~edge
    counted = (good & (error <= BAR), good & (error > BAR), edge, ~clear & ~edge)
    return Counts(*(int(np.sum(each)) for each in counted), float(np.max(error[good], initial=0)))


def compare(names: tuple[str, str], outputs: Outputs, asked: argparse.Namespace) -> Counts:
    """Counts of one pair."""
    mjmodel, rng = scene(*names), np.random.default_rng(asked.seed)
    model, run = from_mujoco(mjmodel), jax.jit if asked.compiled else uncompiled
    at = run(jax.vmap(jax.jit(program(outputs, model)), (None, 0, 0, None)))
    along = run(jax.vmap(jax.jit(values(outputs, model)), (None, 0, 0)))
    steps = (np.array(STEPS)[:, None] * np.array([1, -1, 2, -2])).ravel()
    total, weights = Counts(), np.cos(np.arange(7.0))
    for start in range(0, asked.poses, BATCH):
        states = [pose(mjmodel, k % 5, rng) for k in range(start, start + BATCH)]
        records = [oracle.record_of(Kinematics, mjmodel, data) for data in states]
        batch = jax.tree.map(lambda *x: np.stack(x), *records)
        change = directions(model, len(states), names in FLAT, rng)
        now, slope, pulled = map(np.asarray, at(np.float64(0), change, batch, weights))
        near = np.asarray(along(steps, change, batch)).reshape(len(states), len(STEPS), 4, *now.shape[1:])
        pushed = np.sum(slope * weights, axis=(1, 2))
        transposed = float(np.max(np.abs(pulled - pushed) / (1 + np.abs(slope).sum(axis=(1, 2)))))
        used = now[:, :, 0] < 0 if outputs is contacts else np.ones(now.shape[:2], bool)
        found = [judged(now[k, rows], slope[k, rows], near[k][:, :, rows]) for k, rows in enumerate(used)]
        total = functools.reduce(Counts.plus, found, total.plus(Counts(transposed=transposed)))
    return total


ASKED: tuple[Outputs, ...] = contacts, distance


def line(names: tuple[str, str], outputs: Outputs, asked: argparse.Namespace) -> bool:
    """Prints what was found of one pair; whether it fails."""
    begun = time.process_time()
    found = compare(names, outputs, asked)
    bad = found.off > 0 or found.transposed > TRANSPOSED or 2 * (found.same + found.off) < sum(found[:4])
    words = ", ".join(f"{word} {count}" for word, count in zip(found._fields[:4], found[:4], strict=True))
    worst = f"worst {found.worst:.1e}, reverse {found.transposed:.1e} ({time.process_time() - begun:.0f} s)"
    which = f"{'-'.join(names)} {outputs.__name__}: {asked.poses} poses"
    print(f"{which}, {words}, {worst}" + (" FAILED" if bad else ""), flush=True)
    return bad


def main() -> int:
    """Prints a line for each pair; 1 if one fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--poses", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=[""], help="of pairs whose names hold one of these")
    parser.add_argument("--compiled", action="store_true", help="compile the programs, which numpy runs otherwise")
    asked = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    bad = 0
    for names in (*PAIRS, *FLAT):
        if any(part in "-".join(names) for part in asked.only):
            bad += sum(line(names, outputs, asked) for outputs in ASKED[: 1 if "hills" in names else 2])
            jax.clear_caches()
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())

"""What a world costs as a heap of meshes of 64 vertices grows; one line for each number of them.

python -m tests.measure.heaps --counts 10 30 100 --batch 16
python -m tests.measure.heaps --apart --step

Stones fall into a box of planes, or with `--apart` boxes, balls and capsules beside each other on a floor, and are let
lie by MuJoCo; then the contacts of a batch of worlds, each a little elsewhere, are found in one compiled program.
Printed are pairs of geoms, contacts of MuJoCo and ours, and milliseconds of CPU time a world and a contact, of
`collide` alone, and with `--step` of whole steps, MuJoCo's too: the cost follows the contacts.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import oracle
from geometry.hulls import cloud
from oracle import mujoco

import diffsim
from diffsim.collision import collide
from diffsim.collision.layout import layout_of
from diffsim.viz import poses_of

VERTICES, SETTLE, AWAY, STEPS = 64, 1500, 1e-4, 100


class Heap(NamedTuple):
    """A model in both engines, and MuJoCo's state at rest."""

    model: diffsim.Model
    mjmodel: Any
    mjdata: Any


def text(count: int) -> str:
    """Stones in layers of three by three above a floor between four walls."""
    kinds = min(count, 10)
    vertices = [" ".join(map(str, cloud(VERTICES, seed).ravel().round(6))) for seed in range(kinds)]
    meshes = "".join(f"<mesh name='m{k}' vertex='{each}'/>" for k, each in enumerate(vertices))
    walls = (
        ("0 0 0", "0 0 1"),
        ("-.75 0 0", "1 0 0"),
        (".75 0 0", "-1 0 0"),
        ("0 -.75 0", "0 1 0"),
        ("0 .75 0", "0 -1 0"),
    )
    planes = "".join(f"<geom type='plane' size='2 2 .1' pos='{pos}' zaxis='{axis}'/>" for pos, axis in walls)
    rng, bodies = np.random.default_rng(0), ""
    for k in range(count):
        x, y, z = 0.45 * (k % 3 - 1), 0.45 * (k // 3 % 3 - 1), 0.3 + 0.4 * (k // 9)
        turn = " ".join(map(str, rng.normal(size=4).round(4)))
        bodies += f"<body pos='{x} {y} {z}' quat='{turn}'><freejoint/><geom type='mesh' mesh='m{k % kinds}'/></body>"
    return f"<mujoco><option timestep='.004'/><asset>{meshes}</asset><worldbody>{planes}{bodies}</worldbody></mujoco>"


def text_apart(count: int) -> str:
    """Boxes, balls and capsules side by side on a floor."""
    geoms, bodies = ("box' size='.05 .05 .05", "sphere' size='.05", "capsule' size='.03 .05"), ""
    rng, side = np.random.default_rng(0), int(np.ceil(np.sqrt(count)))
    for k in range(count):
        x, y = 0.25 * np.array(divmod(k, side)) + rng.uniform(-0.02, 0.02, 2)
        bodies += f"<body pos='{x} {y} .06'><freejoint/><geom type='{geoms[k % 3]}'/></body>"
    names = (("max_contact_points", 4 * count), ("max_geom_pairs", 2 * count))
    numbers = "".join(f"<numeric name='{name}' data='{value}'/>" for name, value in names)
    floor = "<geom type='plane' size='10 10 .1'/>"
    option = "<option timestep='.005' iterations='10' ls_iterations='10'/>"
    return f"<mujoco>{option}<custom>{numbers}</custom><worldbody>{floor}{bodies}</worldbody></mujoco>"


def heap(text: str) -> Heap:
    """What has come to rest."""
    mjmodel = oracle.load_with_assets(text, {})
    mjdata = mujoco.MjData(mjmodel)
    mujoco.mj_step(mjmodel, mjdata, SETTLE)
    mujoco.mj_forward(mjmodel, mjdata)
    return Heap(diffsim.from_mujoco(mjmodel), mjmodel, mjdata)


def worlds(made: Heap, batch: int) -> diffsim.State:
    """The state at rest, a little elsewhere in each world."""
    start = diffsim.make_state(made.model)
    rng = np.random.default_rng(0)
    qpos = made.mjdata.qpos + AWAY * rng.normal(size=(batch, made.mjmodel.nq))
    many = jax.tree.map(lambda x: jnp.broadcast_to(x, (batch, *x.shape)), start)
    return many.replace(qpos=jnp.asarray(qpos, start.qpos.dtype))


def milliseconds(function: Callable[..., Any], *arguments: Any, rounds: int = 5) -> float:
    """Shortest CPU time of a compiled function."""
    times = []
    for _ in range(rounds):
        start = time.process_time()
        jax.block_until_ready(function(*arguments))
        times.append(time.process_time() - start)
    return 1e3 * min(times)


def line(made: Heap, count: int, batch: int, whole_steps: bool) -> str:
    """What one heap costs."""
    states = worlds(made, batch)
    poses = poses_of(made.model, states)
    find = jax.jit(jax.vmap(lambda each: collide(made.model, each)))
    start = time.process_time()
    found = jax.block_until_ready(find(poses))
    compiling = time.process_time() - start
    ours = float(jnp.mean(jnp.sum(found.dist < 0, axis=1)))
    cost, layout = milliseconds(find, poses) / batch, layout_of(made.model)
    said = (
        f"{count} bodies: {len(layout.pairs.geom1)} pairs, contacts {made.mjdata.ncon} of MuJoCo, {ours:.0f} ours, "
        f"{int(jnp.max(found.ncon_dropped))} dropped; collide {cost:.2f} ms a world, "
        f"{1e3 * cost / ours:.0f} us a contact, compiled in {compiling:.0f} s"
    )
    if whole_steps:
        go = jax.jit(jax.vmap(lambda state: diffsim.step(made.model, state)))
        jax.block_until_ready(go(states))
        theirs = milliseconds(lambda: mujoco.mj_step(made.mjmodel, made.mjdata, STEPS)) / STEPS
        said += f"; a step {milliseconds(go, states) / batch:.2f} ms, of MuJoCo {theirs:.2f}"
    return said


def main() -> None:
    """Prints a line for each heap."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--counts", type=int, nargs="*", default=[10, 30, 100])
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--step", action="store_true")
    parser.add_argument("--apart", action="store_true")
    asked = parser.parse_args()
    for count in asked.counts:
        made = heap((text_apart if asked.apart else text)(count))
        print(line(made, count, asked.batch, asked.step), flush=True)
        jax.clear_caches()


if __name__ == "__main__":
    main()

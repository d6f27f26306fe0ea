"""What pixels of our pictures see, beside MuJoCo's rays, for ten models; and how long a picture takes.

python -m tests.measure.pictures --only shadow --size 240 180

For each model the rays of a picture's pixels are cast as the renderer casts them, in float32, and by mj_ray through the
geoms that are drawn. A pixel is the same if both see the same geom, or nothing, and their depths differ by at most
1e-4 of the depth. At least 99.9% of the pixels of each model are the same. Where two geoms lie in one plane rounding
decides which of them is seen: such pixels count as the same if only the depths agree (`tied`).

Times: a frame of 480 x 320 of a hand with 57,736 triangles after compilation (bar 0.3 s), and 64 frames in one program.
"""

import argparse
import sys
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import oracle

import diffsim
from diffsim.geometry.rays.bundles import BundledRays
from diffsim.viz import View, poses_of, render
from diffsim.viz.render import SIDE
from diffsim.viz.scene import plan_of, scene_of
from diffsim.viz.surface import trace
from diffsim.viz.view import directions, pose

MJX, SUITE, GYM = "mujoco/mjx/test_data", "dm_control/suite", "gymnasium/envs/mujoco/assets"
MODELS = {
    "shadow": f"{MJX}/shadow_hand/scene_right.xml",
    "barkour": f"{MJX}/barkour_v0/assets/barkour_v0_mjx.xml",
    "humanoid": f"{MJX}/humanoid/humanoid.xml",
    "jaco": "dm_control/third_party/kinova/jaco_arm.xml",
    "dog": f"{SUITE}/dog.xml",
    "quadruped": f"{SUITE}/quadruped.xml",
    "manipulator": f"{SUITE}/manipulator.xml",
    "fish": f"{SUITE}/fish.xml",
    "ant": f"{GYM}/ant.xml",
    "pusher": f"{GYM}/pusher.xml",
}
DEPTH, SAME = 1e-4, 0.999


class Seen(NamedTuple):
    """Of each pixel (k,): depth along its ray, m, infinite for nothing, and which geom, -1 for none."""

    depth: np.ndarray
    geom: np.ndarray


def bundled(pixels: np.ndarray) -> np.ndarray:
    """Pixels (height, width, ...) as squares (b, SIDE^2, ...), as the renderer takes them."""
    height, width, *rest = pixels.shape
    squares = pixels.reshape(height // SIDE, SIDE, width // SIDE, SIDE, *rest)
    return np.swapaxes(squares, 1, 2).reshape(-1, SIDE * SIDE, *rest)


def ours(model: diffsim.Model, kinematics: Any, origin: np.ndarray, along: np.ndarray) -> Seen:
    """What the renderer sees."""
    plan = plan_of(model)
    scene = scene_of(model, plan, kinematics)
    start = np.broadcast_to(origin, along.shape)
    rays = BundledRays(*(jnp.asarray(each, jnp.float32) for each in (start, along)), jnp.ones(along.shape[:2], bool))
    hits = jax.jit(trace, static_argnums=1)(scene, plan.groups, rays)
    geoms = np.array(plan.geoms)[np.array(plan.order)]
    thing = np.asarray(hits.thing).reshape(-1)
    return Seen(np.asarray(hits.distance).reshape(-1), np.where(thing < 0, -1, geoms[np.maximum(thing, 0)]))


def theirs(mjmodel: Any, mjdata: Any, drawn: tuple[int, ...], origin: np.ndarray, along: np.ndarray) -> Seen:
    """What MuJoCo's rays meet of the geoms that are drawn."""
    mjmodel.geom_group[:] = 1
    mjmodel.geom_group[list(drawn)] = 0
    groups = np.array([1, 0, 0, 0, 0, 0], np.uint8)
    rays = along.reshape(-1, 3).astype(float)
    depth, geom, _ = oracle.rays_of(mjmodel, mjdata, np.tile(origin, (len(rays), 1)), rays, (groups, True, -1))
    return Seen(np.where(depth < 0, np.inf, depth), geom)


def same(name: str, width: int, height: int) -> tuple[float, float, float]:
    """Of the pixels of a model: which share is the same, is tied, and sees a geom."""
    path = str(oracle.package_path(MODELS[name]))
    model, mjmodel = diffsim.load(path, allow_outside=True), oracle.mujoco.MjModel.from_xml_path(path)
    # tendons are no geoms
    model = model.replace(tendon_rgba=0 * model.tendon_rgba)
    mjdata = oracle.posed(mjmodel, mjmodel.qpos0)
    kinematics = poses_of(model, diffsim.make_state(model))
    eye = pose(model, kinematics, View())
    middles = np.stack(np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5), axis=-1)
    places = bundled(middles).reshape(-1, 2)
    along = np.asarray(directions(eye, jnp.asarray(places), width, height)).reshape(-1, SIDE * SIDE, 3)
    mine = ours(model, kinematics, eye.position, along)
    its = theirs(mjmodel, mjdata, plan_of(model).geoms, eye.position, along)
    nothing = (mine.geom < 0) & (its.geom < 0)
    with np.errstate(invalid="ignore"):
        close = nothing | (np.abs(mine.depth - its.depth) <= DEPTH * its.depth)
    alike = close & (mine.geom == its.geom)
    return float(np.mean(close)), float(np.mean(close & ~alike)), float(np.mean(its.geom >= 0))


def seconds(frames: int) -> tuple[float, float]:
    """Of pictures of the hand, some in one program: the first time, with compilation, and the second; by the clock."""
    model = diffsim.load(str(oracle.package_path(MODELS["shadow"])), allow_outside=True)
    state = diffsim.make_state(model)
    if frames > 1:
        turn = jnp.linspace(0, 0.5, frames)[:, None] * jnp.ones(model.nq).at[-7:].set(0)
        many = jax.tree.map(lambda x: jnp.broadcast_to(x, (frames, *x.shape)), state)
        state = many.replace(qpos=(state.qpos + turn).astype(state.qpos.dtype))
    times = []
    for _ in range(2):
        start = time.perf_counter()
        render(model, state, size=(480, 320), samples=1)
        times.append(time.perf_counter() - start)
    return times[0], times[1]


def main() -> int:
    """Prints a line for each model, and the times; 1 if a model has too many other pixels."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--size", type=int, nargs=2, default=(240, 160))
    parser.add_argument("--frames", type=int, nargs="*", default=[1, 64], help="pictures in a program that is timed")
    asked = parser.parse_args()
    failed = False
    for name in MODELS:
        if asked.only in name:
            close, tied, seen = same(name, *asked.size)
            failed |= close < SAME
            print(f"{name}: {close:.4%} of pixels the same ({tied:.4%} tied), {seen:.0%} see a geom", flush=True)
            jax.clear_caches()
    for frames in asked.frames:
        first, again = seconds(frames)
        print(
            f"480 x 320, {frames} in a program: {again / frames:.3f} s each, {first - again:.1f} s to compile",
            flush=True,
        )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

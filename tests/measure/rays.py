"""Rays against every type of geom, beside C MuJoCo's, and what a mesh of 200,000 triangles costs beside a box.

For each type 10,000 random rays from outside, inside and far away. A ray differs where the geom is another
one, or distance (relative to 1 m and itself) or normal are off by more than 1e-6.
"""

import argparse
import sys
import time

import jax
import numpy as np
from oracle import rays_of
from ray_scenes import GEOMS, ball, scene

import diffsim
from diffsim.geometry.rays.ray import RayHits, Rays, cast
from diffsim.types import Model

TOLERANCE = 1e-6
BOX = "<mujoco><worldbody><geom type='box' size='.3 .4 .5'/></worldbody></mujoco>"
MESH = """<mujoco><asset><mesh name='ball' file='ball.obj'/></asset>
  <worldbody><geom type='mesh' mesh='ball' contype='0' conaffinity='0'/></worldbody></mujoco>"""


@jax.jit
def trace(model: Model, xpos: jax.Array, xmat: jax.Array, origin: jax.Array, direction: jax.Array) -> RayHits:
    """All rays through a model."""
    return cast(model, xpos, xmat, Rays(origin, direction, np.full(len(origin), -1)))


def different(kind: str, count: int) -> tuple[int, int]:
    """How many rays hit, and how many differ from the oracle's."""
    each = scene((kind,), count, 0, rings=40)
    distance, geom, normal = rays_of(each.mjmodel, each.mjdata, each.origin, each.direction)
    ours = trace(each.model, each.mjdata.geom_xpos, each.xmat, each.origin, each.direction)
    off = np.abs(ours.distance - distance) > TOLERANCE * (1 + np.abs(distance))
    off |= (ours.geom != geom) | (np.abs(ours.normal - normal).max(axis=1) > TOLERANCE)
    return int(np.sum(geom >= 0)), int(np.sum(off))


def seconds(model: Model, count: int, rounds: int = 21) -> float:
    """Median time of random rays towards a geom at the origin, CPU time of this process."""
    rng = np.random.default_rng(0)
    origin = 2 * rng.normal(size=(count, 3))
    rays = (origin, 0.15 * rng.normal(size=(count, 3)) - origin)
    inputs = [jax.device_put(np.asarray(each, np.float32)) for each in (np.zeros((1, 3)), np.eye(3)[None], *rays)]
    jax.block_until_ready(trace(model, *inputs))
    times = []
    for _ in range(rounds):
        start = time.process_time()
        jax.block_until_ready(trace(model, *inputs))
        times.append(time.process_time() - start)
    return float(np.median(times))


def obj(rings: int) -> bytes:
    """A bumpy ball as a file."""
    vertex, face = ball(rings)
    lines = [f"v {x:.7g} {y:.7g} {z:.7g}" for x, y, z in vertex] + [f"f {a} {b} {c}" for a, b, c in face + 1]
    return "\n".join(lines).encode()


def main() -> None:
    """Counts, then times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rays", type=int, default=10_000)
    count = parser.parse_args().rays
    jax.config.update("jax_enable_x64", True)
    counts = {kind: different(kind, count) for kind in GEOMS}
    jax.config.update("jax_enable_x64", False)
    box = diffsim.load(BOX)
    ball_model = diffsim.load(MESH, assets={"ball.obj": obj(225)})
    # so many that what a call costs does not count
    many = 10 * count
    plain, fine = seconds(box, many), seconds(ball_model, many)
    listed = ", ".join(f"{kind} {hits} hits {off} off" for kind, (hits, off) in counts.items())
    print(f"rays: {count} per type: {listed}")
    triangles, (short, long) = ball_model.topology.mesh_facenum[0], (1e9 * each / many for each in (plain, fine))
    print(f"rays: box {short:.0f} ns, {triangles} triangles {long:.0f} ns a ray, {fine / plain:.1f} times")
    sys.exit(any(off for _, off in counts.values()))


if __name__ == "__main__":
    main()

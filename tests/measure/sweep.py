"""`make sweep`: long seeded sweeps outside the test suite; each prints one line of counts and fails on any finding.

python -m tests.measure.sweep --states 2000 --seed 0
"""

import argparse
import pathlib
import sys
import tempfile
import warnings
from typing import Any

import hostile
import jax
import jax.numpy as jnp
import numpy as np

import diffsim
from diffsim.base.enums import Cone
from diffsim.cli import find_model
from diffsim.kinematics.joints import integrate_position

HERE = pathlib.Path(__file__).parents[1]
MODELS = [
    str(HERE / "models" / "degenerate.xml"),
    "dm_control/suite/hopper.xml",
    "gymnasium/envs/mujoco/assets/ant.xml",
    "mujoco/mjx/test_data/humanoid/humanoid.xml",
]
BATCH = 125
OURS = tempfile.gettempdir()


def states(model: diffsim.Model, count: int, rng: np.random.Generator) -> diffsim.State:
    """Random and singular states: qpos0 itself, zero velocity, tiny and large moves, unnormalized quaternions."""
    spread = rng.choice([0.0, 1e-12, 1e-6, 1e-3, 0.1, 1.0, 3.0], size=(count, 1))
    speed = rng.choice([0.0, 1e-12, 1e-4, 1.0, 30.0], size=(count, 1))
    move = spread * rng.normal(size=(count, model.nv)) * rng.choice([0.0, 1.0], size=(count, model.nv))
    one = diffsim.make_state(model)
    dtype = one.qpos.dtype
    qpos = jax.vmap(lambda d: integrate_position(model, one.qpos, d, jnp.ones((), dtype)))(jnp.asarray(move, dtype))
    length = jnp.asarray(rng.choice([1.0, 0.5, 2.0], size=(count, 1)), dtype)
    quaternions = np.flatnonzero(np.isin(np.arange(model.nq), quaternion_entries(model)))
    qpos = qpos.at[:, quaternions].multiply(length)
    qvel = jnp.asarray(speed * rng.normal(size=(count, model.nv)), dtype)
    many = jax.tree.map(lambda x: jnp.broadcast_to(x, (count, *x.shape)), one)
    return many.replace(qpos=qpos, qvel=qvel)


def quaternion_entries(model: diffsim.Model) -> list[int]:
    """Places of quaternions in qpos."""
    topology = model.topology
    starts = {0: 3, 1: 0}
    return [
        int(address) + starts[int(kind)] + k
        for kind, address in zip(topology.jnt_type, topology.jnt_qposadr, strict=True)
        if int(kind) in starts
        for k in range(4)
    ]


def count_nonfinite(path: str, cone: Cone, total: int, seed: int) -> tuple[int, int]:
    """(states whose step is not finite, states whose gradient is not finite), of `total`."""
    model = diffsim.load(find_model(path))
    model = model.replace(opt=model.opt.replace(cone=cone))
    inputs = diffsim.make_inputs(model)
    weight = jnp.cos(jnp.arange(model.nq + model.nv, dtype=model.qpos0.dtype))

    def score(model: diffsim.Model, state: diffsim.State, ctrl: jax.Array) -> jax.Array:
        after = diffsim.step(model, state, inputs.replace(ctrl=ctrl))
        return weight @ jnp.concatenate([after.qpos, after.qvel])

    def finite(tree: Any) -> jax.Array:
        return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]))

    def probe(state: diffsim.State, ctrl: jax.Array) -> tuple[jax.Array, jax.Array]:
        value, slopes = jax.value_and_grad(score, argnums=(0, 1, 2))(model, state, ctrl)
        return jnp.isfinite(value), finite(slopes)

    probes, rng = jax.jit(jax.vmap(probe)), np.random.default_rng(seed)
    bad = np.zeros(2, int)
    for _ in range(-(-total // BATCH)):
        ctrl = jnp.asarray(rng.choice([0.0, 1.0, -1.0], size=(BATCH, model.nu)), model.qpos0.dtype)
        forward, backward = probes(states(model, BATCH, rng), ctrl)
        bad += [int(np.sum(~np.asarray(forward))), int(np.sum(~np.asarray(backward)))]
    return int(bad[0]), int(bad[1])


# files that Python opens by itself, or looks for when it shows where a warning comes from
OWN_FILES = (".py", ".pyc", ".so", "<string>")

opened: list[str] = []


def watch(event: str, arguments: Any) -> None:
    """Audit hook: the files that are opened; hostile input has no business with any."""
    path = arguments[0] if event == "open" else None
    if isinstance(path, str) and not path.startswith(("/proc/self", OURS)) and not path.endswith(OWN_FILES):
        opened.append(path)


def count_hostile(seed: int, only: list[str]) -> int:
    """How many cases of hostile input ended otherwise than they may; one line per kind."""
    found = 0
    for name, kind in hostile.KINDS.items():
        if only and name not in only:
            continue
        # as what a file asks for is not to be opened, neither by its text nor by its includes
        opened.clear()
        with warnings.catch_warnings(action="ignore", category=diffsim.CapacityWarning):
            counts = hostile.judge_kind(name, range(seed, seed + kind.number))
        strange = opened if kind.allowed is hostile.REFUSALS else []
        print(
            f"SWEEP hostile {name} cases={kind.number} seed={seed} passed={counts.loaded} refused={counts.refused}"
            f" crashed={len(counts.crashed)} slow={len(counts.slow)} large={len(counts.large)} opened={len(strange)}",
            *counts.crashed,
            *counts.slow,
            *counts.large,
            *strange[:3],
            sep="\n  ",
            flush=True,
        )
        found += counts.findings + len(strange)
    return found


def main() -> int:
    """Runs the sweeps; 1 if anything was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--states", type=int, default=2000, help="per precision, over all models and cones")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=[], choices=list(hostile.KINDS), help="kinds of hostile input")
    options = parser.parse_args()
    # JAX looks for its devices first, in files of its own
    jax.devices()
    sys.addaudithook(watch)
    found = count_hostile(options.seed, options.only)
    for x64 in (False, True):
        with jax.enable_x64(x64):
            each = -(-options.states // (2 * len(MODELS)))
            counts = [count_nonfinite(path, cone, each, options.seed) for path in MODELS for cone in Cone]
        total = len(counts) * -(-each // BATCH) * BATCH
        forward, backward = (sum(column) for column in zip(*counts, strict=True))
        print(
            f"SWEEP finite {'float64' if x64 else 'float32'} states={total} seed={options.seed}"
            f" nonfinite_forward={forward} nonfinite_gradient={backward}",
            flush=True,
        )
        found += forward + backward
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())

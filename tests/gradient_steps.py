"""`make sweep`: gradients through whole steps of real models: reverse = forward mode, and both against differences.

Every model starts in states with active contacts or limits (visited by MuJoCo). What is varied: position (in its
tangent space), velocity, control, and the model's masses, damping and friction. Steps beyond the asked number are
masked, so that one compilation serves one and ten steps.

A contact that begins or ends during the rollout makes the map discontinuous (MuJoCo's reference acceleration damps as
soon as there is contact), and a difference across it means nothing. So a state counts only if the differences agree
with themselves at two step sizes; derivatives by AD play no part in that choice.

python tests/gradient_steps.py --only hopper         models, integrators and cones whose name contains this
"""

import argparse
import functools
import os
import sys
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

import jax
import jax.numpy as jnp
import numpy as np
import oracle
from tqdm import tqdm

import diffsim
from diffsim.base.enums import Cone, Integrator
from diffsim.kinematics.joints import integrate_position, position_difference

Array = jax.Array

MODELS = [
    "dm_control/suite/hopper.xml",
    "dm_control/suite/walker.xml",
    "dm_control/suite/finger.xml",
    "dm_control/suite/cheetah.xml",
    "gymnasium/envs/mujoco/assets/half_cheetah.xml",
    "gymnasium/envs/mujoco/assets/ant.xml",
    "gymnasium/envs/mujoco/assets/walker2d.xml",
    "mujoco/mjx/test_data/humanoid/humanoid.xml",
]
Case = tuple[str, Integrator, Cone]
CASES: list[Case] = [(m, Integrator.EULER, Cone.PYRAMIDAL) for m in MODELS]
CASES += [(m, Integrator.EULER, Cone.ELLIPTIC) for m in MODELS]
CASES += [(MODELS[0], i, Cone.PYRAMIDAL) for i in (Integrator.IMPLICIT, Integrator.IMPLICITFAST)]
# the finger's damping is too stiff for RK4, in the oracle too; the ant uses RK4 as it comes
CASES += [(m, Integrator.RK4, cone) for m in (*MODELS[:2], MODELS[3], MODELS[5]) for cone in Cone]

GROUPS = ("qpos", "qvel", "ctrl", "body_mass", "dof_damping", "geom_friction")


STEPS = (1e-5, 1e-6, 1e-7)
Variation = dict[str, Array]
Start = tuple[diffsim.State, diffsim.Inputs]


@functools.cache
def build(path: str, integrator: Integrator, cone: Cone) -> tuple[Variation, Any, Any]:
    """(zero variation, gradient, value and tangent): jitted, of (variation, ..., start, number of steps)."""
    model = diffsim.load(str(oracle.package_path(path)), keep=("dof_damping",))
    model = model.replace(opt=model.opt.replace(integrator=integrator, cone=cone, tolerance=1e-13, iterations=100))
    weight = jnp.asarray(np.random.default_rng(0).normal(size=(2, model.nv)))

    def result(variation: Variation, start: Start, count: Array) -> Array:
        state, inputs = start
        changed = model.replace(**{name: getattr(model, name) + variation[name] for name in GROUPS[3:]})
        qpos = integrate_position(model, state.qpos, variation["qpos"], jnp.ones(()))
        first = state.replace(qpos=qpos, qvel=state.qvel + variation["qvel"])
        now = inputs.replace(ctrl=inputs.ctrl + variation["ctrl"])

        def advance(carry: diffsim.State, i: Array) -> tuple[diffsim.State, None]:
            after = diffsim.step(changed, carry, now)
            return jax.tree.map(lambda new, old: jnp.where(i < count, new, old), after, carry), None

        final, _ = jax.lax.scan(advance, first, jnp.arange(10))
        return weight[0] @ position_difference(model, final.qpos, model.qpos0) + weight[1] @ final.qvel

    zero = {"qpos": jnp.zeros(model.nv), "qvel": jnp.zeros(model.nv), "ctrl": jnp.zeros(model.nu)}
    zero |= {name: jnp.zeros_like(getattr(model, name)) for name in GROUPS[3:]}

    def value_and_tangent(variation: Variation, along: Variation, start: Start, count: Array) -> tuple[Array, Array]:
        return jax.jvp(lambda v: result(v, start, count), (variation,), (along,))

    return zero, jax.jit(jax.grad(result)), jax.jit(value_and_tangent)


@functools.cache
def touching(path: str) -> list[Start]:
    """States with contacts or limits active, most rows first."""
    visited = [d for d in oracle.visited_states(oracle.load_oracle(path), 10, seed=3) if d.nefc > 0]
    return [(oracle.state_of(d), oracle.inputs_of(d)) for d in sorted(visited, key=lambda d: -d.nefc)]


def direction(zero: Variation, group: str) -> Variation:
    """A random unit variation of one group; the world keeps its mass."""
    value = np.random.default_rng(sum(map(ord, group))).normal(size=zero[group].shape)
    if group == "body_mass":
        value[0] = 0
    return {**zero, group: jnp.asarray(value / np.linalg.norm(value))}


def richardson(function: Any, along: Variation, start: Start, count: int) -> float | None:
    """Extrapolated central differences along a direction; None where no two step sizes agree."""

    def central(step: float) -> float:
        ahead, behind = (jax.tree.map(lambda t, h=h: h * t, along) for h in (step, -step))
        value = [float(function(variation, along, start, count)[0]) for variation in (ahead, behind)]
        return (value[0] - value[1]) / (2 * step)

    estimates = []
    for step in STEPS:
        coarse, fine = central(step), central(step / 2)
        estimates.append((abs(coarse - fine), (4 * fine - coarse) / 3))
    spread, best = min(estimates)
    return best if spread <= 1e-6 * max(1.0, abs(best)) else None


def check(case: Case, count: int) -> str:
    """What is wrong with the gradients of `count` steps; empty if nothing is."""
    zero, gradient, function = build(*case)
    left = [group for group in GROUPS if zero[group].size]
    for start in touching(case[0]):
        reverse = gradient(zero, start, count)
        if not all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(reverse)):
            return "not finite"
        for group in list(left):
            along = direction(zero, group)
            forward = float(function(zero, along, start, count)[1])
            backward = float(jnp.vdot(reverse[group], along[group]))
            scale = max(1.0, abs(forward))
            if abs(forward - backward) > 1e-9 * scale:
                return f"{group}: forward {forward}, reverse {backward}"
            difference = richardson(function, along, start, count)
            if difference is None:
                continue
            if abs(forward - difference) > 1e-6 * scale:
                return f"{group}: AD {forward}, differences {difference}"
            left.remove(group)
        if not left:
            return ""
    return f"no state in which differences agree with themselves: {left}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="cases whose name contains this: model, integrator, cone")
    only = parser.parse_args().only
    jax.config.update("jax_enable_x64", True)
    cases = [case for case in CASES if only in f"{case[0]} {case[1].name} {case[2].name}"]
    failed = 0
    for case in tqdm(cases, mininterval=30):
        for count in (1, 10):
            wrong = check(case, count)
            failed += bool(wrong)
            if wrong:
                print(f"WRONG: {case[0]} {case[1].name} {case[2].name}, {count} steps: {wrong}", flush=True)
        jax.clear_caches()
    print(f"gradients through steps: {len(cases)} cases, one and ten steps, {failed} failures")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())

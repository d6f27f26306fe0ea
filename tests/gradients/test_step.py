"""Gradients through whole steps: reverse = forward mode, and both against Richardson differences of our own step.

Every model starts in states with active contacts or limits (visited by the oracle). What is varied: position (in its
tangent space), velocity, control, and the model's masses, damping and friction. Steps beyond the asked number are
masked, so that one compilation serves one and ten steps.

A contact that begins or ends during the rollout makes the map discontinuous (MuJoCo's reference acceleration damps as
soon as there is contact), and a difference across it means nothing. So a state counts only if the differences agree
with themselves at two step sizes; derivatives by AD play no part in that choice.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest

import diffsim
from diffsim.enums import Cone, Integrator
from diffsim.physics.joint import integrate_position, position_difference

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
CASES = [(m, Integrator.EULER, Cone.PYRAMIDAL) for m in MODELS]
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


@pytest.mark.parametrize(("path", "integrator", "cone"), CASES)
@pytest.mark.parametrize("count", [1, 10])
def test_step_gradients(path: str, integrator: Integrator, cone: Cone, count: int) -> None:
    zero, gradient, function = build(path, integrator, cone)
    compared = dict.fromkeys((group for group in GROUPS if zero[group].size), 0)
    for start in touching(path):
        reverse = gradient(zero, start, count)
        assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(reverse))
        for group in [group for group, done in compared.items() if not done]:
            along = direction(zero, group)
            forward = float(function(zero, along, start, count)[1])
            backward = float(jnp.vdot(reverse[group], along[group]))
            scale = max(1.0, abs(forward))
            assert abs(forward - backward) <= 1e-9 * scale, f"{group}: forward {forward}, reverse {backward}"
            difference = richardson(function, along, start, count)
            if difference is not None:
                assert abs(forward - difference) <= 1e-6 * scale, f"{group}: AD {forward}, differences {difference}"
                compared[group] += 1
        if all(compared.values()):
            return
    raise AssertionError(f"no state in which differences agree with themselves: {compared}")

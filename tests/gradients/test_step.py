"""Gradients through whole steps: reverse = forward mode, and both against Richardson differences of our own step.

Every model starts in a state with active contacts or limits (found by the oracle). What is varied: position (in its
tangent space), velocity, control, and the model's masses, damping and friction. Steps beyond the asked number are
masked, so that one compilation serves one and ten steps.
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
from diffsim.physics.joint import integrate_position

Array = jax.Array

MODELS = [
    "dm_control/suite/hopper.xml",
    "dm_control/suite/walker.xml",
    "dm_control/suite/finger.xml",
    "dm_control/suite/reacher.xml",
    "gymnasium/envs/mujoco/assets/half_cheetah.xml",
    "gymnasium/envs/mujoco/assets/ant.xml",
    "gymnasium/envs/mujoco/assets/inverted_double_pendulum.xml",
    "mujoco/mjx/test_data/humanoid/humanoid.xml",
]
CASES = [(m, Integrator.EULER, Cone.PYRAMIDAL) for m in MODELS]
CASES += [(m, Integrator.EULER, Cone.ELLIPTIC) for m in MODELS]
CASES += [(m, Integrator.RK4, cone) for m in MODELS[:4] for cone in Cone]

GROUPS = ("qpos", "qvel", "ctrl", "body_mass", "dof_damping", "geom_friction")


@functools.cache
def build(path: str, integrator: Integrator, cone: Cone) -> tuple[Any, dict[str, Array], Any]:
    """(function of the variations and the number of steps, zero variations, its jitted derivatives)."""
    file = str(oracle.package_path(path))
    keep = ("dof_damping",)
    model = diffsim.load(file, keep=keep)
    model = model.replace(opt=model.opt.replace(integrator=integrator, cone=cone, tolerance=1e-13, iterations=100))
    data = touching(path)
    state, inputs = oracle.state_of(data), oracle.inputs_of(data)
    rng = np.random.default_rng(0)
    weight = jnp.asarray(rng.normal(size=(2, model.nv)))

    def result(variation: dict[str, Array], count: Array) -> Array:
        changed = model.replace(**{name: getattr(model, name) + variation[name] for name in GROUPS[3:]})
        start = state.replace(
            qpos=integrate_position(model, state.qpos, variation["qpos"], jnp.ones(())),
            qvel=state.qvel + variation["qvel"],
        )
        now = inputs.replace(ctrl=inputs.ctrl + variation["ctrl"])

        def advance(carry: diffsim.State, i: Array) -> tuple[diffsim.State, None]:
            after = diffsim.step(changed, carry, now)
            return jax.tree.map(lambda new, old: jnp.where(i < count, new, old), after, carry), None

        final, _ = jax.lax.scan(advance, start, jnp.arange(10))
        moved = jnp.concatenate([final.qpos, jnp.zeros(max(0, model.nv - model.nq))])[: model.nv]
        return weight[0] @ moved + weight[1] @ final.qvel

    zero = {"qpos": jnp.zeros(model.nv), "qvel": jnp.zeros(model.nv), "ctrl": jnp.zeros(model.nu)}
    zero |= {name: jnp.zeros_like(getattr(model, name)) for name in GROUPS[3:]}
    return (
        jax.jit(result),
        zero,
        jax.jit(jax.grad(result)),
        jax.jit(lambda v, t, n: jax.jvp(lambda x: result(x, n), (v,), (t,))[1]),
    )


@functools.cache
def touching(path: str) -> oracle.mujoco.MjData:
    """A state with contacts or limits active, away from the moment they begin."""
    mjmodel = oracle.load_oracle(path)
    states = oracle.visited_states(mjmodel, 8, seed=3)
    return max(states, key=lambda d: d.nefc)


def direction(zero: dict[str, Array], group: str) -> dict[str, Array]:
    """A random unit variation of one group."""
    rng = np.random.default_rng(sum(map(ord, group)))
    value = rng.normal(size=zero[group].shape)
    if group == "body_mass":
        value[0] = 0
    return {**zero, group: jnp.asarray(value / max(1e-9, np.linalg.norm(value)))}


def richardson(function: Any, zero: dict[str, Array], tangent: dict[str, Array], count: int) -> float:
    """Extrapolated central differences along a direction."""

    def central(step: float) -> float:
        ahead, behind = (jax.tree.map(lambda z, t, h=h: z + h * t, zero, tangent) for h in (step, -step))
        return (float(function(ahead, count)) - float(function(behind, count))) / (2 * step)

    step = 1e-5
    return (4 * central(step / 2) - central(step)) / 3


@pytest.mark.parametrize(("path", "integrator", "cone"), CASES)
def test_step_gradients(path: str, integrator: Integrator, cone: Cone) -> None:
    function, zero, gradient, tangent_of = build(path, integrator, cone)
    assert touching(path).nefc > 0
    for count in (1, 10):
        reverse = gradient(zero, count)
        assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(reverse))
        for group in GROUPS:
            if not zero[group].size:
                continue
            tangent = direction(zero, group)
            forward = float(tangent_of(zero, tangent, count))
            backward = float(
                sum(jnp.vdot(g, t) for g, t in zip(jax.tree.leaves(reverse), jax.tree.leaves(tangent), strict=True))
            )
            scale = max(1.0, abs(forward))
            assert abs(forward - backward) <= 1e-9 * scale, (
                f"{group}, {count} steps: forward {forward}, reverse {backward}"
            )
            difference = richardson(function, zero, tangent, count)
            assert abs(forward - difference) <= 1e-6 * scale, (
                f"{group}, {count} steps: AD {forward}, differences {difference}"
            )

"""Derivatives of steps by forces of motion beside those by the entries of M, first and second."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from uncompiled import uncompiled

import diffsim
from diffsim.dynamics.bias import motion_forces
from diffsim.simulate import forward as pipeline

OPTION = '<option timestep="0.005" {}/>'
BODIES = """
<worldbody>
  <geom type="plane" size="5 5 .1"/>
  <body pos="0 0 .09"><freejoint/><geom type="sphere" size=".1" mass="1"/>
    <body pos=".2 0 0"><joint axis="0 1 0" range="-10 10" {} armature=".02"/>
      <geom type="capsule" size=".03" fromto="0 0 0 .2 0 .05" mass=".4"/>
      <body pos=".2 0 0"><joint type="ball" damping=".1"/>
        <geom type="box" size=".05 .02 .03" pos=".05 0 .02" mass=".3"/></body></body>
    <body pos="-.1 0 .1"><joint type="slide" axis="1 0 1"/><geom type="sphere" size=".02" mass=".2"/></body></body>
</worldbody>"""
UNDAMPED = '><flag eulerdamp="disable"/></option><option '
TENDON = '<tendon><fixed armature=".1"><joint joint="hinge" coef="1"/></fixed></tendon>'


def scene(option: str, tendon: str = "") -> diffsim.Model:
    bodies = BODIES.format('name="hinge"')
    return diffsim.load(f"<mujoco>{OPTION.format(option)}{bodies}{tendon}</mujoco>")


def start(model: diffsim.Model) -> diffsim.State:
    rng = np.random.default_rng(0)
    state = diffsim.make_state(model)
    return state.replace(qvel=jnp.asarray(rng.normal(size=model.nv)), qpos=state.qpos.at[7].set(0.3))


def next_velocity(model: diffsim.Model, state: diffsim.State, change: jax.Array) -> jax.Array:
    """Of a state and a model that change with (nv + 2,) numbers: velocity, height, mass and armature."""
    moved = state.replace(qvel=state.qvel + change[: model.nv], qpos=state.qpos.at[2].add(change[model.nv]))
    heavier = 1 + change[-1]
    changed = model.replace(body_mass=model.body_mass * heavier, dof_armature=model.dof_armature + change[-1])
    return diffsim.step(changed, moved).qvel


@pytest.fixture
def by_entries(monkeypatch):
    """To take derivatives by the entries of M instead."""
    return lambda: monkeypatch.setattr(pipeline, "motion_forces", lambda *_: None)


def test_first_and_second_derivatives_are_those_by_entries(by_entries):
    model = scene(UNDAMPED)
    state, zero = start(model), jnp.zeros(model.nv + 2)
    weight = jnp.asarray(np.random.default_rng(1).normal(size=model.nv))

    def slopes() -> list:
        whole = [jax.jacrev, jax.jacfwd]
        first = [uncompiled(way(lambda change: next_velocity(model, state, change)))(zero) for way in whole]
        second = jax.jacfwd(jax.grad(lambda change: weight @ next_velocity(model, state, change)))
        return [*first, uncompiled(second)(zero)]

    found = slopes()
    by_entries()
    for mine, expected in zip(found, slopes(), strict=True):
        assert np.max(np.abs(expected)) > 1e-3
        assert np.max(np.abs(mine - expected)) < 1e-10 * np.max(np.abs(expected))


@pytest.mark.parametrize(
    ("option", "tendon", "there"),
    [
        ('integrator="RK4"', "", True),
        (UNDAMPED, "", True),
        ("", "", False),
        ('integrator="implicitfast"', "", False),
        ('integrator="RK4" noslip_iterations="3"', "", False),
        ('integrator="RK4"', TENDON, False),
    ],
)
def test_where_the_entries_are_left_out(option, tendon, there):
    model = scene(option, tendon)
    data, rest = jax.eval_shape(diffsim.forward, model, start(model)), jnp.zeros(model.nv)
    assert (motion_forces(model, rest, data, data, rest) is not None) == there

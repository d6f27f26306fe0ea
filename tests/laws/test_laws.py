"""Laws that need no oracle: energy, momentum, a positive definite M, batch = loop, isolation of worlds."""

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest

import diffsim
from diffsim.base.enums import Status
from tests.uncompiled import uncompiled

FLOATING = """
<mujoco>
  <option gravity="0 0 0" timestep="0.001" integrator="RK4"/>
  <worldbody>
    <body pos="0 0 1">
      <freejoint/>
      <geom type="box" size="0.1 0.2 0.3" contype="0" conaffinity="0"/>
      <body pos="0.2 0 0.3">
        <joint type="ball" pos="0 0 -0.1"/>
        <geom type="capsule" size="0.05 0.2" contype="0" conaffinity="0"/>
        <body pos="0 0 0.4">
          <joint type="hinge" axis="0 1 0"/>
          <joint type="slide" axis="1 0 0"/>
          <geom type="sphere" size="0.1" contype="0" conaffinity="0"/>
        </body>
      </body>
    </body>
  </worldbody>
</mujoco>
"""
HOPPER = "dm_control/suite/hopper.xml"


def momentum_and_energy(model: diffsim.Model, state: diffsim.State) -> jax.Array:
    """Linear and angular momentum of everything about the origin, and the energy, for which no flag is set."""
    data = diffsim.forward(model, state)
    inertia = data.cinert[1:]
    velocity = data.cvel[1:]
    from diffsim.math.spatial import inertia_mul

    about_com = jnp.sum(inertia_mul(inertia, velocity), axis=0)
    angular = about_com[:3] + jnp.cross(data.subtree_com[1], about_com[3:])
    return jnp.concatenate([about_com[3:], angular, jnp.sum(data.energy)[None]])


def test_momentum_and_energy_are_kept_without_forces() -> None:
    model = diffsim.load(FLOATING)
    state = diffsim.make_state(model)
    state = state.replace(qvel=jnp.asarray(np.random.default_rng(0).normal(size=model.nv)))
    measure = uncompiled(momentum_and_energy)
    before = measure(model, state)
    assert before[-1] > 0
    run = jax.jit(lambda m, s: jax.lax.fori_loop(0, 500, lambda _, x: diffsim.step(m, x), s))
    after = measure(model, run(model, state))
    # fourth order: the drift over half a second is far below the values themselves
    np.testing.assert_allclose(after, before, rtol=1e-6, atol=1e-7)


TOP = """
<mujoco>
  <option gravity="0 0 0" timestep="0.01" integrator="implicitfast"/>
  <worldbody>
    <body><freejoint/><inertial pos="0 0 0" mass="1.5" diaginertia="0.02 0.05 0.06"/></body>
    <body pos="1 0 0"><freejoint/>
      <inertial pos="0.05 -0.02 0.03" quat="0.8 0.3 0.1 0.2" mass="0.7" diaginertia="0.01 0.03 0.035"/>
    </body>
  </worldbody>
</mujoco>
"""


def test_the_midpoint_rule_keeps_energy_and_momentum_of_free_tops() -> None:
    model = diffsim.load(TOP)
    state = diffsim.make_state(model)
    state = state.replace(qvel=jnp.asarray(5 * np.random.default_rng(0).normal(size=model.nv)))

    @uncompiled
    def invariants(m: diffsim.Model, s: diffsim.State) -> jax.Array:
        data = diffsim.forward(m, s)
        momenta = [diffsim.support.angular_momentum_matrix(m, data, body) @ s.qvel for body in (1, 2)]
        return jnp.concatenate([*momenta, 0.5 * jnp.vdot(s.qvel, data.qM @ s.qvel)[None]])

    before = invariants(model, state)
    run = jax.jit(lambda m, s: jax.lax.fori_loop(0, 1000, lambda _, x: diffsim.step(m, x), s))
    after = invariants(model, run(model, state))
    size = np.linalg.norm(np.asarray(before)[:6].reshape(2, 3), axis=1)
    np.testing.assert_allclose(np.linalg.norm(np.asarray(after)[:6].reshape(2, 3), axis=1), size, rtol=1e-6)
    np.testing.assert_allclose(after[6], before[6], rtol=1e-6)


def test_a_bouncing_ball_never_gains_energy() -> None:
    model = diffsim.load(
        "<mujoco><option timestep='0.001'/><worldbody><geom type='plane' size='1 1 1'/><body pos='0 0 0.5'><freejoint/>"
        "<geom size='0.1'/></body></worldbody></mujoco>"
    )
    state = diffsim.make_state(model)
    height = lambda state, data: jnp.stack([state.qpos[2], state.qvel[2]])  # noqa: E731
    _, path = jax.jit(lambda m, s: diffsim.rollout(m, s, jnp.zeros((1500, 0)), height))(model, state)
    energy = 9.81 * path[:, 0] + 0.5 * path[:, 1] ** 2
    resting = path[-1]
    assert float(energy.max()) <= float(energy[0]) * (1 + 1e-2)
    assert abs(float(resting[0]) - 0.1) < 1e-2 and abs(float(resting[1])) < 1e-2


def test_inertia_is_symmetric_positive_definite() -> None:
    model, mjmodel = oracle.load_pair(HOPPER)
    run = uncompiled(diffsim.forward)
    for seed in range(5):
        data = run(model, oracle.state_of(oracle.sample(mjmodel, seed)))
        np.testing.assert_allclose(data.qM, data.qM.T, atol=1e-14)
        assert np.linalg.eigvalsh(data.qM).min() > 0


@pytest.fixture(scope="module")
def worlds() -> tuple[diffsim.Model, diffsim.State, diffsim.Inputs]:
    model, mjmodel = oracle.load_pair(HOPPER)
    samples = oracle.visited_states(mjmodel, 8)
    stack = lambda *xs: jnp.stack([jnp.asarray(x) for x in xs])  # noqa: E731
    states = jax.tree.map(stack, *[oracle.state_of(d) for d in samples])
    inputs = jax.tree.map(stack, *[oracle.inputs_of(d) for d in samples])
    return model, states, inputs


def test_a_batch_is_a_loop(worlds: tuple[diffsim.Model, diffsim.State, diffsim.Inputs]) -> None:
    model, states, inputs = worlds
    batched = uncompiled(jax.vmap(diffsim.step, in_axes=(None, 0, 0)))(model, states, inputs)
    single = uncompiled(diffsim.step)
    for i in range(8):
        one = single(model, *(jax.tree.map(lambda x, i=i: x[i], part) for part in (states, inputs)))
        np.testing.assert_allclose(batched.qvel[i], one.qvel, rtol=1e-9, atol=1e-9)


# one program for all fields
forward = uncompiled(jax.vmap(diffsim.forward, in_axes=(None, 0, 0)))


@pytest.mark.parametrize("field", ["qpos", "qvel", "ctrl"])
def test_a_bad_world_is_flagged_and_leaves_the_others_alone(
    worlds: tuple[diffsim.Model, diffsim.State, diffsim.Inputs], field: str
) -> None:
    model, states, inputs = worlds
    clean = forward(model, states, inputs)
    target = inputs if field == "ctrl" else states
    spoiled = target.replace(**{field: getattr(target, field).at[3, 0].set(jnp.nan)})
    dirty = forward(model, *((states, spoiled) if field == "ctrl" else (spoiled, inputs)))
    assert int(dirty.status[3]) & getattr(Status, f"BAD_{field.upper()}")
    others = np.arange(8) != 3
    for name in ("qacc", "qfrc_constraint", "xpos", "status", "sensordata"):
        np.testing.assert_array_equal(
            np.asarray(getattr(clean, name))[others], np.asarray(getattr(dirty, name))[others]
        )
    assert any("1 of 8 worlds" in line for line in diffsim.check(dirty))
    if field == "ctrl":
        assert bool(jnp.all(jnp.isfinite(dirty.qacc)))

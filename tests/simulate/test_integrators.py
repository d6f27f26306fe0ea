"""One step of each integrator, fed the oracle's own Data: velocity derivatives and next states.

The oracle keeps the derivative only up to its sparsity, so its matrix is compared where it has entries; beyond them
ours is zero.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest

import diffsim
from diffsim.base.enums import DisableBit, Integrator
from diffsim.simulate.integrate.derivative import velocity_derivative
from tests.uncompiled import uncompiled

IMPLICIT = (Integrator.IMPLICIT, Integrator.IMPLICITFAST)
# more models: tests/parity_wide.py
MODELS = [
    "smooth",
    "spinning",
    "dm_control/suite/fish.xml",
    "gymnasium/envs/mujoco/assets/ant.xml",
    "mujoco/mjx/test_data/actuator/arm26.xml",
    "mujoco/mjx/test_data/tendon/tendon.xml",
]
derivative = uncompiled(lambda *given, coriolis: velocity_derivative(*given, coriolis=coriolis).dense)
forward, integrate = uncompiled(diffsim.forward), uncompiled(diffsim.integrate)


@functools.cache
def pair(path: str, integrator: Integrator) -> tuple[diffsim.Model, Any]:
    mjmodel = oracle.load_oracle(path).__copy__()
    mjmodel.opt.integrator = integrator
    mjmodel.opt.solver = oracle.mujoco.mjtSolver.mjSOL_NEWTON
    mjmodel.opt.disableflags |= DisableBit.CONTACT
    mjmodel.opt.tolerance, mjmodel.opt.iterations = 1e-14, 200
    # of small ellipsoids the oracle's derivative of drag is wrong: it divides by a floor of 1e-15
    mjmodel.geom_size[mjmodel.geom_fluid[:, 0] > 0] *= 5
    for name in ("body_sameframe", "geom_sameframe", "site_sameframe"):
        getattr(mjmodel, name)[:] = 0
    return oracle.from_mujoco(mjmodel), mjmodel


def fed(ours: diffsim.Data, mjmodel: Any, data: Any) -> diffsim.Data:
    """Our Data with the oracle's values wherever it has them."""
    skipped = {"contact", "efc", "status", "sensordata", "solver_niter", "energy", "actuator_force"}
    skipped |= {"row_force", "sensor_now", "tree_sleep"}
    names = [f.name for f in dataclasses.fields(ours) if f.name not in skipped and not f.name.startswith("solver")]
    values = {name: jax.tree.map(jnp.asarray, oracle.field_of(name, mjmodel, data)) for name in names}
    return dataclasses.replace(ours, **values)


@pytest.mark.parametrize("integrator", IMPLICIT)
@pytest.mark.parametrize("path", MODELS)
def test_step_matches_oracle(path: str, integrator: Integrator) -> None:
    model, mjmodel = pair(path, integrator)
    coriolis = integrator == Integrator.IMPLICIT
    for seed in range(3):
        data = oracle.sample(mjmodel, seed)
        state, inputs = oracle.state_of(data), oracle.inputs_of(data)
        given = fed(forward(model, state, inputs), mjmodel, data)
        after = integrate(model, state, inputs, given)
        oracle.mujoco.mj_implicit(mjmodel, data)
        expected = oracle.sparse(data.qDeriv, mjmodel.D_rownnz, mjmodel.D_rowadr, mjmodel.D_colind, mjmodel.nv)
        ours = derivative(model, state, inputs, given, coriolis=coriolis)
        scale = 1 + np.max(np.abs(expected))
        oracle.assert_close(f"{path} qDeriv", ours, expected, 1e-10 * scale)
        for name in ("qvel", "qpos", "act"):
            value = getattr(data, name)
            oracle.assert_close(
                f"{path} {name}", getattr(after, name), value, 1e-9 * (1 + np.abs(value).max(initial=0))
            )


def test_damping_of_bodies_whose_inertia_is_diagonal() -> None:
    """`implicitfast` has no room for damping beside the diagonal of such bodies."""
    ball = '<geom type="ellipsoid" size=".05 .07 .04"/><site name="end" pos="0 -.03 0"/>'
    xml = f"""<mujoco><option timestep=".004" integrator="implicitfast"/><worldbody><site name="hook" pos=".1 0 1"/>
      <body pos="0 .3 .4"><freejoint/>{ball}</body></worldbody>
      <tendon><spatial name="rope" damping="1"><site site="end"/><site site="hook"/></spatial></tendon>
      <actuator><velocity tendon="rope" kv="2"/></actuator></mujoco>"""
    mjmodel = oracle.load_oracle(xml)
    assert mjmodel.nC == mjmodel.nv
    data = oracle.sample(mjmodel, 0)
    state, inputs = oracle.state_of(data), oracle.inputs_of(data)
    model = oracle.from_mujoco(mjmodel)
    after = integrate(model, state, inputs, forward(model, state, inputs))
    oracle.mujoco.mj_step(mjmodel, data)
    oracle.assert_close("qvel", after.qvel, data.qvel, 1e-12)


def test_actuators_that_add_energy_need_no_positive_inertia() -> None:
    """A damper with a negative control, which MuJoCo's derivative does not clamp, and a servo with negative damping.

    Both make M - h d force / d velocity indefinite; MuJoCo factors it without roots, and all numbers stay finite.
    """
    xml = """<mujoco><option integrator="implicitfast"/><worldbody><body><joint name="a" axis="0 1 0"/>
      <geom type="capsule" size=".01" fromto="0 0 0 .2 0 0"/><body pos=".2 0 0"><joint name="b" axis="0 1 0"/>
      <geom type="capsule" size=".01" fromto="0 0 0 .2 0 0"/></body></body></worldbody><actuator>
      <damper joint="a" kv="10" ctrlrange="0 1"/><general joint="b" biastype="affine" biasprm="0 -1 3"/>
      </actuator></mujoco>"""
    mjmodel = oracle.load_oracle(xml)
    data = oracle.sample(mjmodel, 0)
    data.ctrl[:] = -0.9, 0.3
    model = oracle.from_mujoco(mjmodel)
    state, inputs = oracle.state_of(data), oracle.inputs_of(data)

    def velocity(ctrl: jax.Array, model: diffsim.Model, state: Any, inputs: Any) -> jax.Array:
        return diffsim.step(model, state, inputs.replace(ctrl=ctrl)).qvel

    def expected(ctrl: np.ndarray) -> np.ndarray:
        later = oracle.mujoco.MjData(mjmodel)
        oracle.mujoco.mj_copyData(later, mjmodel, data)
        later.ctrl[:] = ctrl
        oracle.mujoco.mj_step(mjmodel, later)
        return later.qvel.copy()

    given = inputs.ctrl, model, state, inputs
    oracle.assert_close("qvel", uncompiled(velocity)(*given), expected(data.ctrl), 1e-10)
    width = 1e-6
    slopes = [(expected(data.ctrl + width * e) - expected(data.ctrl - width * e)) / (2 * width) for e in np.eye(2)]
    oracle.assert_close("reverse mode", uncompiled(jax.jacrev(velocity))(*given), np.array(slopes).T, 1e-6)
    oracle.assert_close("forward mode", uncompiled(jax.jacfwd(velocity))(*given), np.array(slopes).T, 1e-6)


PUSHED = """<mujoco><option integrator="{}" timestep=".01"/><worldbody><body><joint name="j" axis="0 1 0" {}/>
  <geom size=".1" pos=".2 0 0" mass=".01"/></body></worldbody><actuator>
  <general joint="j" gainprm="1" biastype="affine" biasprm="0 0 {}"/></actuator></mujoco>"""


@pytest.mark.parametrize("integrator", ["Euler", "implicitfast"])
def test_dampers_may_push(integrator: str) -> None:
    """A negative damping, in the file or later; and an actuator that pushes after `replace`, in some worlds."""
    pushed = diffsim.load(PUSHED.format(integrator, 'damping="-.1"', 0))
    damped = diffsim.load(PUSHED.format(integrator, 'damping=".1"', -0.1))

    def next_velocity(model: diffsim.Model) -> np.ndarray:
        return uncompiled(diffsim.step)(model, diffsim.make_state(model).replace(qvel=np.ones(1))).qvel

    def expected(damping: str, bias: float) -> np.ndarray:
        mjmodel = oracle.load_oracle(PUSHED.format(integrator, damping, bias))
        data = oracle.mujoco.MjData(mjmodel)
        data.qvel[:] = 1
        oracle.mujoco.mj_step(mjmodel, data)
        return data.qvel

    oracle.assert_close("qvel", next_velocity(pushed), expected('damping="-.1"', 0), 1e-10)
    later = damped.replace(dof_damping=-damped.dof_damping)
    oracle.assert_close("qvel", next_velocity(later), expected('damping="-.1"', -0.1), 1e-10)
    prm = np.stack([damped.actuator_biasprm, damped.actuator_biasprm])
    prm[1, 0, 2] = 0.2
    worlds = damped.replace(actuator_biasprm=prm)
    assert worlds.topology.can_accelerate.all()
    one = damped.replace(actuator_biasprm=prm[1])
    oracle.assert_close("qvel", next_velocity(one), expected('damping=".1"', 0.2), 1e-10)

"""Inverse dynamics against the oracle's, continuous and discrete, and forward and inverse against each other."""

from typing import Any

import numpy as np
import oracle
import pytest

import diffsim
from diffsim.base.enums import EnableBit, Integrator
from tests.simulate.test_integrators import pair
from tests.uncompiled import uncompiled

inverse, forward, integrate = uncompiled(diffsim.inverse), uncompiled(diffsim.forward), uncompiled(diffsim.integrate)

# the continuous inverse does not see the integrator
INVERSES = [
    (Integrator.EULER, 0),
    *((kind, EnableBit.INVDISCRETE) for kind in (Integrator.EULER, Integrator.IMPLICIT, Integrator.IMPLICITFAST)),
]


def flagged(path: str, integrator: Integrator, bit: int) -> tuple[diffsim.Model, Any]:
    _, mjmodel = pair(path, integrator)
    mjmodel = mjmodel.__copy__()
    mjmodel.opt.enableflags |= bit
    return oracle.from_mujoco(mjmodel), mjmodel


@pytest.mark.parametrize("path", ["smooth", "constraint_rows"])
@pytest.mark.parametrize(("integrator", "discrete"), INVERSES)
def test_inverse_matches_oracle(path: str, integrator: Integrator, discrete: int) -> None:
    model, mjmodel = flagged(path, integrator, discrete)
    for seed in range(3):
        data = oracle.sample(mjmodel, seed)
        data.qacc[:] = np.random.default_rng(seed).normal(size=mjmodel.nv)
        ours = inverse(model, oracle.state_of(data), data.qacc.copy(), oracle.inputs_of(data))
        oracle.mujoco.mj_inverse(mjmodel, data)
        for name in ("qfrc_inverse", "qfrc_constraint"):
            expected = getattr(data, name)
            oracle.assert_close(f"{path} {name}", getattr(ours, name), expected, 1e-9 * (1 + np.abs(expected).max()))


@pytest.mark.parametrize("integrator", [Integrator.EULER, Integrator.IMPLICIT, Integrator.IMPLICITFAST])
def test_inverse_undoes_a_step(integrator: Integrator) -> None:
    model, mjmodel = flagged("constraint_rows", integrator, EnableBit.INVDISCRETE | EnableBit.FWDINV)
    data = oracle.sample(mjmodel, 1)
    state, inputs = oracle.state_of(data), oracle.inputs_of(data)
    now = forward(model, state, inputs)
    after = integrate(model, state, inputs, now)
    back = inverse(model, state, (after.qvel - state.qvel) / model.opt.timestep, inputs)
    applied = oracle.applied_force(mjmodel, data) + np.asarray(now.qfrc_actuator)
    scale = 1 + np.abs(applied).max() + np.abs(now.qfrc_constraint).max()
    oracle.assert_close("qfrc_inverse", back.qfrc_inverse, applied, 1e-9 * scale)
    assert np.all(np.asarray(now.solver_fwdinv) < 1e-6)


def test_discrete_inverse_of_runge_kutta_is_refused() -> None:
    model, mjmodel = flagged("smooth", Integrator.RK4, EnableBit.INVDISCRETE)
    data = oracle.sample(mjmodel, 0)
    with pytest.raises(diffsim.UnsupportedError, match="RK4"):
        inverse(model, oracle.state_of(data), data.qacc, oracle.inputs_of(data))

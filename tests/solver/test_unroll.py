"""Derivatives of few iterations of the solver, the default: the warm start hands them from step to step."""

import jax
import jax.numpy as jnp
import numpy as np

import diffsim
from diffsim.base.enums import Solver
from tests.uncompiled import uncompiled

# friction and limits change their zones on the way
ARM = """<mujoco><option timestep=".01"/>
<default><geom type="capsule" size=".05" fromto="0 0 0 .3 0 0"/><joint axis="0 1 0" frictionloss=".2"/></default>
<worldbody><body><joint name="a" range="-30 10"/><geom/><body pos=".3 0 0"><joint range="-5 5"/><geom/></body></body>
</worldbody><actuator><motor joint="a"/></actuator></mujoco>"""


def test_a_rollout_of_few_iterations_equals_differences() -> None:
    """Other numbers of iterations: tests/gradient_bars."""
    model = diffsim.load(ARM)
    model = model.replace(opt=model.opt.replace(iterations=1))

    def result(x: jax.Array) -> jax.Array:
        state = diffsim.make_state(model).replace(qvel=x[:2])
        final, _ = diffsim.rollout(model, state, jnp.broadcast_to(x[2:], (10, 1)))
        return jnp.concatenate([final.qvel, final.qpos])

    values, jacobians = uncompiled(jax.vmap(result)), uncompiled(jax.vmap(jax.jacfwd(result)))
    starts = np.stack([np.random.default_rng(seed).normal(size=3) * [2, 2, 1] for seed in range(4)])

    def central(eps: float) -> np.ndarray:
        around = np.concatenate([starts + sign * eps * e for e in np.eye(3) for sign in (1, -1)])
        ahead, behind = np.moveaxis(np.asarray(values(around)).reshape(3, 2, len(starts), -1), 1, 0)
        return np.moveaxis((ahead - behind) / (2 * eps), 0, -1)

    expected = (4 * central(1e-5) - central(2e-5)) / 3
    for found, slope in zip(jacobians(starts), expected, strict=True):
        np.testing.assert_allclose(found, slope, rtol=0, atol=1e-6 * np.abs(slope).max())


def test_derivatives_are_those_of_iterations_where_these_are_few() -> None:
    opt = diffsim.load(ARM).opt
    assert opt.solver_gradient == "auto" and not opt.unrolled
    assert opt.replace(iterations=1).unrolled and opt.replace(iterations=8).unrolled
    assert not opt.replace(iterations=9).unrolled and opt.replace(solver_gradient="unroll").unrolled
    # what has a derivative of the optimum alone
    for only in ({"solver": Solver.PGS}, {"contact_reach": 0.1}, {"solver_gradient": "implicit"}):
        assert not opt.replace(iterations=1, **only).unrolled


def test_a_rollout_reports_its_worst_status() -> None:
    model = diffsim.load(ARM)
    ctrl = np.zeros((2, 6, 1))
    ctrl[1, 3] = np.nan
    read = lambda state, data: data.status  # noqa: E731
    run = uncompiled(jax.vmap(lambda ctrl: diffsim.rollout(model, diffsim.make_state(model), ctrl, read)))
    result = run(ctrl)
    final, statuses = result
    assert final is result.final and np.array_equal(statuses != 0, np.isnan(ctrl[..., 0]))
    assert np.array_equal(result.status, np.max(statuses, axis=1))
    assert np.array_equal(diffsim.is_bad(result), [False, True])
    assert diffsim.check(result)[0].startswith("BAD_CTRL in 1 of 2 worlds")

"""Mistakes of users: each gets one sentence that says what was given, what was expected, and what to do."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import diffsim
import diffsim.optimize
from diffsim.base.enums import Integrator, Solver, Status
from tests.uncompiled import uncompiled

BALL = """<mujoco><worldbody><geom type="plane" size="1 1 1"/><body name="m" mocap="true"><geom size=".01"/></body>
  <body pos="0 0 1"><freejoint/><geom size=".1"/></body><body><joint name="j"/><geom size=".1"/></body></worldbody>
  <actuator><motor joint="j"/></actuator></mujoco>"""
PENDULUM = "<mujoco><worldbody><body><joint/><geom size='.1' pos='.2 0 0'/></body></worldbody></mujoco>"


forward = uncompiled(diffsim.forward)


@pytest.fixture(scope="module")
def model() -> diffsim.Model:
    return diffsim.load(BALL)


@pytest.fixture(scope="module")
def state(model: diffsim.Model) -> diffsim.State:
    return diffsim.make_state(model)


@pytest.mark.parametrize("function", [diffsim.step, diffsim.step_data, diffsim.forward])
def test_wrong_arguments(model: diffsim.Model, state: diffsim.State, function) -> None:
    inputs = diffsim.make_inputs(model)
    batch = jax.vmap(lambda _: state)(jnp.arange(3))
    with pytest.raises(ValueError, match=r"state.time has shape \(3,\), expected \(\): a batch needs jax.vmap"):
        function(model, batch)
    with pytest.raises(ValueError, match=r"state.qpos has shape \(1,\), expected \(8,\).*of another model"):
        function(model, diffsim.make_state(diffsim.load(PENDULUM)))
    with pytest.raises(TypeError, match=r"model is a State, expected Model.*arguments in order: model, state, inputs"):
        function(state, model)
    with pytest.raises(TypeError, match=r"inputs is a ndarray, expected Inputs, such as .*replace\(ctrl=...\)"):
        function(model, state, np.zeros(1))
    scalar = diffsim.Inputs(**{**vars(inputs), "ctrl": jnp.zeros(())})
    with pytest.raises(ValueError, match=r"inputs.ctrl has shape \(\), expected \(1,\)"):
        function(model, state, scalar)
    with pytest.raises(TypeError, match=r"state.qpos is float32, the model is float64"):
        function(model, diffsim.State(**{**vars(state), "qpos": state.qpos.astype(jnp.float32)}))
    with pytest.raises(ValueError, match=r"model.body_mass has a batch axis.*model_axes"):
        function(model.replace(body_mass=jnp.ones((3, model.nbody))), state)


def test_float64_after_loading_is_not_silent() -> None:
    with jax.enable_x64(False):
        model = diffsim.load(PENDULUM)
        state = diffsim.make_state(model)
        uncompiled(diffsim.step)(model, state)
    with pytest.warns(diffsim.PrecisionWarning, match="switch it on before diffsim.load"):
        later = uncompiled(diffsim.step)(model, state)
    assert later.qpos.dtype == jnp.float32


def test_vectors_of_another_length(model: diffsim.Model, state: diffsim.State) -> None:
    """Neither stretched nor cut."""
    data, support = forward(model, state), diffsim.support
    long, point = np.zeros(model.nv + 1), np.zeros(3)
    with pytest.raises(ValueError, match=r"qacc has shape \(8,\), expected \(7,\); batch with jax.vmap"):
        diffsim.inverse(model, state, long)
    for query in (support.constraint_cost, support.constraint_gradient):
        with pytest.raises(ValueError, match="qacc has shape"):
            query(model, data, long)
    with pytest.raises(ValueError, match=r"qacc has shape \(1,\)"):
        support.rne(model, state, data, np.ones(1))
    with pytest.raises(ValueError, match=r"point has shape \(\), expected \(3,\)"):
        support.jac(model, data, 0.0, 1)
    with pytest.raises(ValueError, match="torque has shape"):
        support.apply_ft(model, data, point, np.ones(1), point, 1)
    with pytest.raises(ValueError, match="qvel has shape"):
        support.integrate_pos(model, state.qpos, long, 0.1)
    with pytest.raises(ValueError, match="qpos2 has shape"):
        support.differentiate_pos(model, 0.1, state.qpos, np.zeros(9))


@pytest.mark.parametrize("index", [-1, 4])
def test_objects_that_do_not_exist(model: diffsim.Model, state: diffsim.State, index: int) -> None:
    data = forward(model, state)
    with pytest.raises(IndexError, match=f"geom {index} does not exist: the model has 4"):
        diffsim.support.geom_force(model, data, index)
    with pytest.raises(IndexError, match=f"body {index} does not exist"):
        diffsim.support.jac_body(model, data, index)


def test_check_wants_data(model: diffsim.Model, state: diffsim.State) -> None:
    with pytest.raises(TypeError, match=r"a State carries no status; diffsim.step_data and rollout give what does"):
        diffsim.check(state)
    with pytest.raises(TypeError, match=r"data is a State, expected"):
        diffsim.is_bad(state)


def test_every_public_function_says_what_it_expects(model: diffsim.Model, state: diffsim.State) -> None:
    with pytest.raises(TypeError, match=r"data is a State, expected Data, such as diffsim.forward"):
        diffsim.support.mul_m(model, state, jnp.zeros(7))
    with pytest.raises(TypeError, match=r"vector is a str, expected an array of numbers"):
        diffsim.support.mul_m(model, forward(model, state), "a")
    with pytest.raises(TypeError, match=r"model is a dict, expected Model, such as diffsim.load"):
        diffsim.make_state({})
    with pytest.raises(TypeError, match=r"mjmodel is a str, expected mujoco.MjModel"):
        diffsim.from_mujoco("a.xml")
    with pytest.raises(TypeError, match=r"ctrl is a field of Inputs, not of ndarray"):
        model.set_ctrl(np.zeros(1), {0: 1.0})
    with pytest.raises(TypeError, match=r"system is a Model, expected Linearization, such as diffsim.optimize.lin"):
        diffsim.optimize.lqr(model, 1, 1)


def test_numbers_and_sequences_do_for_arrays(model: diffsim.Model, state: diffsim.State) -> None:
    moved = diffsim.support.integrate_pos(model, state.qpos, [0.0] * 6 + [1.0], 0.5)
    assert moved[-1] == 0.5


def test_options_take_names_and_refuse_the_rest(model: diffsim.Model) -> None:
    opt = model.opt.replace(integrator="rk4", solver=1, iterations=np.int64(3))
    assert (opt.integrator, opt.solver, opt.iterations) == (Integrator.RK4, Solver.CG, 3)
    wrong = {
        "integrator": ("RK5", "integrator: 'RK5' is not one of EULER.*did you mean 'rk4'"),
        "solver": (17, "solver: 17 is not a valid Solver"),
        "iterations": (-1, "iterations: -1 is not a whole number"),
        "ls_iterations": (2.5, "ls_iterations: 2.5 is not"),
        "disableflags": (True, "disableflags: True is not"),
        "solver_gradient": ("unrol", "solver_gradient: 'unrol' is not one of.*did you mean 'unroll'"),
    }
    for name, (value, message) in wrong.items():
        with pytest.raises(ValueError, match=message):
            model.opt.replace(**{name: value})


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize(
    ("field", "bit"),
    [("time", Status.BAD_TIME), ("mocap_quat", Status.BAD_INPUT), ("mocap_pos", Status.BAD_INPUT),
     ("xfrc_applied", Status.BAD_INPUT), ("qpos", Status.BAD_QPOS)],
)  # fmt: skip
def test_numbers_that_are_none_are_flagged(
    model: diffsim.Model, state: diffsim.State, field: str, bit: Status, value: float
) -> None:
    inputs = diffsim.make_inputs(model)
    owner = state if hasattr(state, field) else inputs
    changed = owner.replace(**{field: getattr(owner, field).at[..., 0].set(value) if field != "time" else value})
    given = (changed, inputs) if owner is state else (state, changed)
    # numpy would warn
    data = jax.jit(diffsim.forward)(model, *given)
    assert int(data.status) & bit and bool(diffsim.is_bad(data))
    assert any(line.startswith(bit.name) for line in diffsim.check(data))


def test_a_solver_that_stops_early_is_information() -> None:
    tower = '<body pos="0 0 {}"><freejoint/><geom type="box" size=".1 .1 .1"/></body>'
    boxes = "".join(tower.format(0.1 + 0.19 * i) for i in range(3))
    model = diffsim.load(f'<mujoco><worldbody><geom type="plane" size="1 1 1"/>{boxes}</worldbody></mujoco>')
    model = model.replace(opt=model.opt.replace(solver="cg", iterations=1, tolerance=0.0))
    _, data = uncompiled(diffsim.step_data)(model, diffsim.make_state(model))
    assert int(data.status) == Status.NOT_CONVERGED and not diffsim.is_bad(data)
    assert len(diffsim.check(data)) == 1


GIMBAL = """<mujoco><worldbody><body><joint axis="0 0 1"/><joint axis="0 1 0"/><joint axis="1 0 0"/>
  <geom size=".1" pos=".3 .1 .2"/></body></worldbody></mujoco>"""
QUARTER = np.pi / 2


@pytest.mark.parametrize(
    ("qpos", "changes", "advice"),
    [
        ([0, QUARTER, 0], {}, r"singular here: nothing resists degrees of freedom \[0, 2\]; give them armature"),
        ([0, 0, 0], {"opt": {"gravity": [0, 0, np.nan]}}, r"forces on degrees of freedom \[.*\] are not finite"),
        ([0, 0, 0], {"opt": {"gravity": [0, 0, 1e12]}}, "reduce the timestep"),
        ([np.nan, 0, 0], {}, "follows from other bad numbers"),
    ],
)
def test_advice_fits_the_cause(qpos: list, changes: dict, advice: str) -> None:
    model = diffsim.load(GIMBAL)
    model = model.replace(**{name: model.opt.replace(**values) for name, values in changes.items()})
    state = diffsim.make_state(model)
    states = jax.vmap(lambda q: state.replace(qpos=q))(jnp.asarray([[0.1, 0.2, 0.3], qpos]))
    data = uncompiled(jax.vmap(diffsim.forward, in_axes=(None, 0)))(model, states)
    lines = [line for line in diffsim.check(data) if line.startswith("BAD_QACC")]
    # a world that is well gets no advice
    assert len(lines) == 1 and re.search(advice, lines[0])

"""A step as a program that other processes and machines run (`jax.export`)."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import diffsim

LEG = """<mujoco><worldbody><geom type="plane" size="1 1 1"/><body pos="0 0 .09"><freejoint/><geom size=".1"/>
<body pos=".3 0 0"><joint axis="0 1 0"/><geom type="capsule" size=".05 .2"/></body></body></worldbody></mujoco>"""


def test_a_step_is_exported_for_several_platforms() -> None:
    """Of nothing but what JAX promises to run later: it refuses what it makes no promise for."""
    model = diffsim.load(LEG)
    state, inputs = diffsim.make_state(model), diffsim.make_inputs(model)
    step = jax.jit(diffsim.step)
    exported = export.export(step, platforms=("cpu", "tpu"))(model, state, inputs)
    assert exported.platforms == ("cpu", "tpu")
    ours, again = step(model, state, inputs), exported.call(model, state, inputs)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-14), ours, again)


ARM = """<mujoco><worldbody><body><joint name="a" axis="0 1 0"/><geom type="capsule" size=".05 .2"/></body></worldbody>
<actuator><motor joint="a"/></actuator></mujoco>"""


def test_a_file_holds_a_model_and_its_steps(tmp_path: pathlib.Path) -> None:
    model = diffsim.load(ARM)
    diffsim.export(model, tmp_path / "arm.step", batch=3, steps=2, differentiable=True)
    program = diffsim.load_program(tmp_path / "arm.step")
    assert (program.batch, program.steps) == (3, 2)
    one = diffsim.make_state(program.model), diffsim.make_inputs(program.model)
    states, inputs = jax.tree.map(lambda x: jnp.broadcast_to(x, (3, *x.shape)), one)
    inputs = inputs.replace(ctrl=jnp.arange(3.0)[:, None])
    heavy = program.model.replace(body_mass=2 * program.model.body_mass)

    @jax.jit
    def two_steps(model, states, inputs):
        step = jax.vmap(diffsim.step, in_axes=(None, 0, 0))
        return step(model, step(model, states, inputs), inputs)

    def speed(function):
        return lambda ctrl: jnp.sum(function(heavy, states, inputs.replace(ctrl=ctrl)).qvel ** 2)

    for numbers in (program.model, heavy):
        later, expected = (function(numbers, states, inputs) for function in (program.step, two_steps))
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14), later, expected)
    found, expected = (jax.jit(jax.grad(speed(f)))(inputs.ctrl) for f in (program.step, two_steps))
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    with pytest.raises(ValueError, match=r"state.time is float64\[\], the program was exported for float64\[3\]"):
        program.step(program.model, *one)
    with pytest.raises(ValueError, match="another structure"):
        program.step(program.model.replace(opt=program.model.opt.replace(integrator="rk4")), states, inputs)


def test_what_is_no_program_is_refused(tmp_path: pathlib.Path) -> None:
    model = diffsim.load(ARM)
    with pytest.raises(ValueError, match="batch is 0"):
        diffsim.export(model, tmp_path / "arm.step", batch=0)
    model.save(tmp_path / "arm.npz")
    (tmp_path / "text").write_text("no program")
    for name in ("arm.npz", "text", "nowhere"):
        with pytest.raises(diffsim.MjcfError, match="not an exported program"):
            diffsim.load_program(tmp_path / name)

"""Stable dispatch: nothing recompiles without need, and calling a compiled step costs little beyond its compute."""

import statistics
import time

import jax
import jax.numpy as jnp
import oracle
import pytest

import diffsim

HUMANOID = "mujoco/mjx/test_data/humanoid/humanoid.xml"
BALL = """<mujoco><worldbody><geom type="plane" size="1 1 1"/>
  <body pos="0 0 .1"><joint type="slide" axis="0 0 1"/><geom size=".1"/></body></worldbody></mujoco>"""


@pytest.fixture(scope="module")
def text() -> str:
    return oracle.package_path(HUMANOID).read_text()


def test_one_compilation_serves_all_calls() -> None:
    step, text = jax.jit(diffsim.step), BALL
    model = diffsim.load(text)
    inputs = diffsim.make_inputs(model)
    state = diffsim.make_state(model)
    for _ in range(5):
        # what comes out goes in again: no weak types, no changed shapes
        state = step(model, state, inputs)
    assert step._cache_size() == 1
    # the same text again is the same program
    again = diffsim.load(text)
    assert again.topology == model.topology and again.topology is not model.topology
    step(again, state, inputs)
    # numbers are not structure
    step(model.replace(body_mass=model.body_mass * 1.1, opt=model.opt.replace(timestep=0.001)), state, inputs)
    assert step._cache_size() == 1
    # structure is
    step(model.replace(opt=model.opt.replace(iterations=model.opt.iterations + 1)), state, inputs)
    assert step._cache_size() == 2


def test_calling_a_compiled_step_costs_under_half_a_millisecond(text: str) -> None:
    model = diffsim.load(text)
    state, inputs = diffsim.make_state(model), diffsim.make_inputs(model)
    # a program with the same arguments and results and nothing to compute shows the cost of the call alone
    idle = jax.jit(lambda m, s, i: s.replace(time=s.time + m.opt.timestep + jnp.sum(i.ctrl)))
    idle(model, state, inputs)
    seconds = []
    for _ in range(200):
        start = time.perf_counter()
        jax.block_until_ready(idle(model, state, inputs))
        seconds.append(time.perf_counter() - start)
    assert statistics.median(seconds) < 0.5e-3

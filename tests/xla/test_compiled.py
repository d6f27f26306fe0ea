"""Tracing does without Python's garbage collector, which goes on afterwards as it was."""

import gc
from collections.abc import Callable

import jax.numpy as jnp
import pytest

import diffsim
from diffsim.xla.compiled import compiled

BALL = "<mujoco><worldbody><body><freejoint/><geom size='.1'/></body></worldbody></mujoco>"


def rolled(found: list[bool]) -> None:
    """Whether the collector is on, from within a rollout that is traced."""
    model = diffsim.load(BALL)

    def readout(state: diffsim.State, data: diffsim.Data) -> object:
        found.append(gc.isenabled())
        return state.time

    diffsim.rollout(model, diffsim.make_state(model), jnp.zeros((2, 0)), readout)


def called(found: list[bool]) -> None:
    """The same, from within what is compiled when it is called by hand."""
    compiled(lambda x: found.append(gc.isenabled()) or x)(jnp.zeros(()))


@pytest.mark.parametrize("trace", [rolled, called])
def test_not_while_tracing(trace: Callable[[list[bool]], None]) -> None:
    found: list[bool] = []
    assert gc.isenabled()
    trace(found)
    assert found and not any(found)
    assert gc.isenabled()


def test_after_an_error() -> None:
    def fails(x: object) -> object:
        raise ValueError(x)

    with pytest.raises(ValueError):
        compiled(fails)(jnp.zeros(()))
    assert gc.isenabled()


def test_a_user_who_switched_it_off() -> None:
    gc.disable()
    try:
        called([])
        assert not gc.isenabled()
    finally:
        gc.enable()

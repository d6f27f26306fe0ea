"""Tracing does without Python's garbage collector, which goes on afterwards as it was."""

import gc
import os
import pathlib
from collections.abc import Callable

import jax
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


def test_options_go_to_the_outermost_program_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """An option that XLA does not know tells where options arrive."""
    monkeypatch.setattr("diffsim.xla.compiled.compiler_options", lambda: {"xla_no_such_option": True})
    square = diffsim.jit(lambda x: jnp.sum(x * x))
    x = jnp.arange(3.0)
    with pytest.raises(Exception, match="xla_no_such_option"):
        square(x)
    for inside in (jax.jit(square), jax.grad(square), jax.jit(jax.grad(square)), jax.vmap(square)):
        inside(jnp.ones((2, 3)))
    # nothing but numbers, in the middle of another program
    assert jax.jit(lambda y: y + square(x))(1.0) == 6


def test_what_a_function_raises_comes_through() -> None:
    def fails(x: object) -> object:
        raise ValueError("of its own")

    with pytest.raises(ValueError, match="of its own"):
        diffsim.jit(fails)(jnp.zeros(()))
    with pytest.raises(ValueError, match="of its own"):
        jax.jit(diffsim.jit(fails))(jnp.zeros(()))


def test_the_cache_stays_small(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        program = tmp_path / f"{number}-cache"
        program.write_bytes(bytes(100))
        os.utime(program, (number, number))
    names = "jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs"
    before = {name: getattr(jax.config, name) for name in names}
    try:
        assert diffsim.use_cache(tmp_path, limit=250) == tmp_path
        monkeypatch.setenv("DIFFSIM_CACHE", "0")
        assert diffsim.use_cache("elsewhere") is None
        assert jax.config.jax_compilation_cache_dir == str(tmp_path)  # type: ignore[attr-defined]
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1-cache", "2-cache"]

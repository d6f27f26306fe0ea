"""A program that compiles for long says so, once, and only where a stage of ours is in it."""

import sys

import jax
import jax.numpy as jnp
import pytest

import diffsim
from diffsim.optimize.progress import Progress
from diffsim.xla import progress

XML = """<mujoco><worldbody><geom type="plane" size="1 1 .1"/>
<body pos="0 0 1"><freejoint/><geom type="sphere" size=".1"/></body></worldbody></mujoco>"""


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIFFSIM_PROGRESS", "1")
    monkeypatch.setattr(progress, "PATIENCE", 0.0)


@pytest.mark.usefixtures("impatient")
def test_a_step_says_what_it_compiles(capfd: pytest.CaptureFixture[str]) -> None:
    model = diffsim.load(XML)
    state = diffsim.make_state(model)

    @jax.jit
    def fall(state: diffsim.State) -> diffsim.State:
        return diffsim.step(model, state)

    fall(state)
    said = capfd.readouterr().err.splitlines()
    assert [
        line
        for line in said
        if line.startswith("compiling fall: one kind of pair of geoms can touch, plane with sphere")
    ]
    # neither a second call nor another program says anything
    fall(state)
    jax.jit(lambda x: jnp.sin(x) @ x)(jnp.eye(7))
    assert "compiling" not in capfd.readouterr().err


def test_nobody_is_told_who_does_not_look(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setenv("DIFFSIM_PROGRESS", "0")
    model = diffsim.load(XML.replace(".1", ".2"))
    jax.jit(lambda state: diffsim.step(model, state))(diffsim.make_state(model))
    assert "compiling" not in capfd.readouterr().err


def test_tools_follow_the_same_switch(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def said() -> str:
        Progress("plan", None, None).report("searches")
        return capfd.readouterr().err

    monkeypatch.delenv("DIFFSIM_PROGRESS", raising=False)
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    assert not said()
    # the user of a notebook reads along, though it is no terminal
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    assert said().startswith("plan: searches")
    monkeypatch.setenv("DIFFSIM_PROGRESS", "0")
    assert not said()

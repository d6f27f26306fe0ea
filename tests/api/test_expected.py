"""Something else than what an argument needs: one sentence, no AttributeError from inside."""

from collections.abc import Callable

import optax
import pytest

import diffsim
from diffsim import optimize
from diffsim.base.errors import ArgumentError

XML = '<mujoco><worldbody><body><joint name="j"/><geom size=".1"/></body></worldbody></mujoco>'
MODEL = diffsim.load(XML)

WRONG: dict[str, Callable[[], object]] = {
    "optimizer is a int, expected an optimizer of optax": lambda: optimize.in_logs(3),  # type: ignore[arg-type]
    "optimizer is a str, expected an optimizer of optax": lambda: optimize.in_coordinates("adam", abs, abs),
    "optimizers is a Model, expected a dictionary": lambda: optimize.masked(MODEL),  # type: ignore[arg-type]
    "the optimizer of 'body_mass' is a type": lambda: optimize.masked({"body_mass": int}),
    "mjmodel is a Model, expected mujoco.MjModel": lambda: diffsim.from_mujoco(MODEL),
    "assets is a int, expected a dictionary": lambda: diffsim.mjcf.read(XML, 5),  # type: ignore[arg-type]
    "values is a list, expected a dictionary": lambda: MODEL.set_qpos(diffsim.make_state(MODEL), [0.5]),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("message", WRONG)
def test_what_was_given_and_what_is_expected_is_said(message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        WRONG[message]()


def test_what_is_expected_passes() -> None:
    optimizer = optimize.masked({"body_mass": optimize.in_logs(optax.sgd(1e-2))})
    assert len(optimizer.init(MODEL)) == 1

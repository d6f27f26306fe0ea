"""`contacts=False`: motions through free space, by programs that hold no collisions."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import programs
import pytest

import diffsim
from diffsim import optimize
from tests.uncompiled import uncompiled

# two capsules that overlap, one of which hangs from a hinge with a limit that holds
XML = """<mujoco><compiler autolimits="true"/><worldbody>
<body pos="0 0 .5"><joint name="h" axis="0 1 0" range="-10 5"/>
<geom type="capsule" size=".1" fromto="0 0 0 .5 0 0"/></body>
<body pos=".3 .05 .5"><joint type="slide" axis="0 0 1"/><geom type="capsule" size=".1" fromto="0 0 0 0 .5 0"/></body>
</worldbody><actuator><motor joint="h"/></actuator></mujoco>"""
CALLS: dict[str, Callable[..., Any]] = {
    "inverse": lambda model, state, **choice: diffsim.inverse(model, state, jnp.array([1.0, -2.0]), **choice),
    "rollout": lambda model, state, **choice: diffsim.rollout(model, state, jnp.ones((3, 1)), **choice).final.qpos,
    "linearize": lambda model, state, **choice: optimize.linearize(model, state, **choice),
}


def apart() -> diffsim.Model:
    """The model, whose geoms may not touch by their bits."""
    return diffsim.load(XML.replace("<geom ", '<geom contype="0" conaffinity="0" '))


@pytest.mark.parametrize("name", CALLS)
def test_nothing_touches(name: str) -> None:
    model = diffsim.load(XML)
    state = diffsim.make_state(model)
    state = state.replace(qpos=state.qpos.at[0].set(0.2))
    free = uncompiled(lambda model, state: CALLS[name](model, state, contacts=False))(model, state)
    expected = uncompiled(CALLS[name])(apart(), state)
    touching = uncompiled(CALLS[name])(model, state)
    for one, other in zip(jax.tree.leaves(free), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)
    assert any(
        not np.allclose(one, other) for one, other in zip(jax.tree.leaves(free), jax.tree.leaves(touching), strict=True)
    )


@pytest.mark.parametrize("name", CALLS)
def test_programs_hold_no_collisions(name: str) -> None:
    model = diffsim.load(XML)
    state = diffsim.make_state(model)

    def equations(contacts: bool) -> int:
        jaxpr = jax.make_jaxpr(lambda state: CALLS[name](model, state, contacts=contacts))(state)
        return sum(1 for _ in programs.equations(jaxpr.jaxpr))

    assert equations(False) < 0.8 * equations(True)

"""Changes of flexes."""

import numpy as np
import pytest

import diffsim
from tests.newer.newer import assert_slopes, assert_steps, needs_newer, oracle

pytestmark = needs_newer

FLEX = """<mujoco><option timestep="5e-4"/><worldbody><flexcomp name="f" type="grid" dim="{}" count="{}"
  spacing=".1 .12 .1" mass="1" radius=".005"><contact selfcollide="none" contype="0" conaffinity="0"/>
  <elasticity young="300" poisson="{}" thickness=".02" damping=".01" elastic2d="{}"/></flexcomp></worldbody></mujoco>"""


@pytest.mark.parametrize("poisson", [0, 0.3])
@pytest.mark.parametrize("dim, kind", [(2, "stretch"), (2, "bend"), (2, "both"), (3, "none")])
def test_elastic_constants(dim: int, kind: str, poisson: float) -> None:
    xml = FLEX.format(dim, "3 2 1" if dim == 2 else "2 2 2", poisson, kind)
    ours, theirs = diffsim.load(xml, mujoco="4.0"), oracle().compiled(xml)
    stiffness = theirs["flex_stiffness"].ravel()
    # since 4.0, a solid has three more numbers for each element
    stiffness = stiffness.reshape(-1, 24)[:, :21].ravel() if dim == 3 else stiffness
    np.testing.assert_allclose(ours.flex_stiffness, stiffness, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(ours.flex_bending, theirs["flex_bending"].ravel(), rtol=1e-9, atol=1e-12)
    before = diffsim.load(xml)
    fields = ("flex_stiffness", "flex_bending")
    unchanged = all(np.array_equal(getattr(before, name), getattr(ours, name)) for name in fields)
    assert unchanged == (dim == 3 and poisson == 0)
    if kind in ("both", "none") and poisson:
        states = oracle().sample(xml, count=2, spread=0.02, speed=0.1)
        assert_steps(xml, states, 1e-10, steps=2)
        assert_slopes(xml, states, 1e-6)

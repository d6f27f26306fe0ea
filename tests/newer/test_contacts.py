"""Changes of contacts."""

import numpy as np
import pytest

from tests.newer.newer import assert_slopes, assert_steps, forward, given, load, needs_newer, oracle

pytestmark = needs_newer

BALLS = """<mujoco><option cone="elliptic"/><worldbody><geom type="plane" size="1 1 1" margin="{}" gap="{}"/>
  <body pos="0 0 {}"><freejoint/><geom size="0.1" margin="0.01" gap="0.02"/></body>
  <body pos="1 0 {}"><freejoint/><geom type="box" size="0.1 0.2 0.05" euler="5 10 0"/></body></worldbody></mujoco>"""


@pytest.mark.parametrize("margin, gap", [(0.02, 0.01), (0, 0.03), (-0.01, 0.03)])
def test_margin_and_gap(margin: float, gap: float) -> None:
    # in the gap, in the margin, deep
    for height in (0.125, 0.105, 0.09):
        xml = BALLS.format(margin, gap, height, 0.5 * height)
        states = oracle().sample(xml, count=3, spread=0.003, speed=0.1)
        assert_steps(xml, states, 1e-9)
        data = forward(load(xml), *given(load(xml), states))
        listed = np.asarray((data.contact.dist < data.contact.margin) & (data.contact.geom[..., 0] >= 0)).sum()
        theirs = oracle().run(xml, states, steps=0)["contacts"]
        assert listed == len(theirs)
        ours = np.asarray(data.contact.dist < data.contact.includemargin).sum()
        assert ours == (theirs[:, 3] == 0).sum()
    assert_slopes(xml, states, 1e-5)

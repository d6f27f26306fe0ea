"""The program of a model without a feature does not grow because the feature exists.

Counted are the operations of a lowered step, before XLA: the count does not depend on the machine. A change that
makes these programs larger by more than 2% fails here; one that makes them smaller, or is worth it, changes the table.
"""

import re

import jax
import oracle
import pytest

import diffsim

ALLOWED = 1.02
# operations of one step
OPERATIONS = {
    "<mujoco><worldbody><body><joint/><geom size='1'/></body></worldbody></mujoco>": 1775,
    # one iteration begins at the better of two accelerations: 380 of them compare
    "mujoco/mjx/test_data/humanoid/humanoid.xml": 4828,
    "gymnasium/envs/mujoco/assets/hopper.xml": 11041,
}


def operations(source: str) -> int:
    """Operations in the lowered program of a step."""
    model = diffsim.load(source if source.startswith("<") else oracle.package_path(source))
    text = jax.jit(diffsim.step).lower(model, diffsim.make_state(model), diffsim.make_inputs(model)).as_text()
    return len(re.findall(r"^ *%\S+ = ", text, re.MULTILINE))


@pytest.mark.parametrize("source", OPERATIONS)
def test_a_plain_model_pays_for_no_feature(source: str) -> None:
    assert operations(source) <= ALLOWED * OPERATIONS[source]

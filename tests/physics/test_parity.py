"""Every field of every smooth stage against the oracle, in random states of real models and of one with everything."""

import corpus
import pytest

from tests.physics import stages

BAR = 1e-10

FIRST = [
    "smooth",
    "mujoco/mjx/test_data/humanoid/humanoid.xml",
    "mujoco/mjx/test_data/pendula.xml",
    "mujoco/mjx/test_data/constraints.xml",
    "dm_control/suite/fish.xml",
    "dm_control/suite/swimmer.xml",
    "dm_control/suite/quadruped.xml",
    "dm_control/suite/stacker.xml",
    "gymnasium/envs/mujoco/assets/ant.xml",
    "gymnasium/envs/mujoco/assets/pusher.xml",
]
OTHERS = ["dm_control/suite/dog.xml", "dm_control/suite/lqr.xml"]
REST = [path for path in [*corpus.CORPUS, *OTHERS] if path not in FIRST]


@pytest.mark.parametrize("path", [*FIRST, *REST])
def test_stages_match_oracle(path: str) -> None:
    for seed in range(5):
        stages.compare(path, seed, BAR)

"""Every field of every smooth stage against the oracle, in random states of real models and of one with everything."""

import corpus
import pytest

from tests.kinematics import stages
from tests.wide import wide

BAR = 1e-10

FIRST = [
    "smooth",
    "wrapping",
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
FIRST += [
    f"mujoco/mjx/test_data/{name}.xml"
    for name in ("actuator/arm26", "actuator/tendon_force_clamp", "tendon/armature", "tendon/tendon")
]
# a minute more
REST = ["dm_control/suite/dog.xml", "dm_control/suite/lqr.xml", "mujoco/mjx/test_data/actuator/arm21.xml"]
REST += [f"mujoco/mjx/test_data/tendon/{name}.xml" for name in ("fixed_site_wrap", "pulley_fixed_site_wrap")]
REST += [f"mujoco/mjx/test_data/tendon/{name}.xml" for name in ("pulley_site_wrap", "pulley_wrap", "wrap_sidesite")]
REST = wide(path for path in [*corpus.CORPUS, *REST] if path not in FIRST)


@pytest.mark.parametrize("path", [*FIRST, *REST])
def test_stages_match_oracle(path: str) -> None:
    for seed in range(5):
        stages.compare(path, seed, BAR)

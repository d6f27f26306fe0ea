"""Keys that break off: their numbers, then the initial ones."""

import numpy as np
import pytest
from oracle import load_oracle

import diffsim

SCENE = """<mujoco><worldbody><body pos="0 0 1"><freejoint/><geom size=".1"/></body>
  <body pos="1 0 0"><joint type="ball"/><geom size=".1" pos=".1 0 0"/><body><joint name="j" ref=".3"/>
    <geom size=".1" pos=".2 0 0"/></body></body>
  <body mocap="true" pos="3 3 3"/><body mocap="true" pos="4 4 4" quat="0 0 1 0"/></worldbody>
  <actuator><motor joint="j"/><position joint="j" timeconst=".1"/><intvelocity joint="j" actrange="-1 1"/></actuator>
  <keyframe>{}</keyframe></mujoco>"""
SIZES = {"qpos": 12, "qvel": 10, "act": 2, "ctrl": 3, "mpos": 6, "mquat": 8}


def scene(name: str) -> str:
    """A key for every number of numbers that a field can break off after."""
    numbers = [f"{0.1 + 0.2 * i:.1f}" for i in range(SIZES[name])]
    return SCENE.format("".join(f'<key {name}="{" ".join(numbers[: i + 1])}"/>' for i in range(SIZES[name])))


@pytest.mark.parametrize("name", list(SIZES)[1:])
def test_a_short_key_is_filled_as_the_oracle_does(name: str) -> None:
    ours, oracle = diffsim.load(scene(name)), load_oracle(scene(name))
    for field in SIZES:
        theirs = getattr(oracle, f"key_{field}")
        np.testing.assert_allclose(np.reshape(getattr(ours, f"key_{field}"), theirs.shape), theirs, atol=1e-12)


def test_positions_are_filled_from_qpos0() -> None:
    # the oracle takes a qpos0 that it has not finished: angles in degrees, bodies at the origin
    model = diffsim.load(scene("qpos"))
    for count, key in enumerate(np.asarray(model.key_qpos), 1):
        expected = np.append(0.1 + 0.2 * np.arange(count), model.qpos0[count:])
        for quat in (slice(3, 7), slice(7, 11)):
            expected[quat] /= np.linalg.norm(expected[quat])
        np.testing.assert_allclose(key, expected, atol=1e-12)


@pytest.mark.parametrize("length", [0.0, 1e-20, 5e-16, 3e-15, 1e-9, 9e-8, 2e-7, 1.0, 1e9])
def test_quaternions_of_any_length_are_stored_as_by_the_oracle(length: float) -> None:
    quat = " ".join(repr(length * x) for x in (0.1, -0.7, 0.5, 0.5))
    key = f'<key qpos="0 0 1 {quat} {quat} 0" mquat="{quat} {quat}"/>'
    ours, oracle = diffsim.load(SCENE.format(key)), load_oracle(SCENE.format(key))
    for field in ("key_qpos", "key_mquat"):
        theirs = getattr(oracle, field)
        np.testing.assert_allclose(np.reshape(getattr(ours, field), theirs.shape), theirs, atol=1e-15, rtol=1e-12)

"""Values in the cache: computed once for equal inputs, and again for others."""

import pathlib
from collections.abc import Iterator

import jax
import numpy as np
import pytest

import diffsim
from diffsim.xla import stored
from diffsim.xla.stored import kept

MUSCLE = """
<mujoco>
  <worldbody>
    <site name="top" pos=".1 0 {height}"/>
    <body><joint axis="0 1 0" range="-60 60" limited="true"/><geom size=".05" pos="0 0 -.3"/>
      <site name="end" pos="0 0 -.2"/></body>
  </worldbody>
  <tendon><spatial name="t"><site site="top"/><site site="end"/></spatial></tendon>
  <actuator><muscle tendon="t"/></actuator>
  <compiler><lengthrange timestep=".02" inttotal="4" interval="1"/></compiler>
</mujoco>"""


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    stored.store_in(tmp_path)
    yield tmp_path
    stored.store_in(None)


class Counted:
    """A function that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> dict[str, np.ndarray]:
        self.calls += 1
        return {"result": np.arange(3.0)}


def test_a_value_is_computed_once(folder: pathlib.Path) -> None:
    compute = Counted()
    for inputs in ((np.ones(2), 3), (np.ones(2), 3), (np.ones(2), 4), (np.ones(3), 3), (np.ones(2, np.float32), 3)):
        np.testing.assert_array_equal(kept("sum", compute, *inputs)["result"], [0, 1, 2])
    assert compute.calls == 4
    assert len(list(folder.glob("sum-*-kept"))) == 4
    assert len(list(folder.iterdir())) == 4


def test_a_damaged_value_is_computed_again(folder: pathlib.Path) -> None:
    compute = Counted()
    kept("sum", compute, 1)
    (path,) = folder.iterdir()
    for damaged in (b"", path.read_bytes()[:-4], b"none of ours"):
        path.write_bytes(damaged)
        np.testing.assert_array_equal(kept("sum", compute, 1)["result"], [0, 1, 2])
    assert compute.calls == 4


def test_inputs_without_a_list_and_no_cache_compute(folder: pathlib.Path) -> None:
    compute = Counted()
    for _ in range(2):
        kept("sum", compute, Counted())
    assert not list(folder.iterdir())
    stored.store_in(None)
    kept("sum", compute, 1)
    assert compute.calls == 3
    assert not list(folder.iterdir())


def test_a_folder_that_cannot_be_written_does_no_harm(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").touch()
    stored.store_in(tmp_path / "file")
    try:
        np.testing.assert_array_equal(kept("sum", Counted(), 1)["result"], [0, 1, 2])
    finally:
        stored.store_in(None)


def test_loading_again_gives_the_same_model(folder: pathlib.Path) -> None:
    """Length ranges and derived constants are read; another model has other ones."""
    text = MUSCLE.format(height=0.2)
    first = diffsim.load(text)
    names = sorted(path.name.split("-")[0] for path in folder.iterdir())
    assert names == ["constants", "length"]
    written = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    again = diffsim.load(text)
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == written
    assert again.topology == first.topology
    for one, two in zip(jax.tree.leaves(first), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(one, two)
    other = diffsim.load(MUSCLE.format(height=0.3))
    assert len(list(folder.iterdir())) == 4
    assert not np.allclose(other.actuator_lengthrange, first.actuator_lengthrange)

"""Gradients of many worlds end: LAPACK calls side by side could wait for each other (math/schedule.py)."""

import pathlib
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).with_name("many_worlds.py")
SECONDS = 300


@pytest.mark.parametrize("case", ["euler", "pgs", "noslip", "readout", "split"])
def test_many_worlds_end(case: str) -> None:
    done = subprocess.run([sys.executable, SCRIPT, case], capture_output=True, text=True, timeout=SECONDS, check=True)
    assert done.stdout.strip() == "finite", done.stderr

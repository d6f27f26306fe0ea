"""Gradients of many worlds end: calls of LAPACK side by side would wait for each other forever (math/schedule.py)."""

import pathlib
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).with_name("many_worlds.py")
SECONDS = 300


@pytest.mark.parametrize("case", ["euler", "implicit", "noslip"])
def test_gradient_of_many_worlds_ends(case: str) -> None:
    done = subprocess.run([sys.executable, SCRIPT, case], capture_output=True, text=True, timeout=SECONDS, check=True)
    assert done.stdout.strip() == "finite", done.stderr

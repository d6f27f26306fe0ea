"""Batched linear algebra side by side does not wait for itself forever (side_by_side.py says where it did)."""

import pathlib
import subprocess
import sys

import pytest
from wide import wide

SCRIPT = pathlib.Path(__file__).with_name("side_by_side.py")
SECONDS = 300


@pytest.mark.parametrize("case", ["threads", "devices", *wide(["two_steps"])])
def test_steps_side_by_side_end(case: str) -> None:
    done = subprocess.run([sys.executable, SCRIPT, case], capture_output=True, text=True, timeout=SECONDS, check=True)
    assert done.stdout.startswith("finite"), done.stderr

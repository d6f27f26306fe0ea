"""Part of the suite again with the XLA flags that users have, in a process of its own: the same numbers, no warning."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]
TESTS = [
    "tests/parity/test_forward.py::test_forward_equals_the_oracle[dm_control/suite/pendulum.xml]",
    "tests/constraint/test_laws.py",
]


def test_the_same_with_default_flags() -> None:
    # an empty value is no flag, and keeps conftest from setting its own
    settings = {**os.environ, "XLA_FLAGS": "", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pytest", "-n", "0", "-x", *TESTS]
    done = subprocess.run(command, cwd=ROOT, env=settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]

"""Steps with the XLA flags that users have, in a process of its own: MuJoCo's numbers, and no warning."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]


def test_the_same_with_default_flags() -> None:
    # an empty value is no flag
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    settings = {**os.environ, "XLA_FLAGS": "", "JAX_PLATFORMS": "cpu", "PYTHONPATH": path}
    script = pathlib.Path(__file__).with_name("default_flags.py")
    done = subprocess.run([sys.executable, "-W", "error", script], capture_output=True, text=True, env=settings)
    assert done.returncode == 0, done.stderr[-3000:]
    found = dict(line.split() for line in done.stdout.splitlines())
    assert float(found["difference"]) < 1e-8
    assert int(found["rows"]) > 3

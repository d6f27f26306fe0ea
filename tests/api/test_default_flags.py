"""Steps and gradients with the flags that users have, in a process of its own: MuJoCo's numbers, and no warning."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
# what JAX says will be its defaults; a version that does not know one reads past it
COMING = {f"JAX_{name}3": "1" for name in ("SCAN", "REMAT", "CUSTOM_JVP", "CUSTOM_VJP")}
COMING["JAX_EXPLICIT_X64_DTYPES"] = "error"


@pytest.mark.parametrize("flags", [{}, COMING], ids=["today", "coming"])
def test_the_same_with_default_flags(flags: dict[str, str]) -> None:
    # an empty value is no flag
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    settings = {**os.environ, "XLA_FLAGS": "", "JAX_PLATFORMS": "cpu", "PYTHONPATH": path, **flags}
    script = pathlib.Path(__file__).with_name("default_flags.py")
    done = subprocess.run([sys.executable, "-W", "error", script], capture_output=True, text=True, env=settings)
    assert done.returncode == 0, done.stderr[-3000:]
    found = dict(line.split() for line in done.stdout.splitlines())
    assert float(found["difference"]) < 1e-8
    assert int(found["rows"]) > 3
    assert float(found["gradient"]) < 1e-6 and float(found["single"]) < 1e-3

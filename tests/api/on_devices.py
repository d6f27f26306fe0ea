"""Scripts of this folder that run in a process of their own, with several virtual CPU devices."""

import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
# s, far more than a script takes on a busy machine
LONGEST = 600


def output_of(script: str, devices: int) -> list[str]:
    """The lines that a script of this folder prints with this number of devices; an AssertionError if it fails."""
    flags = os.environ.get("XLA_FLAGS", "") + f" --xla_force_host_platform_device_count={devices}"
    path = os.pathsep.join([str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, HERE / script], capture_output=True, text=True, env=environment, timeout=LONGEST
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()

"""The same program on the same batch gives the same bits, in any order of the worlds, on one device and on two."""

import os
import pathlib
import subprocess
import sys


def test_equal_programs_give_equal_bits() -> None:
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"
    path = os.pathsep.join([str(pathlib.Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": path}
    script = pathlib.Path(__file__).with_name("two_runs.py")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    first, *lines = done.stdout.splitlines()
    assert first == "contacts True differ True"
    found = dict(line.split() for line in lines)
    apart = float(found.pop("apart_from_one_device"))
    assert found == {
        "again": "True",
        "permuted": "True",
        "compiled_again": "True",
        "devices": "2",
        "again_on_two_devices": "True",
        "permuted_on_two_devices": "True",
    }
    # other batch sizes differ by rounding at most (float32)
    assert apart < 1e-3

"""Worlds shared out over eight virtual devices, or two processes: the same numbers, and no device waits for another."""

import os
import pathlib
import socket
import subprocess
import sys
from subprocess import PIPE

import jax
import pytest
from wide import WIDE

from diffsim import ArgumentError, envs, parallel
from tests.api.on_devices import output_of


def test_eight_devices_share_worlds_and_never_talk() -> None:
    found = dict(line.split(maxsplit=1) for line in output_of("devices.py", 8))
    assert found["devices"] == "8"
    assert float(found["difference"]) < 1e-12
    # the solver iterated, and differently: worlds land at different times
    assert int(found["iterations"]) >= 1
    assert float(found["moved_on"]) > 0
    assert found["collectives"] == "0"
    # what shard_map is for: plain jit asks all devices in each iteration
    assert int(found["collectives_of_plain_jit"]) > 0
    assert float(found["benchmark"]) < 1e-12
    assert "the number of worlds is 9, not a multiple of the 8 devices" in found["refused"]


def test_shard_map_with_its_defaults_gives_the_same_numbers() -> None:
    """Next velocities, and derivatives with respect to each world's state and to a gain that all worlds share."""
    apart = [float(line.split()[-1]) for line in output_of("two_devices.py", 2)]
    assert len(apart) == 2
    assert max(apart) < 1e-12


def test_cores_are_devices_only_before_jax_has_counted() -> None:
    here = len(jax.devices("cpu"))
    parallel.use_cores(here)
    assert parallel.mesh().size == here
    message = f"already uses {here} CPU devices and cannot change to {here + 1}.*call parallel.use_cores"
    with pytest.raises(ArgumentError, match=message):
        parallel.use_cores(here + 1)
    with pytest.raises(ArgumentError, match="count is 0; expected one core or more"):
        parallel.use_cores(0)


if WIDE:

    def test_a_benchmark_runs_on_cores() -> None:
        root = pathlib.Path(__file__).parents[2]
        path = os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])
        lengths = [
            "--batch",
            "4",
            "--steps",
            "2",
            "--warmup",
            "2",
            "--gradient-steps",
            "2",
            "--no-stages",
            "--cores",
            "2",
        ]
        command = [sys.executable, "-m", "diffsim", "bench", str(envs.MODELS / "cartpole.xml"), *lengths]
        done = subprocess.run(
            command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}, timeout=300
        )
        assert done.returncode == 0, done.stderr[-3000:]
        assert "backend cpu, 2 x cpu" in done.stdout
        assert "diffsim batch 4:" in done.stdout
        assert "gradient of 2 steps" in done.stdout


def test_two_processes_share_worlds() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    root = pathlib.Path(__file__).parents[2]
    path = os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": path}
    script = str(pathlib.Path(__file__).with_name("processes.py"))
    both = [
        subprocess.Popen(
            [sys.executable, script, str(port), rank], stdout=PIPE, stderr=PIPE, text=True, env=environment
        )
        for rank in "01"
    ]
    try:
        said = [process.communicate(timeout=600) for process in both]
    finally:
        for process in both:
            process.kill()
    for process, (out, error) in zip(both, said, strict=True):
        assert process.returncode == 0, error[-3000:]
        found = dict(line.split(maxsplit=1) for line in out.splitlines())
        assert found["processes"] == "2"
        assert found["worlds"] == "16 here 8"
        assert float(found["difference"]) < 1e-12
        assert float(found["moved"]) > 0.01


def test_axes_and_meshes_that_cannot_be_are_refused() -> None:
    with pytest.raises(ArgumentError, match="axis is 1; expected 0 or None"):
        parallel.vmap(lambda x: x, in_axes=1)
    import jax

    other = jax.sharding.Mesh(jax.devices()[:1], ("data",))
    with pytest.raises(ArgumentError, match='expected one called "worlds"'):
        parallel.vmap(lambda x: x, mesh=other)

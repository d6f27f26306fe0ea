"""The second oracle: C MuJoCo 4.0.0 and 3.17.0, each in an environment of its own, asked through a process.

`make newer` makes the environments, `.venv-newer/VERSION`, and runs the tests of this folder; without DIFFSIM_NEWER
they are skipped. Two packages `mujoco` cannot be in one process, hence the pipe.
"""

import functools
import io
import json
import os
import pathlib
import subprocess
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import diffsim
from tests.uncompiled import uncompiled

ENVIRONMENTS = pathlib.Path(__file__).parents[2] / ".venv-newer"
# by the version that a model names
RELEASES = {"4.0": "4.0.0", "3.17": "3.17.0"}

pytestmark = needs_newer = pytest.mark.skipif(not os.environ.get("DIFFSIM_NEWER"), reason="run by `make newer`")

Arrays = dict[str, np.ndarray]
# numbers of an equality that mean the same as in 3.8.1
NEQDATA = 11
# as exact as float64 allows: other exits of the solvers are no difference of semantics
EXACT = {"tolerance": 1e-14, "iterations": 200, "ls_iterations": 100, "ls_tolerance": 1e-8}

step = uncompiled(jax.vmap(diffsim.step, in_axes=(None, 0, 0)))
forward = uncompiled(jax.vmap(diffsim.forward, in_axes=(None, 0, 0)))


def namespace(arrays: Arrays) -> Any:
    """The oracle's compiled model as an object with the fields that 3.8.1 has, for `differences`."""
    plain = {name: value for name, value in arrays.items() if "." not in name}
    plain = {name: value.astype(np.uint8) if value.dtype == bool else value for name, value in plain.items()}
    plain |= {name: int(value) for name, value in plain.items() if value.shape == () and value.dtype.kind == "i"}
    plain["eq_data"] = plain["eq_data"][:, :NEQDATA]
    for owner in ("opt", "stat"):
        inner = {name.partition(".")[2]: value for name, value in arrays.items() if name.startswith(f"{owner}.")}
        plain[owner] = types.SimpleNamespace(**inner)
    # the headlight is not compared: its field `active` has another type since 4.0
    plain["vis"] = types.SimpleNamespace(headlight=types.SimpleNamespace())
    return types.SimpleNamespace(**plain)


class Oracle:
    """One version of C MuJoCo."""

    def __init__(self, version: str) -> None:
        python = ENVIRONMENTS / RELEASES[version] / "bin" / "python"
        command = [str(python), str(pathlib.Path(__file__).with_name("serve.py"))]
        self.version = version
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, do: str, model: str, states: Arrays | None = None, **request: Any) -> Arrays:
        """The arrays of an answer of serve.py. Raises ValueError with MuJoCo's message where it refuses."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        buffer = io.BytesIO()
        about = json.dumps({"do": do, "model": model, **request})
        np.savez(buffer, request=np.array(about), **(states or {}))
        self._process.stdin.write(len(buffer.getvalue()).to_bytes(8, "little") + buffer.getvalue())
        self._process.stdin.flush()
        size = int.from_bytes(self._process.stdout.read(8), "little")
        with np.load(io.BytesIO(self._process.stdout.read(size))) as file:
            arrays = {name: file[name] for name in file.files}
        if "error" in arrays:
            raise ValueError(str(arrays["error"]))
        return arrays

    def compiled(self, model: str) -> Arrays:
        """The arrays of a compiled model."""
        return self.ask("compiled", model)

    def sample(self, model: str, count: int = 5, spread: float = 0.3, speed: float = 1.0, force: float = 0.1) -> Arrays:
        """Random states, one a row."""
        return self.ask("sample", model, count=count, spread=spread, speed=speed, force=force)

    def run(self, model: str, states: Arrays, fields: tuple[str, ...] = ("qpos", "qvel"), steps: int = 1) -> Arrays:
        """Fields after some steps of each state; of `mj_forward` for no steps."""
        return self.ask("run", model, states, fields=fields, steps=steps, options=EXACT)


@functools.cache
def oracle(version: str = "4.0") -> Oracle:
    """The oracle of a version."""
    return Oracle(version)


def load(model: str, version: str = "4.0", **options: Any) -> diffsim.Model:
    """Our model that follows a version, its solver as exact as the oracle's."""
    ours = diffsim.load(model, mujoco=version, **options)
    return ours.replace(opt=ours.opt.replace(**EXACT))


def given(model: diffsim.Model, states: Arrays) -> tuple[diffsim.State, diffsim.Inputs]:
    """Our states and inputs of the oracle's, one a row."""
    count = len(states["qpos"])
    base = jax.tree.map(lambda leaf: jnp.stack([leaf] * count), (diffsim.make_state(model), diffsim.make_inputs(model)))
    filled = [
        record.replace(**{name: np.asarray(value) for name, value in states.items() if hasattr(record, name)})
        for record in base
    ]
    return filled[0], filled[1]


def assert_steps(model: str, states: Arrays, atol: float, steps: int = 1, version: str = "4.0") -> None:
    """Positions and velocities after some steps are the oracle's."""
    ours = load(model, version)
    state, inputs = given(ours, states)
    for _ in range(steps):
        state = step(ours, state, inputs)
    theirs = oracle(version).run(model, states, steps=steps)
    for name in ("qpos", "qvel"):
        np.testing.assert_allclose(getattr(state, name), theirs[name], rtol=0, atol=atol, err_msg=name)


# of differences of the oracle's step, in qvel and ctrl
WIDTH = 1e-5


def assert_slopes(model: str, states: Arrays, atol: float, version: str = "4.0") -> None:
    """The derivative of a step along one direction of velocities and controls is the oracle's, by differences.

    Forward and reverse mode agree about it too.
    """
    ours = load(model, version)
    rng = np.random.default_rng(1)
    way = {name: rng.normal(size=states[name].shape) for name in ("qvel", "ctrl")}
    theirs = {
        sign: oracle(version).run(model, states | {n: states[n] + sign * WIDTH * d for n, d in way.items()})
        for sign in (-1, 1)
    }

    def after(move: Any, model: Any, state: Any, inputs: Any) -> Any:
        state = state.replace(qvel=state.qvel + move["qvel"])
        later = diffsim.step(model, state, inputs.replace(ctrl=inputs.ctrl + move["ctrl"]))
        return later.qpos, later.qvel

    def slopes(model: Any, state: Any, inputs: Any, way: Any) -> Any:
        still = jax.tree.map(jnp.zeros_like, way)
        tangent = jax.jvp(lambda move: after(move, model, state, inputs), (still,), (way,))[1]
        weights = jax.tree.map(lambda leaf: jnp.cos(jnp.arange(leaf.size, dtype=leaf.dtype)), tangent)
        back = jax.vjp(lambda move: after(move, model, state, inputs), still)[1](weights)[0]
        pulled = sum(jnp.vdot(a, b) for a, b in zip(jax.tree.leaves(back), jax.tree.leaves(way), strict=True))
        pushed = sum(jnp.vdot(a, b) for a, b in zip(jax.tree.leaves(weights), jax.tree.leaves(tangent), strict=True))
        return tangent, pulled, pushed

    tangent, pulled, pushed = uncompiled(jax.vmap(slopes, in_axes=(None, 0, 0, 0)))(ours, *given(ours, states), way)
    np.testing.assert_allclose(pulled, pushed, rtol=1e-9, atol=1e-9)
    for name, ours_along in zip(("qpos", "qvel"), tangent, strict=True):
        difference = (theirs[1][name] - theirs[-1][name]) / (2 * WIDTH)
        np.testing.assert_allclose(ours_along, difference, rtol=0, atol=atol, err_msg=name)

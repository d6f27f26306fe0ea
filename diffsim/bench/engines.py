"""The engines that are compared: each makes a batch, a rollout under random controls, and its gradient.

Every engine is a row of `ENGINES`: a class with `rollout(states, ctrl)` and, where it can, `gradient(states, ctrl)`.
MJX and C MuJoCo are imported here, and only when asked for.
"""

import dataclasses
import importlib
import os
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.bench.made import MADE
from diffsim.bench.timing import best_seconds
from diffsim.compiler.passes import compile_all
from diffsim.mjcf import read
from diffsim.simulate.forward import forward
from diffsim.simulate.rollout import rollout
from diffsim.simulate.step import step
from diffsim.types import State
from diffsim.types.state import make_inputs, make_state
from diffsim.xla.compiled import compiler_options

Array = jax.Array


@dataclasses.dataclass(frozen=True)
class Workload:
    """What is simulated: a model file or a made model, solver settings (None: the model's), and the random start.

    `loading` has arguments of `diffsim.load`. The noslip solver is off unless asked for: MJX has none and would leave
    it out without a word.
    """

    path: str
    iterations: int | None = None
    ls_iterations: int | None = None
    noslip_iterations: int = 0
    keyframe: int | None = None
    seed: int = 0
    loading: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def options(self) -> dict[str, int]:
        """Solver settings that replace the model's."""
        settings = {"iterations": self.iterations, "ls_iterations": self.ls_iterations}
        return {name: value for name, value in settings.items() if value is not None}

    @property
    def source(self) -> str:
        """A path, or the text of a made model."""
        return MADE[self.path]() if self.path in MADE else self.path

    def mjmodel(self, mujoco: Any) -> Any:
        """C MuJoCo's model, compiled from the same source."""
        make = mujoco.MjModel.from_xml_string if self.path in MADE else mujoco.MjModel.from_xml_path
        found = make(self.source)
        for name, value in {**self.options(), "noslip_iterations": self.noslip_iterations}.items():
            setattr(found.opt, name, value)
        return found

    def controls(self, steps: int, batch: int, nu: int) -> np.ndarray:
        """Uniform random controls in [-1, 1], (steps, batch, nu)."""
        return np.random.default_rng(self.seed).uniform(-1, 1, (steps, batch, nu)).astype(np.float32)

    def velocities(self, batch: int, nv: int) -> np.ndarray:
        """Small random starting velocities, (batch, nv)."""
        return (0.01 * np.random.default_rng(self.seed + 1).normal(size=(batch, nv))).astype(np.float32)


class Batched(Protocol):
    """An engine on JAX: a batch of states and functions of it to compile."""

    workload: Workload
    # ours or MJX's, with its options
    model: Any
    nu: int
    # whose names of fields `read` takes: a column of the table of stages
    names: str
    # options of XLA that its programs are compiled with
    options: dict[str, Any]

    def start(self, batch: int) -> Any:
        """A batch of starting states."""
        ...

    def resume(self, states: State) -> Any:
        """A batch of this engine's own at our states."""
        ...

    def step(self, states: Any, ctrl: Array) -> Any:
        """One step of all worlds."""
        ...

    def read(self, states: Any, ctrl: Array, fields: Sequence[str]) -> list[Any]:
        """Some of what follows from the states of all worlds, and nothing else computed."""
        ...

    def rollout(self, states: Any, ctrl: Array) -> Any:
        """All steps of all worlds, controls (steps, batch, nu); the final states."""
        ...

    def gradient(self, states: Any, ctrl: Array) -> Any:
        """Derivative of the sum of squared final positions with respect to the controls."""
        ...


class Ours:
    """diffsim, compiled as it recommends."""

    names = "ours"

    def __init__(self, workload: Workload) -> None:
        loading = dict(workload.loading)
        spec = read(workload.source, allow_outside=loading.pop("allow_outside", None))
        spec.option.noslip_iterations = workload.noslip_iterations
        model = compile_all(spec, **loading)
        self.workload = workload
        self.model = model.replace(opt=model.opt.replace(**workload.options()))
        self.nu = self.model.nu
        self.options = compiler_options(model)

    def start(self, batch: int) -> State:
        """A batch of starting states."""
        one = make_state(self.model, self.workload.keyframe)
        many = jax.tree.map(lambda x: jnp.broadcast_to(x, (batch, *x.shape)), one)
        return many.replace(qvel=many.qvel + self.workload.velocities(batch, self.model.nv))

    def resume(self, states: State) -> State:
        """These states."""
        return states

    def step(self, states: State, ctrl: Array) -> State:
        """One step of all worlds."""
        inputs = make_inputs(self.model)
        return jax.vmap(lambda s, c: step(self.model, s, inputs.replace(ctrl=c)))(states, ctrl)

    def read(self, states: State, ctrl: Array, fields: Sequence[str]) -> list[Any]:
        """Some fields of Data."""
        inputs = make_inputs(self.model)

        def one(state: State, row: Array) -> list[Any]:
            data = forward(self.model, state, inputs.replace(ctrl=row))
            return [getattr(data, name) for name in fields]

        return jax.vmap(one)(states, ctrl)

    def rollout(self, states: State, ctrl: Array) -> State:
        """All steps of all worlds; the final states."""
        return jax.lax.scan(lambda s, c: (self.step(s, c), None), states, ctrl)[0]

    def gradient(self, states: State, ctrl: Array) -> Array:
        """Reverse mode through the rollout, solver run to its tolerance, one state stored per step."""

        def loss(c: Array) -> Array:
            one = lambda s, u: rollout(self.model, s, u, readout=lambda state, data: None)[0]  # noqa: E731
            final = jax.vmap(one, in_axes=(0, 1))(states, c)
            return jnp.sum(final.qpos**2)

        return jax.grad(loss)(ctrl)


class Mjx:
    """MJX on JAX, converted from the same file, compiled as its documentation does: by `jax.jit` alone."""

    names = "mjx"

    def __init__(self, workload: Workload) -> None:
        mujoco: Any = importlib.import_module("mujoco")
        mjx: Any = importlib.import_module("mujoco.mjx")

        self.workload, self.mjx, self.mujoco = workload, mjx, mujoco
        self.mjmodel = workload.mjmodel(mujoco)
        self.model = mjx.put_model(self.mjmodel)
        self.nu = self.mjmodel.nu
        self.options = {}

    def start(self, batch: int) -> Any:
        """A batch of starting states."""
        data = self.mujoco.MjData(self.mjmodel)
        if self.workload.keyframe is not None:
            self.mujoco.mj_resetDataKeyframe(self.mjmodel, data, self.workload.keyframe)
        one = self.mjx.put_data(self.mjmodel, data)
        qvel = jnp.asarray(self.workload.velocities(batch, self.mjmodel.nv))
        return jax.vmap(lambda v: one.replace(qvel=one.qvel + v))(qvel)

    def resume(self, states: State) -> Any:
        """MJX's data at our states."""
        fields = {name: getattr(states, name) for name in ("time", "qpos", "qvel", "act", "qacc_warmstart")}
        return self.start(len(states.qpos)).replace(**fields)

    def step(self, states: Any, ctrl: Array) -> Any:
        """One step of all worlds."""
        return jax.vmap(lambda d, c: self.mjx.step(self.model, d.replace(ctrl=c)))(states, ctrl)

    def read(self, states: Any, ctrl: Array, fields: Sequence[str]) -> list[Any]:
        """Some fields of MJX's Data; those of its implementation are one level down."""

        def one(data: Any, row: Array) -> list[Any]:
            data = self.mjx.forward(self.model, data.replace(ctrl=row))
            return [getattr(data._impl if name in vars(data._impl) else data, name) for name in fields]

        return jax.vmap(one)(states, ctrl)

    def rollout(self, states: Any, ctrl: Array) -> Any:
        """All steps of all worlds; the final states."""
        return jax.lax.scan(lambda d, c: (self.step(d, c), None), states, ctrl)[0]

    def gradient(self, states: Any, ctrl: Array) -> Array:
        """Reverse mode; MJX can do it with one solver iteration only."""
        return jax.grad(lambda c: jnp.sum(self.rollout(states, c).qpos ** 2))(ctrl)


class TunedMjx(Mjx):
    """MJX with the options that we compile our own programs with."""

    def __init__(self, workload: Workload) -> None:
        super().__init__(workload)
        self.options = compiler_options(self.model)


def c_steps_per_second(workload: Workload, steps: int, warmup: int) -> dict[str, float]:
    """C MuJoCo: steps per second of one thread, and of all threads by `mujoco.rollout`."""
    # the oracle's modules have no types
    mujoco: Any = importlib.import_module("mujoco")
    threaded: Any = importlib.import_module("mujoco.rollout")

    model = workload.mjmodel(mujoco)
    threads = os.cpu_count() or 1
    batch = 8 * threads
    ctrl = np.moveaxis(workload.controls(warmup + steps, batch, model.nu), 0, 1).astype(np.float64)
    data = [mujoco.MjData(model) for _ in range(threads)]
    if workload.keyframe is not None:
        mujoco.mj_resetDataKeyframe(model, data[0], workload.keyframe)
    size = mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_FULLPHYSICS)
    start = np.zeros(size)
    mujoco.mj_getState(model, data[0], start, mujoco.mjtState.mjSTATE_FULLPHYSICS)
    warm, _ = threaded.rollout(model, data, np.tile(start, (batch, 1)), ctrl[:, :warmup])
    speeds = {}
    for name, pool in (("c 1 thread", data[:1]), (f"c {threads} threads", data)):
        seconds = best_seconds(threaded.rollout, model, pool, warm[:, -1], ctrl[:, warmup:])
        speeds[name] = batch * steps / seconds
    return speeds


ENGINES = {"diffsim": Ours, "mjx": Mjx, "mjx-tuned": TunedMjx}

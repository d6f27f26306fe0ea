"""The engines that are compared: each makes a batch of states, a rollout under random controls, and its gradient.

Each engine is a row of `ENGINES`: a class with `rollout(states, ctrl)` and, if it has one, `gradient(states, ctrl)`.
MJX and C MuJoCo are imported only if they are measured. `Spread` distributes the worlds of an engine over devices, and
each device runs the engine's own programs on its part. Compile time is measured apart from run time, and the time of a
run is the best of several.
"""

import dataclasses
import importlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from diffsim import parallel
from diffsim.base import changes
from diffsim.bench.made import MADE
from diffsim.compiler.passes import compile_all
from diffsim.mjcf import read
from diffsim.simulate.forward import forward
from diffsim.simulate.step import rollout, step
from diffsim.support.contacts import contacts, efc
from diffsim.types import State
from diffsim.types.state import make_inputs, make_state
from diffsim.xla.compiled import compiler_options

# a run is repeated for at least this long, s: longer than the slow phases of a shared machine
LASTING = 4.0


# contacts and rows are counted in about this many worlds, because they are counted one world at a time
COUNTED = 64


class Compiled(NamedTuple):
    """A compiled function and the time of tracing, lowering and compiling it.

    If other processes use the cores, `seconds` may be several times longer than on a quiet machine: one program took
    2.9 s and, an hour later, 14 s. `cpu` counts only this process and varies much less: 2.3 s and 3.0 s.

    Attributes:
      call: the compiled function.
      seconds: elapsed time, s.
      cpu: CPU time, summed over all cores, s.
    """

    call: Callable[..., Any]
    seconds: float
    cpu: float


def compile_cold(options: dict[str, Any], function: Callable[..., Any], *args: Any) -> Compiled:
    """Traces and compiles a function with options of XLA and without any cache, and measures the time."""
    cached = jax.config.jax_enable_compilation_cache  # type: ignore[attr-defined]
    jax.config.update("jax_enable_compilation_cache", False)
    jax.clear_caches()
    start = time.perf_counter()
    cpu = time.process_time()
    call = jax.jit(function).lower(*args).compile(compiler_options=options)
    seconds = time.perf_counter() - start
    cpu = time.process_time() - cpu
    jax.config.update("jax_enable_compilation_cache", cached)
    return Compiled(call, seconds, cpu)


def best_seconds(call: Callable[..., Any], *args: Any, repeats: int = 3, lasting: float = LASTING) -> float:
    """Time of the fastest run, s, of at least `repeats` runs and of all runs that begin within `lasting` seconds.

    Shared machines are slow for seconds at a time, and the fastest run is the least disturbed.
    """
    times = []
    begun = time.perf_counter()
    while len(times) < repeats or time.perf_counter() - begun < lasting:
        start = time.perf_counter()
        jax.block_until_ready(call(*args))
        times.append(time.perf_counter() - start)
    return min(times)


def best_seconds_in_turn(
    calls: Sequence[Callable[..., Any]], starts: Sequence[Any], ctrl: Any, repeats: int
) -> list[float]:
    """Time of the fastest run of each call on its own start, s; calls take turns, so that all see the same noise."""
    times = [
        [best_seconds(call, start, ctrl, repeats=1, lasting=0) for call, start in zip(calls, starts, strict=True)]
        for _ in range(repeats)
    ]
    return [min(column) for column in zip(*times, strict=True)]


@dataclasses.dataclass(frozen=True)
class Workload:
    """What is simulated.

    Attributes:
      path: a model file, or the name of a generated model in `MADE`.
      iterations, ls_iterations: solver settings; None for the model's.
      noslip_iterations: off by default, because MJX has no noslip solver and would silently leave it out.
      keyframe: initial keyframe, by number; None for qpos0.
      noise: standard deviation of Gaussian noise that is added to the keyframe's controls; None for uniform random
        controls in [-1, 1].
      seed: of the random controls and initial velocities.
      loading: arguments of `diffsim.load`.
    """

    path: str
    iterations: int | None = None
    ls_iterations: int | None = None
    noslip_iterations: int = 0
    keyframe: int | None = None
    noise: float | None = None
    seed: int = 0
    loading: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def options(self) -> dict[str, int]:
        """The solver settings that replace the model's."""
        settings = {"iterations": self.iterations, "ls_iterations": self.ls_iterations}
        return {name: value for name, value in settings.items() if value is not None}

    @property
    def source(self) -> str:
        """A path, or the MJCF text of a generated model."""
        return MADE[self.path]() if self.path in MADE else self.path

    def mjmodel(self, mujoco: Any) -> Any:
        """C MuJoCo's model, compiled from the same source."""
        make = mujoco.MjModel.from_xml_string if self.path in MADE else mujoco.MjModel.from_xml_path
        model = make(self.source)
        for name, value in {**self.options(), "noslip_iterations": self.noslip_iterations}.items():
            setattr(model.opt, name, value)
        return model

    def controls(self, steps: int, batch: int, model: Any) -> np.ndarray:
        """Random controls, (steps, batch, nu).

        Args:
          steps: number of steps.
          batch: number of worlds.
          model: of any engine; it tells the number of controls and the keyframe's controls.
        """
        rng = np.random.default_rng(self.seed)
        size = (steps, batch, model.nu)
        if self.noise is None:
            return rng.uniform(-1, 1, size).astype(np.float32)
        mean = np.zeros(model.nu) if self.keyframe is None else np.asarray(model.key_ctrl[self.keyframe])
        return (mean + self.noise * rng.normal(size=size)).astype(np.float32)

    def velocities(self, batch: int, nv: int) -> np.ndarray:
        """Small random initial velocities, (batch, nv)."""
        return (0.01 * np.random.default_rng(self.seed + 1).normal(size=(batch, nv))).astype(np.float32)


class Counts(NamedTuple):
    """What a step had to solve: means over the worlds, at the end of a run.

    Attributes:
      contacts: active contacts per world.
      rows: constraint rows per world.
      iterations: solver iterations of the last step.
    """

    contacts: float
    rows: float
    iterations: float

    def __str__(self) -> str:
        return f"{self.contacts:.1f} contacts, {self.rows:.1f} rows, {self.iterations:.2f} iterations a world"


class Batched(Protocol):
    """An engine on JAX: a batch of states, and functions of it to compile."""

    workload: Workload
    # the Model of diffsim or MJX
    model: Any
    # column of the table of stages that has the names of this engine's fields: "ours" or "mjx"
    names: str
    # XLA compiler options for its programs
    options: dict[str, Any]

    def start(self, batch: int) -> Any:
        """A batch of initial states."""
        ...

    def resume(self, states: State) -> Any:
        """Converts a batch of diffsim's states to states of this engine."""
        ...

    def step(self, states: Any, ctrl: Array) -> Any:
        """Steps all worlds once."""
        ...

    def read(self, states: Any, ctrl: Array, fields: Sequence[str]) -> list[Any]:
        """Computes some fields of Data for all worlds, and nothing else."""
        ...

    def rollout(self, states: Any, ctrl: Array) -> Any:
        """Steps all worlds with controls (steps, batch, nu); returns the final states."""
        ...

    def gradient(self, states: Any, ctrl: Array) -> Any:
        """Derivative of the sum of squared final positions with respect to the controls."""
        ...


class Ours:
    """diffsim, compiled with its recommended options."""

    names = "ours"

    def __init__(self, workload: Workload) -> None:
        loading = dict(workload.loading)
        version = changes.version_of(loading.pop("mujoco", None) or changes.DEFAULT)
        spec = read(workload.source, allow_outside=loading.pop("allow_outside", None), mujoco=version)
        spec.option.noslip_iterations = workload.noslip_iterations
        model = compile_all(spec, **loading)
        self.workload = workload
        self.model = model.replace(opt=model.opt.replace(**workload.options()))
        self.options = compiler_options()

    def start(self, batch: int) -> State:
        """A batch of initial states."""
        one = make_state(self.model, self.workload.keyframe)
        many = jax.tree.map(lambda x: jnp.broadcast_to(x, (batch, *x.shape)), one)
        return many.replace(qvel=many.qvel + self.workload.velocities(batch, self.model.nv))

    def resume(self, states: State) -> State:
        """Returns the states unchanged."""
        return states

    def step(self, states: State, ctrl: Array) -> State:
        """Steps all worlds once."""
        inputs = make_inputs(self.model)
        return jax.vmap(lambda s, c: step(self.model, s, inputs.replace(ctrl=c)))(states, ctrl)

    def read(self, states: State, ctrl: Array, fields: Sequence[str]) -> list[Any]:
        """Computes some fields of Data."""
        inputs = make_inputs(self.model)

        def one(state: State, row: Array) -> list[Any]:
            data = forward(self.model, state, inputs.replace(ctrl=row))
            return [getattr(data, name) for name in fields]

        return jax.vmap(one)(states, ctrl)

    def counts(self, states: State, ctrl: Array) -> Counts:
        """What the solver has to solve in these states; means over about `COUNTED` worlds."""
        inputs = make_inputs(self.model)
        ahead = jax.jit(lambda state, row: forward(self.model, state, inputs.replace(ctrl=row)))
        by_world = []
        for world in range(0, len(ctrl), max(1, len(ctrl) // COUNTED)):
            data = ahead(jax.tree.map(lambda x: x[world], states), ctrl[world])  # noqa: B023
            active = contacts(self.model, data).ncon
            by_world.append((active, efc(self.model, data).nefc, int(data.solver_niter)))
        return Counts(*np.mean(by_world, axis=0))

    def rollout(self, states: State, ctrl: Array) -> State:
        """Steps all worlds with each row of controls; returns the final states."""
        return jax.lax.scan(lambda s, c: (self.step(s, c), None), states, ctrl)[0]

    def gradient(self, states: State, ctrl: Array) -> Array:
        """Reverse mode through `diffsim.rollout`, which stores one state per step; the solver runs to its tolerance."""

        def loss(c: Array) -> Array:
            one = lambda s, u: rollout(self.model, s, u, readout=lambda state, data: None)[0]  # noqa: E731
            final = jax.vmap(one, in_axes=(0, 1))(states, c)
            return jnp.sum(final.qpos**2)

        return jax.grad(loss)(ctrl)


class Mjx:
    """MJX on JAX, from the same file, compiled as in its documentation: by `jax.jit` alone."""

    names = "mjx"

    def __init__(self, workload: Workload) -> None:
        mujoco: Any = importlib.import_module("mujoco")
        mjx: Any = importlib.import_module("mujoco.mjx")

        self.workload = workload
        self.mjx = mjx
        self.mujoco = mujoco
        self.mjmodel = workload.mjmodel(mujoco)
        self.model = mjx.put_model(self.mjmodel)
        self.options = {}

    def start(self, batch: int) -> Any:
        """A batch of initial states."""
        data = self.mujoco.MjData(self.mjmodel)
        if self.workload.keyframe is not None:
            self.mujoco.mj_resetDataKeyframe(self.mjmodel, data, self.workload.keyframe)
        one = self.mjx.put_data(self.mjmodel, data)
        qvel = jnp.asarray(self.workload.velocities(batch, self.mjmodel.nv))
        return jax.vmap(lambda v: one.replace(qvel=one.qvel + v))(qvel)

    def resume(self, states: State) -> Any:
        """MJX's Data with the states of diffsim."""
        fields = {name: getattr(states, name) for name in ("time", "qpos", "qvel", "act", "qacc_warmstart")}
        return self.start(len(states.qpos)).replace(**fields)

    def step(self, states: Any, ctrl: Array) -> Any:
        """Steps all worlds once."""
        return jax.vmap(lambda d, c: self.mjx.step(self.model, d.replace(ctrl=c)))(states, ctrl)

    def read(self, states: Any, ctrl: Array, fields: Sequence[str]) -> list[Any]:
        """Computes some fields of MJX's Data; fields of its implementation are in `_impl`."""

        def one(data: Any, row: Array) -> list[Any]:
            data = self.mjx.forward(self.model, data.replace(ctrl=row))
            return [getattr(data._impl if name in vars(data._impl) else data, name) for name in fields]

        return jax.vmap(one)(states, ctrl)

    def rollout(self, states: Any, ctrl: Array) -> Any:
        """Steps all worlds with each row of controls; returns the final states."""
        return jax.lax.scan(lambda d, c: (self.step(d, c), None), states, ctrl)[0]

    def gradient(self, states: Any, ctrl: Array) -> Array:
        """Reverse mode; MJX supports it only with one solver iteration."""
        return jax.grad(lambda c: jnp.sum(self.rollout(states, c).qpos ** 2))(ctrl)


class TunedMjx(Mjx):
    """MJX compiled with diffsim's compiler options."""

    def __init__(self, workload: Workload) -> None:
        super().__init__(workload)
        self.options = compiler_options()


def c_steps_per_second(workload: Workload, steps: int, warmup: int) -> dict[str, float]:
    """Steps per second of C MuJoCo, with one thread and with all threads of `mujoco.rollout`."""
    # MuJoCo's modules have no type annotations
    mujoco: Any = importlib.import_module("mujoco")
    threaded: Any = importlib.import_module("mujoco.rollout")

    model = workload.mjmodel(mujoco)
    threads = os.cpu_count() or 1
    batch = 8 * threads
    ctrl = np.moveaxis(workload.controls(warmup + steps, batch, model), 0, 1).astype(np.float64)
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


# sharding of states (worlds, ...)
WORLDS = PartitionSpec(parallel.AXIS)
# sharding of the controls of a rollout (steps, worlds, nu)
STEPS_OF_WORLDS = PartitionSpec(None, parallel.AXIS)


class Spread:
    """Step, rollout and gradient of an engine with its worlds distributed over the devices of a mesh."""

    def __init__(self, engine: Batched, mesh: Mesh) -> None:
        self.engine = engine
        self.mesh = mesh
        self.step = self._over(engine.step, WORLDS, WORLDS)
        self.rollout = self._over(engine.rollout, STEPS_OF_WORLDS, WORLDS)
        self.gradient = self._over(engine.gradient, STEPS_OF_WORLDS, STEPS_OF_WORLDS)

    def start(self, batch: int) -> Any:
        """A batch of initial states, a part on each device."""
        return parallel.spread(self.engine.start(batch), self.mesh)

    def controls(self, steps: int, batch: int) -> Array:
        """Random controls (steps, batch, nu), each on the device of its world."""
        drawn = self.engine.workload.controls(steps, batch, self.engine.model)
        return jax.device_put(drawn, NamedSharding(self.mesh, STEPS_OF_WORLDS))

    def _over(self, function: Callable[[Any, Any], Any], ctrl: PartitionSpec, result: PartitionSpec) -> Callable:
        """A function of states and controls that runs on each device with its part of the worlds."""
        specs = {"in_specs": (WORLDS, ctrl), "out_specs": result}
        return jax.shard_map(function, mesh=self.mesh, **specs, check_vma=False)

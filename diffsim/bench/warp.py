"""MuJoCo Warp on a workload: its own kernels, in a CUDA graph on a GPU, or step by step on a CPU.

It gets the same model, initial states and controls as the other engines. MuJoCo Warp drops contacts and rows that do
not fit into its buffers, which would make it faster than it is. Therefore the buffers grow until everything fits.
"""

import importlib
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from diffsim.bench.engines import Counts, Workload, best_seconds

# contacts per world for which there is room in the first try; the buffers double until nothing is dropped
CONTACTS = 32
# constraint rows per world for which there is room in the first try
ROWS = 64
# fields of mjData that a step reads and changes
STATE = ("time", "qpos", "qvel", "act", "qacc_warmstart")
# largest number of rows per world that is tried: no model needs as many, and a workload that diverges would otherwise
# fill the memory
MOST_ROWS = 16_384


class Measured(NamedTuple):
    """The result of a run.

    Attributes:
      speed: steps per second, of all worlds together.
      first: time until the first step is done, s; building and loading kernels takes most of it.
      counts: what the last step had to solve.
      device: the name of the device.
    """

    speed: float
    first: float
    counts: Counts
    device: str


class _Full(Exception):
    """A buffer of MuJoCo Warp dropped something."""


def measure(workload: Workload, batch: int, steps: int, warmup: int) -> Measured:
    """Steps per second of MuJoCo Warp with `batch` worlds, and what its last step had to solve.

    Args:
      workload: what to simulate.
      batch: number of worlds.
      steps: timed steps; on a GPU they are one CUDA graph.
      warmup: steps before the clock starts.

    Raises:
      MemoryError: a world needs more than `MOST_ROWS` constraint rows.
    """
    contacts, rows = CONTACTS, ROWS
    while rows <= MOST_ROWS:
        try:
            return _Run(workload, batch, contacts, rows).measure(steps, warmup)
        except _Full:
            contacts *= 2
            rows *= 2
    raise MemoryError(f"{workload.path}: a world of MuJoCo Warp needs more than {MOST_ROWS} constraint rows")


class _Run:
    """A batch of worlds of MuJoCo Warp, with buffers of fixed sizes."""

    def __init__(self, workload: Workload, batch: int, contacts: int, rows: int) -> None:
        # neither package has type annotations
        mujoco: Any = importlib.import_module("mujoco")
        self.warp: Any = importlib.import_module("warp")
        self.engine: Any = importlib.import_module("mujoco_warp")
        self.warp.config.quiet = True

        self.workload = workload
        self.mjmodel = workload.mjmodel(mujoco)
        data = mujoco.MjData(self.mjmodel)
        if workload.keyframe is not None:
            mujoco.mj_resetDataKeyframe(self.mjmodel, data, workload.keyframe)
        mujoco.mj_forward(self.mjmodel, data)

        self.batch = batch
        self.model = self.engine.put_model(self.mjmodel)
        # `_check` finds full buffers; versions before 4.0 print a line for each world and have no switch
        if hasattr(self.model.opt, "warn_overflow"):
            self.model.opt.warn_overflow = 0
        sizes = {"nconmax": max(contacts, data.ncon), "njmax": max(rows, data.nefc)}
        self.data = self.engine.put_data(self.mjmodel, data, nworld=batch, **sizes)
        qvel = self.data.qvel.numpy() + workload.velocities(batch, self.mjmodel.nv)
        self.warp.copy(self.data.qvel, self.warp.array(qvel, dtype=self.warp.float32))

    def measure(self, steps: int, warmup: int) -> Measured:
        """Runs the warm-up, then times the steps."""
        # the warm-up runs the timed steps a whole number of times, as for the other engines
        before = max(1, -(-warmup // steps))
        rows = self.workload.controls((before + 1) * steps, self.batch, self.mjmodel)
        ctrl = [self.warp.array(row, dtype=self.warp.float32) for row in rows]
        begun = time.perf_counter()
        self._step(ctrl[0])
        first = time.perf_counter() - begun
        for number in range(1, before * steps):
            self._step(ctrl[number])
        run = self._program(ctrl[before * steps :])
        seconds = best_seconds(run)
        self._check()
        device = self.warp.get_device()
        return Measured(self.batch * steps / seconds, first, self._counts(), device.name or str(device))

    def _program(self, ctrl: list[Any]) -> Callable[[], None]:
        """A function that runs all steps from the present state, each time it is called.

        On a GPU it launches one CUDA graph; on a CPU it runs step by step.
        """
        now = {name: getattr(self.data, name) for name in STATE}
        start = {name: self.warp.clone(array) for name, array in now.items()}

        def every_step() -> None:
            for name, array in now.items():
                self.warp.copy(array, start[name])
            for row in ctrl:
                self._launch(row)

        if self.warp.get_device().is_cpu:
            return every_step
        with self.warp.ScopedCapture() as capture:
            every_step()

        def replay() -> None:
            self.warp.capture_launch(capture.graph)
            self.warp.synchronize()

        return replay

    def _launch(self, ctrl: Any) -> None:
        """Queues one step of all worlds."""
        if self.mjmodel.nu:
            self.warp.copy(self.data.ctrl, ctrl)
        self.engine.step(self.model, self.data)

    def _step(self, ctrl: Any) -> None:
        """Steps all worlds once, and checks that nothing was dropped."""
        self._launch(ctrl)
        self.warp.synchronize()
        self._check()

    def _check(self) -> None:
        """Raises `_Full` if a buffer was too small: the counters also count what was dropped."""
        counted = max(int(self.data.nacon.numpy()[0]), int(self.data.ncollision.numpy()[0]))
        if counted > self.data.naconmax or int(self.data.nefc.numpy().max()) > self.data.njmax:
            raise _Full

    def _counts(self) -> Counts:
        """What the last step had to solve."""
        data = self.data
        active = int(data.nacon.numpy()[0]) / self.batch
        return Counts(active, float(data.nefc.numpy().mean()), float(data.solver_niter.numpy().mean()))

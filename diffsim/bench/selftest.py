"""`diffsim selftest`: checks the results of diffsim on this device and measures its speed; a page for bug reports.

Kernels, or the functions that replace them on a TPU, are compared with numpy. For some models a step, a rollout and its
gradient in float32 on the default device are compared with float64 on the CPU. The bounds are 20 to 40 times the errors
of a CPU, because a contact that rounding moves to an earlier or later step causes larger errors than rounding itself.
"""

import platform
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.bench.engines import best_seconds, compile_cold
from diffsim.load import load
from diffsim.simulate.step import rollout
from diffsim.types import State
from diffsim.types.state import make_inputs, make_state
from diffsim.version import VERSION
from diffsim.xla.compiled import compiler_options
from diffsim.xla.solves import tpu_cholesky, warp_cholesky
from diffsim.xla.solves.cholesky import solve_gram
from diffsim.xla.solves.probe import check_kernels, check_loops
from diffsim.xla.warp.probe import find_gpu

# models that are checked by default: with and without contacts, small and large
MODELS = ("cartpole", "hopper", "quadruped", "humanoid")
# number of worlds in float32: enough to keep a CPU busy
WORLDS = 256
# number of steps of a rollout: enough for feet to land
STEPS = 20
# number of worlds that are compared with float64: all of them would take long
COMPARED = 4
# functions of tpu_cholesky.py that are checked on a TPU
SOLVES = ("factor", "solve", "solve_sum", "solve_gram")


class Bound(NamedTuple):
    """A quantity that is compared, and its largest allowed relative error."""

    name: str
    allowed: float


BOUNDS = (Bound("step", 2e-5), Bound("rollout", 1e-4), Bound("gradient", 1e-3))


def selftest(names: Sequence[str] = MODELS, show: Callable[[str], None] = print) -> bool:
    """Runs the checks and prints the page.

    Args:
      names: models to check, as in `diffsim.load`.
      show: prints a line.

    Returns:
      Whether all checks passed.
    """
    device = jax.devices()[0]
    show(f"diffsim {VERSION}, jax {jax.__version__}, Python {platform.python_version()}, {platform.platform()}")
    show(f"device {device.platform}: {len(jax.devices())} x {device.device_kind}")
    if device.platform == "tpu":
        show("factors and solves: written out for this TPU")
        checks = check_kernels(SimpleNamespace(**{name: jax.jit(getattr(tpu_cholesky, name)) for name in SOLVES}))
    elif find_gpu() is None:
        show("kernels: no CUDA device; run by their interpreter")
        checks = check_kernels(warp_cholesky, interpret=True) + check_loops(solve_gram, interpret=True)
    else:
        show("kernels: compiled for this GPU")
        checks = check_kernels(warp_cholesky) + check_loops(solve_gram)
    for check in checks:
        answer = check.failure or f"error {check.error:.1e}"
        show(f"  {check.kernel:<12}{check.rows:4d} rows   {answer:<20}{'ok' if check.passed else 'FAILED'}")
    show(f"models: {WORLDS} worlds, {STEPS} steps, random controls; float32 here compared with float64 on the CPU")
    results = [_show_model(name, show) for name in names]
    failed = sum(not check.passed for check in checks) + results.count(False)
    show("all checks passed" if not failed else f"{failed} checks FAILED: please send this page to the issue tracker")
    return not failed


def _show_model(name: str, show: Callable[[str], None]) -> bool:
    """Compares and times one model and prints a line; returns whether all errors are within bounds."""
    with jax.enable_x64(False):
        single, seconds, speed = _measure(name, WORLDS, jax.devices()[0])
    with jax.enable_x64(True):
        double, _, _ = _measure(name, COMPARED, jax.devices("cpu")[0])
    parts = []
    passed = True
    for bound, here, there in zip(BOUNDS, single, double, strict=True):
        error = np.max(np.abs(here[:COMPARED] - there)) / max(np.max(np.abs(there)), 1e-12)
        # this comparison is false for nan
        fine = bool(error < bound.allowed)
        parts.append(f"{bound.name} {error:.1e}{'' if fine else ' FAILED'}")
        passed &= fine
    show(f"  {name:<12}{', '.join(parts)}; compiled in {seconds:.1f} s, {speed:,.0f} steps/s with gradient")
    return passed


def _measure(name: str, worlds: int, device: Any) -> tuple[list[np.ndarray], float, float]:
    """[qvel after a step, qpos after the last step, gradient] of each world; compile time, s; steps per second."""
    with jax.default_device(device):
        model = load(name)
        # start at the first keyframe if there is one, with small random velocities
        one = make_state(model, 0 if model.topology.nkey else None)
        starts = jax.tree.map(lambda x: jnp.broadcast_to(x, (worlds, *x.shape)), one)
        push = 0.1 * np.random.default_rng(1).normal(size=(WORLDS, model.nv))[:worlds]
        starts = starts.replace(qvel=starts.qvel + push.astype(one.qvel.dtype))
        controls = np.random.default_rng(0).uniform(-1, 1, (WORLDS, STEPS, model.nu))[:worlds]
        ctrl = jnp.asarray(controls, model.qpos0.dtype)

        def loss(ctrl: jax.Array, start: State) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
            final, qvel = rollout(model, start, ctrl, lambda state, data: state.qvel, make_inputs(model))
            return jnp.sum(final.qpos**2), (qvel[1], final.qpos)

        options = compiler_options() if device.platform == jax.devices()[0].platform else {}
        run, seconds, _ = compile_cold(options, jax.vmap(jax.grad(loss, has_aux=True)), ctrl, starts)
        gradient, (qvel, qpos) = run(ctrl, starts)
        speed = worlds * STEPS / best_seconds(run, ctrl, starts, lasting=0)
    return [np.asarray(x, float) for x in (qvel, qpos, gradient)], seconds, speed

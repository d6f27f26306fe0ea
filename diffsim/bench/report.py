"""The report of `python -m diffsim bench`: throughput per batch size, ratios, and a table of the time of each stage.

The table times prefixes of the pipeline, with diffsim and MJX taking turns. `forward` is compiled to return only the
fields of the stages so far; XLA removes the code that these do not need. The difference between two prefixes is what a
stage adds, including the effects of fusion. The smooth stages come first, so that one prefix is all of the smooth part.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
from jax import Array

from diffsim import parallel
from diffsim.bench import warp
from diffsim.bench.engines import (
    ENGINES,
    Batched,
    Ours,
    Spread,
    Workload,
    best_seconds,
    best_seconds_in_turn,
    c_steps_per_second,
    compile_cold,
)


class Stage(NamedTuple):
    """The name of a stage and the fields that it computes, in diffsim and in MJX."""

    name: str
    ours: tuple[str, ...]
    mjx: tuple[str, ...]


# fields that need the stage "kinematics"
POSES = ("xpos", "xquat", "xipos", "geom_xpos", "geom_xmat", "site_xpos")
# fields that need the stage "com, inertia"; M has another name in MJX
INERTIA = ("cinert", "cdof")
# fields that need the stage "tendons, transmission"
MOMENTS = ("ten_length", "ten_J", "actuator_length", "actuator_moment")

# the prefix of a stage computes the fields of all rows up to and including it
STAGES = (
    Stage("kinematics", POSES, POSES),
    Stage("com, inertia", (*INERTIA, "M"), (*INERTIA, "qM")),
    Stage("tendons, transmission", MOMENTS, MOMENTS),
    Stage("velocity, bias, passive, actuation", ("qfrc_smooth",), ("qfrc_smooth",)),
    Stage("collision", ("contact",), ("contact",)),
    # one row: a program that returns the constraint rows costs more than one that only uses them in the solver
    Stage("constraint rows, solver", ("qacc", "qfrc_constraint"), ("qacc", "qfrc_constraint")),
)
# number of rows of STAGES that are the smooth part
SMOOTH = 4

Rows = Iterator[tuple[str, list[float]]]


def stage_table(engines: Sequence[Batched], starts: Sequence[Any], ctrl: Array, repeats: int = 30) -> Rows:
    """Times the stages of a step: yields (name, one number per engine).

    The numbers are the microseconds per world that a stage adds; some rows are sums or compile times in seconds.

    Args:
      engines: diffsim first; the engines take turns, so that all see the same noise of the machine.
      starts: a batch of states for each engine.
      ctrl: controls, (batch, nu).
      repeats: number of runs; the fastest counts.
    """
    before = [0.0] * len(engines)
    for number, stage in enumerate(STAGES):
        programs = []
        for engine, start in zip(engines, starts, strict=True):
            fields = tuple(name for prefix in STAGES[: number + 1] for name in getattr(prefix, engine.names))
            programs.append(compile_cold(engine.options, functools.partial(engine.read, fields=fields), start, ctrl))
        seconds = best_seconds_in_turn([program.call for program in programs], starts, ctrl, repeats)
        yield stage.name, _microseconds(ctrl, seconds, before)
        before = seconds
        if number == SMOOTH - 1:
            yield "= smooth part", _microseconds(ctrl, seconds)
            yield "compile the smooth part, s", [program.seconds for program in programs]
    programs = [
        compile_cold(engine.options, engine.step, start, ctrl) for engine, start in zip(engines, starts, strict=True)
    ]
    yield "compile the step, s", [program.seconds for program in programs]
    whole = best_seconds_in_turn([program.call for program in programs], starts, ctrl, repeats)
    yield "integration", _microseconds(ctrl, whole, before)
    yield "= whole step", _microseconds(ctrl, whole)


def _microseconds(ctrl: Array, seconds: list[float], before: list[float] | None = None) -> list[float]:
    """Time per world for each engine, us; minus the time of the previous prefix (`before`), if given."""
    start = before or [0.0] * len(seconds)
    return [1e6 * (now - then) / ctrl.shape[0] for now, then in zip(seconds, start, strict=True)]


Printer = Callable[[str], None]
# figures for which a ratio is printed
KEYS = (
    "steps/s",
    "compile step s",
    "compile step, s of all cores",
    "compile gradient s",
    "compile gradient, s of all cores",
    "gradient us",
)


@dataclasses.dataclass(frozen=True)
class Schedule:
    """The measurements of a report.

    Attributes:
      batches: batch sizes.
      steps: timed steps.
      warmup: steps before the clock starts.
      gradient_steps: steps of the differentiated rollout.
      whole: whether to time rollouts.
      stages: whether to time stages.
      counts: whether to count the contacts, rows and iterations of diffsim.
    """

    batches: Sequence[int]
    steps: int = 50
    warmup: int = 100
    gradient_steps: int = 20
    whole: bool = True
    stages: bool = True
    counts: bool = False


def report(
    workload: Workload, schedule: Schedule, against: Sequence[str] = (), show: Printer = print
) -> dict[str, float]:
    """Runs the benchmark and prints its report.

    Args:
      workload: what to simulate.
      schedule: the measurements. Rollouts run on all devices, stages on one.
      against: engines to compare with.
      show: prints a line.

    Returns:
      All figures by name, such as `"diffsim 512 steps/s"`.
    """
    figures: dict[str, float] = {}
    names = ["diffsim", *(name for name in against if name in ENGINES)]
    others = names[1:]
    show(f"model {workload.path}")
    settings = workload.options() or "of the model"
    kind = f"{len(jax.devices())} x {jax.devices()[0].device_kind}"
    show(f"backend {jax.default_backend()}, {kind}, solver settings {settings}")
    for batch in schedule.batches if schedule.whole else ():
        for name in names:
            figures |= _measure(name, workload, batch, schedule, show)
        if "warp" in against:
            figures |= _measure_warp(workload, batch, schedule, show)
    others += [name for name in against if name == "warp"]
    if "c" in against and schedule.whole:
        for name, speed in c_steps_per_second(workload, 4 * schedule.steps, schedule.warmup).items():
            figures[f"{name} steps/s"] = speed
            show(f"{name:>14}: {speed:12,.0f} steps/s = {1e6 / speed:.1f} us a step")
            others.append(name)
    for name in others:
        _ratios(name, figures, schedule.batches, show)
    for batch in schedule.batches if schedule.stages else ():
        figures |= _stages(workload, names, batch, schedule.warmup, show)
    return figures


def _stages(workload: Workload, names: Sequence[str], batch: int, warmup: int, show: Printer) -> dict[str, float]:
    """Prints the table of stages at one batch size, one column per engine, at the states after diffsim's warm-up."""
    engines = [ENGINES[name](workload) for name in names]
    ctrl = jax.numpy.asarray(workload.controls(warmup + 1, batch, engines[0].model))
    warm = jax.block_until_ready(jax.jit(engines[0].rollout)(engines[0].start(batch), ctrl[:warmup]))
    starts = [engine.resume(warm) for engine in engines]
    show(f"stages, batch {batch}, us a step{'':>17}" + "".join(f"{name:>10}" for name in names))
    figures = {}
    for stage, values in stage_table(engines, starts, ctrl[warmup]):
        ratio = f"{values[1] / values[0]:9.2f} x" if len(values) > 1 and values[0] > 0 else ""
        show(f"  {stage:<40}" + "".join(f"{value:10.2f}" for value in values) + ratio)
        figures |= {f"{name} {batch} stage {stage}": value for name, value in zip(names, values, strict=True)}
    return figures


def _measure(name: str, workload: Workload, batch: int, schedule: Schedule, show: Printer) -> dict[str, float]:
    """Compile times and throughput of steps and gradients of one engine at one batch size."""
    steps, gradient_steps = schedule.steps, schedule.gradient_steps
    engine = ENGINES[name](workload)
    spread = Spread(engine, parallel.mesh())
    # the warm-up runs the timed rollout program a whole number of times, to save compiling another one
    before = -(-schedule.warmup // steps)
    states = spread.start(batch)
    ctrl = spread.controls((before + 1) * steps, batch)
    step = compile_cold(engine.options, spread.step, states, ctrl[0])
    rollout = compile_cold(engine.options, spread.rollout, states, ctrl[:steps]).call
    for number in range(before):
        states = jax.block_until_ready(rollout(states, ctrl[number * steps : (number + 1) * steps]))
    timed = ctrl[before * steps :]
    microseconds = 1e6 * best_seconds(rollout, states, timed) / batch / steps
    figures = {"compile step s": step.seconds, "compile step, s of all cores": step.cpu, "steps/s": 1e6 / microseconds}
    show(
        f"{name:>14} batch {batch}: {1e6 / microseconds:12,.0f} steps/s = {microseconds:.1f} us a step;"
        f" step compiled in {step.seconds:.1f} s ({step.cpu:.1f} s of all cores)"
    )
    if schedule.counts and isinstance(engine, Ours):
        counts = engine.counts(rollout(states, timed), timed[-1])
        figures |= counts._asdict()
        show(f"{'':>14} {counts}")
    if gradient_steps and (engine.names != "mjx" or workload.iterations == 1):
        short = timed[:gradient_steps]
        gradient = compile_cold(engine.options, spread.gradient, states, short)
        back = 1e6 * best_seconds(gradient.call, states, short) / batch / gradient_steps
        figures |= {"compile gradient s": gradient.seconds, "compile gradient, s of all cores": gradient.cpu}
        figures |= {"gradient us": back, "gradient/forward": back / microseconds}
        show(
            f"{'':>14} gradient of {gradient_steps} steps: {back:.1f} us a step, {back / microseconds:.2f} x a forward"
            f" step; compiled in {gradient.seconds:.1f} s ({gradient.cpu:.1f} s of all cores)"
        )
    return {f"{name} {batch} {key}": value for key, value in figures.items()}


def _measure_warp(workload: Workload, batch: int, schedule: Schedule, show: Printer) -> dict[str, float]:
    """Throughput of MuJoCo Warp at one batch size, and what its last step had to solve."""
    measured = warp.measure(workload, batch, schedule.steps, schedule.warmup)
    microseconds = 1e6 / measured.speed
    show(
        f"{'warp':>14} batch {batch}: {measured.speed:12,.0f} steps/s = {microseconds:.1f} us a step"
        f" on {measured.device}; first step after {measured.first:.1f} s; {measured.counts}"
    )
    figures = {"steps/s": measured.speed, **measured.counts._asdict()}
    return {f"warp {batch} {key}": value for key, value in figures.items()}


def _ratios(name: str, figures: dict[str, float], batches: Sequence[int], show: Printer) -> None:
    """Prints how many times faster diffsim is than another engine, for each figure that both have."""
    for batch in batches:
        for key in KEYS:
            ours = figures.get(f"diffsim {batch} {key}")
            # C MuJoCo has one speed for all batch sizes
            theirs = figures.get(f"{name} {batch} {key}", figures.get(f"{name} {key}"))
            if ours and theirs:
                ratio = ours / theirs if key == "steps/s" else theirs / ours
                figures[f"over {name} {batch} {key}"] = ratio
                show(f"   over {name}, batch {batch}: {ratio:5.2f} x in {key}")

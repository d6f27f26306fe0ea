"""Where the time of a step goes: prefixes of the pipeline, ours and MJX's in turn.

`forward` is compiled for the fields of one stage at a time; XLA removes what they do not need, so each prefix holds
the stages up to that one, and the difference between neighbours is what a stage adds, fusion included. The smooth part
comes first, so that one prefix is all of it.
"""

import functools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax

from diffsim.bench.engines import Batched
from diffsim.bench.timing import best_seconds_in_turn, compile_cold

Array = jax.Array


class Stage(NamedTuple):
    """A stage's name and the fields that need it, ours and MJX's."""

    name: str
    ours: tuple[str, ...]
    mjx: tuple[str, ...]


POSES = ("xpos", "xquat", "xipos", "geom_xpos", "geom_xmat", "site_xpos")
INERTIA = ("cinert", "cdof")
MOMENTS = ("ten_length", "ten_J", "actuator_length", "actuator_moment")

# a stage's prefix has the fields of all rows up to its own
STAGES = (
    Stage("kinematics", POSES, POSES),
    Stage("com, inertia", (*INERTIA, "M"), (*INERTIA, "qM")),
    Stage("tendons, transmission", MOMENTS, MOMENTS),
    Stage("velocity, bias, passive, actuation", ("qfrc_smooth",), ("qfrc_smooth",)),
    Stage("collision", ("contact",), ("contact",)),
    # together: written out, the rows would cost more than they do
    Stage("constraint rows, solver", ("qacc", "qfrc_constraint"), ("qacc", "qfrc_constraint")),
)
SMOOTH = 4

Rows = Iterator[tuple[str, list[float]]]


def stage_table(engines: Sequence[Batched], starts: Sequence[Any], ctrl: Array, repeats: int = 30) -> Rows:
    """(stage, added microseconds per world) for each prefix, one number per engine, sums, and seconds to compile.

    Args:
      engines: ours first; the same clock runs over all of them in turn, so that they share what else the machine does.
      starts: for each engine a batch of states.
      ctrl: controls, (batch, nu).
      repeats: runs of which the fastest counts.
    """
    before = [0.0] * len(engines)
    for number, stage in enumerate(STAGES):
        programs = [
            compile_cold(engine.options, functools.partial(engine.read, fields=_fields(engine, number)), start, ctrl)
            for engine, start in zip(engines, starts, strict=True)
        ]
        seconds = best_seconds_in_turn([each.call for each in programs], starts, ctrl, repeats)
        yield stage.name, _microseconds(ctrl, seconds, before)
        before = seconds
        if number == SMOOTH - 1:
            yield "= smooth part", _microseconds(ctrl, seconds)
            yield "compile the smooth part, s", [each.seconds for each in programs]
    programs = [
        compile_cold(engine.options, engine.step, start, ctrl) for engine, start in zip(engines, starts, strict=True)
    ]
    yield "compile the step, s", [each.seconds for each in programs]
    whole = best_seconds_in_turn([each.call for each in programs], starts, ctrl, repeats)
    yield "integration", _microseconds(ctrl, whole, before)
    yield "= whole step", _microseconds(ctrl, whole)


def _fields(engine: Batched, number: int) -> tuple[str, ...]:
    """Fields of a prefix in an engine's names."""
    return tuple(name for stage in STAGES[: number + 1] for name in getattr(stage, engine.names))


def _microseconds(ctrl: Array, seconds: list[float], before: list[float] | None = None) -> list[float]:
    """Added time per world."""
    start = before or [0.0] * len(seconds)
    return [1e6 * (now - then) / ctrl.shape[0] for now, then in zip(seconds, start, strict=True)]

"""Where the time of a step goes: prefixes of the pipeline, timed one after the other.

`forward` is compiled for the fields of one stage at a time; XLA removes what they do not need, so each prefix holds
the stages up to that one, and the difference between neighbours is what a stage adds, fusion included.
"""

from typing import Any

import jax

from diffsim.bench.engines import Ours
from diffsim.bench.timing import best_seconds, compile_cold
from diffsim.pipeline import forward
from diffsim.types import Data
from diffsim.types.state import make_inputs

Array = jax.Array

POSES = ("xpos", "xquat", "geom_xpos", "geom_xmat")
INERTIA = (*POSES, "cinert", "cdof", "qM")
CONTACT = (*INERTIA, "contact")
SMOOTH = (*CONTACT, "qfrc_smooth")
ROWS = (*SMOOTH, "efc")

# stage: the fields that need it, and everything before
PREFIXES = {
    "kinematics": POSES,
    "com, inertia": INERTIA,
    "collision": CONTACT,
    "velocity, bias, passive, actuation": SMOOTH,
    "constraint rows": ROWS,
    "solver": (*ROWS, "qacc", "qfrc_constraint"),
}


def stage_table(engine: Ours, states: Any, ctrl: Array, inner: int = 1) -> list[tuple[str, float]]:
    """(stage, added microseconds per world) for each prefix, and for the integration that ends the step."""
    batch = ctrl.shape[0]
    inputs = make_inputs(engine.model)
    rows, before = [], 0.0
    for name, fields in PREFIXES.items():

        def prefix(s: Any, c: Array, fields: tuple[str, ...] = fields) -> list[Any]:
            data: Data = forward(engine.model, s, inputs.replace(ctrl=c))
            return [getattr(data, field) for field in fields]

        seconds = best_seconds(compile_cold(jax.vmap(prefix), states, ctrl).call, states, ctrl, repeats=10)
        rows.append((name, 1e6 * (seconds - before) / batch))
        before = seconds
    whole = best_seconds(compile_cold(engine.step, states, ctrl).call, states, ctrl, repeats=10)
    return [
        *rows,
        ("integration (whole step less the prefix)", 1e6 * (whole - before) / batch),
        ("whole step", 1e6 * whole / batch),
    ]

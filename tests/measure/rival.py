"""A task of MuJoDiCo's by its own methods, in its own Python: one line of JSON a solve. `plan rival` runs it.

    PYTHON -m tests.measure.rival PushBox2d IpoptMultipleShooting seconds=60 0 1 2     # PYTHON has mujodico and cyipopt

Each method is as shipped, from the first guess of the task: 500 iterations at most, and `seconds` of CPU, by IPOPT's
settings of these names. A line has the controls, the goal error that the method reports of its last state, that of the
same controls played in its own world without smoothing (Hunt-Crossley's contacts), both as shares of the start's; CPU
seconds of the solve, and of what was compiled before it. This file imports nothing of diffsim.
"""

import importlib
import json
import sys
import time
import types
from typing import Any

import numpy as np

METHODS = (
    "IpoptMultipleShooting",
    "IpoptLiftedMultipleShooting",
    "IpoptRelaxationContactImplicit",
    "IpoptSingleShooting",
)


def modules(seconds: float) -> tuple[Any, ...]:
    """Theirs: methods, tasks and trajopt, without the viewers that tasks import; IPOPT with a limit of time."""
    for stub in ("mjviser", "viser", "plotly", "plotly.graph_objects", "plotly.subplots"):
        sys.modules[stub] = types.ModuleType(stub)
    sys.modules["viser"].ViserServer = sys.modules["plotly.graph_objects"].Figure = object  # type: ignore[attr-defined]
    for child in ("graph_objects", "subplots"):
        setattr(sys.modules["plotly"], child, sys.modules[f"plotly.{child}"])
    cyipopt = importlib.import_module("cyipopt")

    class Limited(cyipopt.Problem):
        """A problem whose solve ends in time."""

        def solve(self, *args: Any, **more: Any) -> Any:
            self.add_option("max_cpu_time", seconds)
            return super().solve(*args, **more)

    cyipopt.Problem = Limited
    return tuple(
        importlib.import_module(f"mujodico.{name}") for name in ("examples.methods", "examples.tasks", "trajopt")
    )


def main() -> None:
    """Solves what is named."""
    words = sys.argv[1:]
    seconds = next((float(word[8:]) for word in words if word.startswith("seconds=")), 60.0)
    methods, tasks, trajopt = modules(seconds)
    jax, maker, name = importlib.import_module("jax"), getattr(tasks, words[0]), words[1]
    task = maker(0)
    step = trajopt.shooting_transcription(task.model, task.contact_approx, task.contact_smoothing)
    world = jax.jit(lambda x, us: jax.lax.scan(lambda x, u: (step(x, u), None), x, us)[0])
    began, method = time.process_time(), None
    for seed in [int(word) for word in words if word.isdigit()] or [0]:
        task = maker(seed)
        line: dict[str, Any] = {"task": words[0], "seed": seed, "method": name}
        try:
            if method is not None and hasattr(method, "update"):
                method.update(task)
            else:
                method = getattr(methods, name)(task)
            prepared, began = time.process_time() - began, time.process_time()
            found = method.solve({"xs": task.xs_init, "us": task.us_init}, iterations=500)
            line |= {"cpu": round(time.process_time() - began, 1), "compile": round(prepared, 1)}
            ends = np.asarray(found["xs"])[-1], np.asarray(world(task.x_0, np.asarray(found["us"])))
            parts = [(x - task.x_goal) @ task.Q @ (x - task.x_goal) for x in (*ends, task.x_0)]
            line |= {"reported": float(parts[0] / parts[2]), "own": float(parts[1] / parts[2])}
            line["ctrl"] = np.asarray(found["us"], float).tolist()
        except Exception as error:
            # a task of theirs that a method of theirs refuses is a row as well
            line["fails"] = repr(error)[:300]
        print(json.dumps(line), flush=True)
        began = time.process_time()


if __name__ == "__main__":
    main()

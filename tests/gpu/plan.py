# ruff: noqa: E402
"""`make gpu-plan`: the programs of this library for an H200, without one.

python tests/gpu/plan.py [--only PATTERN] [--against mjx] [--record]

Compiles steps, rollouts and gradients for the device. Prints what is certain: kernels, bytes that they move, library
calls, loops that the host waits for, CUDA graphs, temporary memory; and steps per second by a model of time that was
fitted to an H100. Fails where a program has 5% more kernels or bytes than in the recorded baseline.
`--record` writes the baseline anew.
"""

import argparse
import dataclasses
import json
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

import jax

jax.config.update("jax_platforms", "cpu")
# short loops are traced as on the device
jax.default_backend = lambda: "gpu"

from tests.gpu.engines import STEPS, arguments_of, engine_of
from tests.gpu.predict import time_of
from tests.gpu.program import Trips, read_graphs, read_program
from tests.gpu.target import Compiled, compile_for_device

BASELINE = HERE / "baseline.json"
# how much kernels and bytes may grow
GROWTH = 1.05


@dataclasses.dataclass(frozen=True)
class Row:
    """A program: model file, batch size, what of an engine, solver settings, the trips of dynamic loops, and the mean
    number of iterations of loops that warps run by themselves.
    """

    path: str
    batch: int
    mode: str
    limits: tuple[int, ...] = ()
    # of loops by their depth, as 1,024 worlds needed on a CPU
    trips: Trips = (1.0,)
    iterations: float = 1.0

    @property
    def steps(self) -> int:
        """Steps in one run of the program."""
        return 1 if self.mode == "step" else STEPS


HUMANOID, HAND, TEN = "humanoid/humanoid.xml", "shadow_hand/right_hand.xml", "humanoid/10_humanoids.xml"
QUADRUPED = "quadruped.xml"
ROWS = {
    "humanoid step": Row(HUMANOID, 8192, "step"),
    "humanoid rollout": Row(HUMANOID, 8192, "rollout"),
    "humanoid gradient": Row(HUMANOID, 8192, "gradient"),
    "humanoid to tolerance": Row(HUMANOID, 8192, "step", (100, 50), (8.0,), 3.1),
    "hand step": Row(HAND, 8192, "step"),
    "quadruped step": Row(QUADRUPED, 8192, "step", (), (6.0,), 2.1),
    "10 humanoids step": Row(TEN, 1024, "step", (), (14.25, 3.0)),
    # batches as of MuJoCo Warp's benchmark of cloth; trips guessed: 8 iterations of 10 products
    "cloth step": Row("cloth.xml", 32, "step", (), (8.0, 10.0)),
    "solid step": Row("solid.xml", 32, "step", (), (4.0, 10.0)),
    "soft gripper step": Row("soft_gripper.xml", 1024, "step", (), (4.0, 4.0)),
}


def compile_row(engine: str, row: Row) -> Compiled:
    """The program of a row."""
    made = engine_of(engine, row.path, row.limits)
    return compile_for_device(getattr(made, row.mode), *arguments_of(made, row.mode, row.batch))


def measure(engine: str, row: Row) -> dict[str, float]:
    """The numbers of a row, per step."""
    compiled = compile_row(engine, row)
    program, graphs = read_program(compiled.hlo, row.trips, row.iterations), read_graphs(compiled.launches)
    microseconds = time_of(program, graphs) / row.steps
    return {
        "kernels": round(sum(k.times for k in program.kernels) / row.steps, 1),
        "MiB": round(sum(k.times * k.bytes for k in program.kernels) / row.steps / 2**20, 1),
        "library calls": round(sum(k.times for k in program.kernels if k.is_library) / row.steps, 1),
        "host loops": min(graphs.host_loops, sum(loop.is_dynamic for loop in program.loops)),
        "graphs": graphs.graphs,
        "launches outside": graphs.outside,
        "temporary MiB": compiled.temporary // 2**20,
        "M steps/s": round(row.batch / microseconds, 2),
    }


def compare(name: str, new: dict[str, float], old: dict[str, float]) -> list[str]:
    """What grew too much since the baseline."""
    watched = ("kernels", "MiB", "library calls", "host loops")
    return [f"{name}: {key} {old[key]} -> {new[key]}" for key in watched if new[key] > GROWTH * old[key]]


def record(name: str, found: dict[str, float]) -> None:
    """Writes one row of the baseline."""
    rows = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    BASELINE.write_text(json.dumps({**rows, name: found}, indent=1, sort_keys=True) + "\n")


def main() -> int:
    """Prints the table; 1 if a program grew."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="rows whose name has this regular expression")
    parser.add_argument("--against", nargs="*", default=[], choices=["mjx"])
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    baseline = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    grown: list[str] = []
    for row_name, row in ROWS.items():
        for engine in ["diffsim", *options.against]:
            name = f"{engine} {row_name}"
            if re.search(options.only, name):
                found = measure(engine, row)
                print(f"{name:34s} " + ", ".join(f"{value} {key}" for key, value in found.items()), flush=True)
                grown += compare(name, found, baseline[name]) if name in baseline and not options.record else []
                if options.record:
                    record(name, found)
    print(f"GPU PLAN jax {jax.__version__}: {len(grown)} grew" + "".join(f"\n  {line}" for line in grown))
    return int(bool(grown))


if __name__ == "__main__":
    sys.exit(main())

# ruff: noqa: E402
"""`make tpu-plan`: the programs of this library for a TPU, without one.

python tests/tpu/plan.py [--only PATTERN] [--chip v6e] [--against mjx] [--record] [--lines N] [--hlo FOLDER]

Compiles rollouts and gradients for one chip of a v5e, and a rollout for a slice of eight. Prints fusions, gathers,
loops, operations for which chips wait for one another, and library calls; GiB that a step moves by XLA's count, which
is that of whole tiles; bytes of stored arrays with the padding of tiles over those without; GiB of the chip's main
memory; steps per second, as if nothing but XLA's bytes took time; temporary memory. Fails where a program has 5% more
fusions, gathers or bytes than in the recorded baseline, or does not fit into memory. `--record` writes the baseline
anew. A loop's body is counted once: the bytes of a rollout are those of one step, and those of a search to tolerance
are those of one iteration and all around it.
"""

import argparse
import dataclasses
import json
import pathlib
import re
import sys
import time

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

import jax

jax.config.update("jax_platforms", "cpu")
# what is chosen by platform is traced as on the chip
jax.default_backend = lambda: "tpu"

from tests.gpu.engines import arguments_of, engine_of
from tests.tpu.program import read_program
from tests.tpu.target import CHIPS, Chip, compile_for_chip, compile_for_slice

BASELINE = HERE / "baseline.json"
# how much fusions, gathers and bytes may grow
GROWTH = 1.05
# operations for which a chip waits for the others
COLLECTIVES = ("all-reduce", "all-gather", "all-to-all", "collective", "reduce-scatter")


@dataclasses.dataclass(frozen=True)
class Row:
    """A program: model file, batch size, what of an engine, solver settings, and on how many chips: 1 or 8."""

    path: str
    batch: int = 4096
    mode: str = "rollout"
    limits: tuple[int, ...] = ()
    chips: int = 1


HUMANOID, HAND, TEN = "humanoid/humanoid.xml", "shadow_hand/right_hand.xml", "humanoid/10_humanoids.xml"
TO_TOLERANCE = (100, 50)
ROWS = {
    "humanoid rollout": Row(HUMANOID),
    "humanoid gradient": Row(HUMANOID, mode="gradient"),
    "humanoid to tolerance": Row(HUMANOID, limits=TO_TOLERANCE),
    "humanoid gradient to tolerance": Row(HUMANOID, mode="gradient", limits=TO_TOLERANCE),
    "hand rollout": Row(HAND),
    "convex rollout": Row("convex.xml"),
    "quadruped rollout": Row("quadruped.xml"),
    "10 humanoids rollout": Row(TEN, batch=1024),
    "cloth rollout": Row("cloth.xml", batch=32),
    "humanoid rollout on 8 chips": Row(HUMANOID, batch=8 * 4096, chips=8),
}


@dataclasses.dataclass(frozen=True)
class Options:
    """What to print besides the numbers: how many lines of code with their bytes, and where to write the HLO."""

    lines: int = 0
    hlo: pathlib.Path | None = None


def measure(name: str, row: Row, chip: Chip, options: Options) -> dict[str, float]:
    """The numbers of a row."""
    begun = time.process_time()
    engine = engine_of(name.split()[0], row.path, row.limits)
    arguments = arguments_of(engine, row.mode, row.batch)
    if row.chips == 1:
        compiled = compile_for_chip(chip, getattr(engine, row.mode), *arguments)
    else:
        compiled = compile_for_slice(chip, engine, row.mode, *arguments)
    program, count = read_program(compiled.hlo), 1 << 30
    if options.hlo:
        (options.hlo / f"{name.replace(' ', '_')}.hlo").write_text(compiled.hlo)
    for line, moved in program.by_line()[: options.lines]:
        print(f"    {moved / 2**20:9.1f} MiB {line}")
    made, gib = program.operations, sum(each.hbm for each in program.written) / count
    return {
        "fusions": made["fusion"],
        "gathers": made["gather"] + made["scatter"],
        "loops": made["while"],
        "collectives": sum(count for name, count in made.items() if name.startswith(COLLECTIVES)),
        "library calls": made["Cholesky"] + made["InvertDiagBlocksLowerTriangular"],
        "GiB": round(compiled.accessed / count, 2),
        "padding": round(program.padding, 2),
        "GiB of main memory": round(gib, 2),
        "M steps/s": round(row.batch / (compiled.accessed / chip.bandwidth), 3),
        "temporary MiB": compiled.temporary >> 20,
        "CPU s": round(time.process_time() - begun),
    }


def compare(name: str, new: dict[str, float], old: dict[str, float]) -> list[str]:
    """What grew too much since the baseline."""
    watched = ("fusions", "gathers", "collectives", "GiB")
    return [f"{name}: {key} {old.get(key, 0)} -> {new[key]}" for key in watched if new[key] > GROWTH * old.get(key, 0)]


def record(name: str, found: dict[str, float]) -> None:
    """Writes one row of the baseline."""
    rows = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    kept = {key: value for key, value in found.items() if key != "CPU s"}
    BASELINE.write_text(json.dumps({**rows, name: kept}, indent=1, sort_keys=True) + "\n")


def main() -> int:
    """Prints the table; 1 if a program grew or does not fit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="rows whose name has this regular expression")
    parser.add_argument("--chip", default="v5e", choices=CHIPS)
    parser.add_argument("--against", nargs="*", default=[], choices=["mjx"])
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--lines", type=int, default=0, help="how many lines of code to print with the bytes they move")
    parser.add_argument("--hlo", type=pathlib.Path, help="a folder for the programs' texts")
    chosen = parser.parse_args()
    chip, options = CHIPS[chosen.chip], Options(lines=chosen.lines, hlo=chosen.hlo)
    baseline = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    problems: list[str] = []
    for row_name, row in ROWS.items():
        for engine in ["diffsim", *chosen.against]:
            name = f"{engine} {row_name}"
            if not re.search(chosen.only, name):
                continue
            found, key = measure(name, row, chip, options), f"{chosen.chip} {name}"
            print(f"{key:42s} " + ", ".join(f"{value} {what}" for what, value in found.items()), flush=True)
            problems += compare(key, found, baseline[key]) if key in baseline and not chosen.record else []
            if found["temporary MiB"] > chip.memory:
                problems.append(f"{key}: needs {found['temporary MiB']} MiB of {chip.memory}")
            if chosen.record:
                record(key, found)
    print(f"TPU PLAN jax {jax.__version__}: {len(problems)} problems" + "".join(f"\n  {line}" for line in problems))
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())

"""MuJoCo's own models and those of public packages with the semantics of 4.0, compared with C MuJoCo 4.0.0.

python -m tests.measure.newer [--only TEXT] [--seconds 280] [--again] [--version 4.0] [--seed 0]

`MUJOCO` names MuJoCo's source, whose folders model/, test/ and mjx/ are read; `make corpus` downloads the packages, and
`make oracles` installs MuJoCo 4.0.0. Each model that 4.0 loads is compiled, and the fields of both models are compared.
Then both take five steps from near the initial pose with random velocities and controls; both solvers converge.
Each file is a line of out/newer.jsonl; `--again` judges those anew that were not well. Prints what is not well, and
counts. The targets: 97% compiled equal, 95% of those that move step equal.
"""

import argparse
import collections
import os
import pathlib
import random
import sys
import warnings
from typing import Any

import jax

jax.config.update("jax_enable_x64", True)
sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import numpy as np  # noqa: E402
from flex.table import flex_differences  # noqa: E402

import diffsim  # noqa: E402
from measure.resumed import resumed  # noqa: E402
from tests.newer.newer import EXACT, Arrays, Oracle, given, namespace, step  # noqa: E402

ROOT = pathlib.Path(__file__).parents[2]
TREES = pathlib.Path(os.environ.get("MUJOCO", "/work/mj381"))
CORPUS = ROOT / ".corpus" / "files"
LOG = ROOT / "out" / "newer.jsonl"
STEPS = 5
# largest difference of positions and velocities after these steps, relative where they exceed one
STEP_BAR = 1e-6
WELL = ("equal",)
# m and rad, away from the initial pose, in which many contacts graze and rounding decides whether they exist
SPREAD = 0.01
# models with more bodies are compiled only: their steps take minutes in numpy
LARGE = 120


class Judge:
    """Asks one version of MuJoCo, and starts it again where a file ended it."""

    def __init__(self, version: str) -> None:
        self.version, self._oracle = version, Oracle(version)

    def _ask(self, name: str, *arguments: Any, **request: Any) -> Arrays:
        try:
            return getattr(self._oracle, name)(*arguments, **request)
        except (EOFError, OSError):
            self._oracle = Oracle(self.version)
            raise ValueError("MuJoCo ended") from None

    def judge(self, path: pathlib.Path) -> dict[str, str]:
        """What became of a file: a word for its compilation, a word for its steps, and why."""
        try:
            theirs = namespace(self._ask("compiled", str(path)))
        except ValueError as error:
            return {"word": "refused by 4.0", "steps": "", "why": str(error)[:200]}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ours = diffsim.load(path, mujoco=self.version, allow_outside=True)
        except diffsim.UnsupportedError as error:
            return {"word": "unsupported", "steps": "", "why": error.problems[0].message}
        except diffsim.MjcfError as error:
            return {"word": "refused", "steps": "", "why": str(error).split("\n")[0]}
        except Exception as error:  # a bare exception is a fault, whatever it is
            return {"word": "bare exception", "steps": "", "why": f"{type(error).__name__}: {error}"[:200]}
        unequal = flex_differences(ours, theirs)
        word = "differs" if unequal else "equal"
        steps, far = self._steps(path, ours) if theirs.nv and theirs.nbody <= LARGE else ("not run", "")
        return {"word": word, "steps": steps, "why": "; ".join([*unequal, far])[:500]}

    def _steps(self, path: pathlib.Path, ours: diffsim.Model) -> tuple[str, str]:
        """Whether five steps are equal, and by how much they differ."""
        states = self._ask("sample", str(path), count=1, spread=SPREAD, speed=0.1, force=0.0)
        ours = ours.replace(opt=ours.opt.replace(**EXACT))
        try:
            theirs = self._ask("run", str(path), states, steps=STEPS)
            state, inputs = given(ours, states)
            for _ in range(STEPS):
                state = step(ours, state, inputs)
        except (ValueError, diffsim.UnsupportedError) as error:
            return "refused", str(error).split("\n")[0][:200]
        fields = {name: (np.asarray(getattr(state, name)), theirs[name]) for name in ("qpos", "qvel")}
        errors = {
            name: float(np.max(np.abs(mine - its) / np.maximum(1, np.abs(its)), initial=0))
            for name, (mine, its) in fields.items()
        }
        if not all(np.isfinite(its).all() for _, its in fields.values()):
            return "not finite in MuJoCo", ""
        far = max(errors.values())
        return ("equal" if far <= STEP_BAR else "differs"), f"steps {far:.1e}"


def files(only: str, seed: int) -> list[str]:
    """Every file that may be a model, shuffled by a seed so that a part of them is a fair sample."""
    roots = [*(TREES / folder for folder in ("model", "test", "mjx")), CORPUS]
    found = sorted({str(p) for root in roots for kind in ("*.xml", "*.urdf") for p in root.rglob(kind)})
    found = [path for path in found if only in path and not path.endswith(".written.xml")]
    random.Random(seed).shuffle(found)
    return found


def main() -> None:
    """Judges files for some seconds, and prints those that are not well of all that have been judged."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="files whose path contains this")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no file after so many")
    parser.add_argument("--again", action="store_true", help="judge anew what was not well")
    parser.add_argument("--version", default="4.0", help="the version to compare with")
    parser.add_argument("--seed", type=int, default=0, help="of the order in which files are judged")
    options = parser.parse_args()
    judge = Judge(options.version)
    names = files(options.only, options.seed)
    lines = resumed(
        LOG,
        names,
        lambda path: judge.judge(pathlib.Path(path)),
        options.seconds,
        lambda line: options.again and (line["word"] not in WELL or line["steps"] == "differs"),
    )
    loaded = [line for line in lines if line["word"] != "refused by 4.0"]
    for line in loaded:
        if line["word"] not in WELL or line["steps"] not in ("equal", "not run"):
            print(f"{line['word']}, steps {line['steps'] or 'none'}: {line['path']}: {line['why']}")
    for what in ("word", "steps"):
        counts = collections.Counter(line[what] or "none" for line in lines)
        print(f"newer, {what}: {len(lines)} of {len(names)}: " + ", ".join(f"{n} {w}" for w, n in counts.most_common()))
    equal = sum(line["word"] == "equal" for line in loaded)
    moved = [line for line in loaded if line["steps"] in ("equal", "differs")]
    same = sum(line["steps"] == "equal" for line in moved)
    print(
        f"seed {options.seed}: compiled equal {equal} of {len(loaded)} (97%), "
        f"{STEPS} steps equal {same} of {len(moved)} (95%)"
    )


if __name__ == "__main__":
    main()

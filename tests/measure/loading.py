"""Seconds of CPU time to load models, compared with C MuJoCo: one line for each file, and the sums.

python -m tests.measure.loading --folder PATH [--pattern "scene*.xml"] [--alone]

The folder is a copy of MuJoCo Menagerie or any other folder with models. All files are loaded in one process, after a
small model has warmed it up; with `--alone` each file is the first one of a process of its own, as for a user who loads
one model. Imports are not counted. C compiles meshes on several threads; their time is counted too.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from oracle import mujoco

import diffsim

# the model that warms a process up
SMALL = "cartpole"


def main() -> None:
    """A line for each file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--pattern", default="scene*.xml")
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.one:
        print(json.dumps(measured(arguments.one)))
        return
    if not arguments.alone:
        diffsim.load(SMALL)
    rows = []
    for path in sorted(arguments.folder.rglob(arguments.pattern)):
        row = alone(path) if arguments.alone else measured(str(path))
        name = path.relative_to(arguments.folder)
        if row is None:
            print(f"{name}: C MuJoCo does not load it, or diffsim refuses it")
            continue
        rows.append(row)
        print(f"{name}: {row[0]:.2f} s, C {row[1]:.2f} s, ratio {row[0] / row[1]:.2f}", flush=True)
    ours, theirs = np.array(rows).T
    slow = np.count_nonzero((ours > 3 * theirs) & (ours > 1))
    print(
        f"{len(rows)} files: {ours.sum():.1f} s, C {theirs.sum():.1f} s, ratio {ours.sum() / theirs.sum():.2f}; "
        f"median {np.median(ours / theirs):.2f}, largest {np.max(ours / theirs):.1f}; "
        f"{slow} take more than 1 s and more than 3 times C's time"
    )


def measured(path: str) -> tuple[float, float] | None:
    """CPU seconds of diffsim and of C to load a file; None if one of them does not load it."""
    try:
        theirs = clocked(lambda: mujoco.MjModel.from_xml_path(path))
        return clocked(lambda: diffsim.load(path)), theirs
    except ValueError:
        return None


def alone(path: pathlib.Path) -> tuple[float, float] | None:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "tests.measure.loading", "--folder", ".", "--one", str(path)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(run.stdout.splitlines()[-1])


def clocked(load: Callable[[], Any]) -> float:
    """CPU seconds of a call."""
    start = time.process_time()
    load()
    return time.process_time() - start


if __name__ == "__main__":
    main()

"""MuJoCo's own model/, test/ and mjx files beside C MuJoCo, in parts that go on where the last one stopped.

python -m tests.measure.manual [--only TEXT] [--seconds 280] [--again]

`MUJOCO` names MuJoCo's source (default /work/mj381). Files that MuJoCo loads load here too and have equal fields, or
stand in LEDGER with the reason; files that it refuses are refused. Each file is a line of out/manual.jsonl; `--again`
judges those anew that were not well. Prints what is not well, and one line of counts.
"""

import argparse
import contextlib
import io
import os
import pathlib
import sys
import time
import warnings

import jax

jax.config.update("jax_enable_x64", True)
sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import oracle  # noqa: E402
from flex.table import flex_differences  # noqa: E402

import diffsim  # noqa: E402
from measure.resumed import resumed  # noqa: E402

ROOT = pathlib.Path(os.environ.get("MUJOCO", "/work/mj381"))
LOG = pathlib.Path(__file__).parents[2] / "out" / "manual.jsonl"
FOLDERS = ("model", "test", "mjx")
# a load is slow if it takes longer than this many seconds and this many times MuJoCo's
SLOW, TIMES = 3.0, 3.0
WELL = ("equal", "refused by both")

# what MuJoCo loads and we do not, or otherwise, and whose fault that is
LEDGER = {
    "general_dyntype.xml": "four slides of one body: its inertia has no inverse, and MuJoCo's qacc is NaN",
    "materials.xml": "two equal moments of inertia: which axes stand for them is left to rounding",
    "makemesh.xml": "flat sides of hulls are cut into other triangles: planes, their areas and volumes are equal",
}


def forget_files() -> None:
    """Clears MuJoCo's cache, else it would not read again what it read for an earlier model: loads are timed."""
    oracle.mujoco.mj_clearCache(oracle.mujoco.mj_getCache())


def judge(path: pathlib.Path) -> tuple[str, str]:
    """What became of a file: a word, and why."""
    forget_files()
    start = time.process_time()
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            theirs = oracle.mujoco.MjModel.from_xml_path(str(path))
    except (ValueError, oracle.mujoco.FatalError):
        theirs = None
    between = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ours = diffsim.load(path)
    except diffsim.UnsupportedError as error:
        return ("unsupported" if theirs is not None else "refused by both"), str(error).split("\n")[0]
    except diffsim.MjcfError as error:
        return ("refused" if theirs is not None else "refused by both"), str(error).split("\n")[0]
    except Exception as error:  # a bare exception is a fault, whatever it is
        return "bare exception", f"{type(error).__name__}: {error}"[:200]
    took, other = time.process_time() - between, between - start
    if theirs is None:
        return "loads here alone", ""
    if unequal := flex_differences(ours, theirs):
        return "differs", "; ".join(unequal)[:600]
    slow = took > max(SLOW, TIMES * other)
    return "equal, slow" if slow else "equal", f"{took:.1f} s, MuJoCo {other:.1f}"


def main() -> None:
    """Judges files for some seconds, and prints those that are not well of all that have been judged."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="files whose path contains this")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no file after so many")
    parser.add_argument("--again", action="store_true", help="judge anew what was not well")
    options = parser.parse_args()
    files = [str(path.relative_to(ROOT)) for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.xml"))]
    files = [path for path in files if options.only in path]
    lines = resumed(
        LOG,
        files,
        lambda path: dict(zip(("word", "why"), judge(ROOT / path), strict=True)),
        options.seconds,
        lambda line: options.again and line["word"] not in WELL,
    )
    counts: dict[str, int] = {}
    for line in lines:
        word, name = line["word"], pathlib.Path(line["path"]).name
        word, why = ("ledger", LEDGER[name]) if word not in WELL and name in LEDGER else (word, line["why"])
        counts[word] = counts.get(word, 0) + 1
        if word not in WELL:
            print(f"{word}: {line['path']}: {why}")
    print(f"manual: {len(lines)} of {len(files)}: " + ", ".join(f"{n} {word}" for word, n in sorted(counts.items())))


if __name__ == "__main__":
    main()

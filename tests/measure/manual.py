"""MuJoCo's own model/, test/ and mjx files beside C MuJoCo: `make measure WHAT=manual`, one line of counts.

`MUJOCO` names MuJoCo's source (default /work/mj381). Files that MuJoCo loads load here too and have equal fields, or
stand in LEDGER with the reason; files that it refuses are refused.
"""

import os
import pathlib
import sys
import time
import warnings

import jax

jax.config.update("jax_enable_x64", True)
sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import oracle  # noqa: E402
from compiler.compare import differences  # noqa: E402

import diffsim  # noqa: E402

ROOT = pathlib.Path(os.environ.get("MUJOCO", "/work/mj381"))
FOLDERS = ("model", "test", "mjx")
# seconds after which a file is called slow
SLOW = 10.0

# what MuJoCo loads and we do not, or otherwise, and whose fault that is
LEDGER = {
    "general_dyntype.xml": "four slides of one body: its inertia has no inverse, and MuJoCo's qacc is NaN",
}


def judge(path: pathlib.Path) -> tuple[str, str]:
    """What became of a file: a word, and why."""
    try:
        theirs = oracle.mujoco.MjModel.from_xml_path(str(path))
    except (ValueError, oracle.mujoco.FatalError):
        theirs = None
    start = time.process_time()
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
    took = time.process_time() - start
    if theirs is None:
        return "loads here alone", ""
    found = differences(ours, theirs)
    if found:
        return "differs", "; ".join(found)[:300]
    return ("equal" if took < SLOW else "equal, slow"), f"{took:.1f} s"


def main(wanted: str = "") -> None:
    """Judges every XML file, prints those that are not equal, and the counts."""
    counts: dict[str, int] = {}
    files = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.xml")) if wanted in str(path)]
    for path in files:
        word, why = judge(path)
        if word not in ("equal", "refused by both") and path.name in LEDGER:
            word, why = "ledger", LEDGER[path.name]
        counts[word] = counts.get(word, 0) + 1
        if word not in ("equal", "refused by both"):
            print(f"{word}: {path.relative_to(ROOT)}: {why}", flush=True)
    print(f"manual: {len(files)} files: " + ", ".join(f"{count} {word}" for word, count in sorted(counts.items())))


if __name__ == "__main__":
    main(*sys.argv[1:])

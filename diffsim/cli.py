"""The command line: `python -m diffsim bench MODEL` measures, `python -m diffsim info MODEL` describes.

A model is a path, or a path inside an installed package such as `dm_control/suite/hopper.xml`; `bench` also makes
models, `made:chain` and `made:hand`.
"""

import argparse
import importlib.util
import pathlib
import site
import sys
from collections.abc import Sequence

from diffsim.errors import ArgumentError, DiffsimError

# modules of the engines of `--against`, outer ones first, and the package that has them
PACKAGES = {"mjx": (("mujoco", "mujoco.mjx"), "mujoco-mjx"), "c": (("mujoco",), "mujoco")}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit status (2 for a model that does not load)."""
    parser = argparse.ArgumentParser(prog="diffsim", description=__doc__)
    commands = parser.add_subparsers(required=True)

    bench = commands.add_parser("bench", help="compile time and throughput, beside MJX and C MuJoCo")
    bench.add_argument("model")
    bench.add_argument("--batch", type=int, nargs="+", default=[512])
    bench.add_argument("--steps", type=int, default=50, help="timed steps")
    bench.add_argument("--warmup", type=int, default=100, help="steps before the clock starts")
    bench.add_argument("--iterations", type=int, help="solver iterations (default: the model's)")
    bench.add_argument("--ls-iterations", type=int, help="line search iterations (default: the model's)")
    bench.add_argument("--keyframe", type=int, help="start there instead of at qpos0")
    bench.add_argument("--against", nargs="*", default=[], choices=["mjx", "c"])
    bench.add_argument(
        "--gradient-steps", type=int, default=20, help="length of the differentiated rollout, 0 for none"
    )
    bench.add_argument("--noslip-iterations", type=int, default=0, help="iterations of the noslip solver")
    bench.add_argument("--no-stages", action="store_true", help="leave out the table of stages")
    bench.add_argument("--stages", action="store_true", help="only the table of stages")
    bench.set_defaults(run=_bench)

    info = commands.add_parser("info", help="what a model contains")
    info.add_argument("model")
    info.set_defaults(run=_info)

    options = parser.parse_args(arguments)
    try:
        options.run(options)
    except DiffsimError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def find_model(name: str) -> str:
    """A path as it stands, or inside an installed package."""
    roots = [pathlib.Path(), *map(pathlib.Path, site.getsitepackages())]
    found = [root / name for root in roots if (root / name).is_file()]
    return str(found[0]) if found else name


def _check_engines(names: Sequence[str]) -> None:
    """Raises ArgumentError for an engine that is not installed."""
    for name in names:
        modules, package = PACKAGES[name]
        if not all(importlib.util.find_spec(module) for module in modules):
            raise ArgumentError(f"--against {name} needs the package {package}: pip install {package}==3.8.1")


def _bench(options: argparse.Namespace) -> None:
    _check_engines(options.against)
    from diffsim.bench.engines import Workload
    from diffsim.bench.report import Schedule, report

    limits = (options.iterations, options.ls_iterations, options.noslip_iterations)
    workload = Workload(find_model(options.model), *limits, options.keyframe)
    shown = {"whole": not options.stages, "stages": not options.no_stages}
    schedule = Schedule(options.batch, options.steps, options.warmup, options.gradient_steps, **shown)
    report(workload, schedule, options.against)


def _info(options: argparse.Namespace) -> None:
    from diffsim.load import load

    topology = load(find_model(options.model)).topology
    for name in ("nq", "nv", "nu", "na", "nbody", "njnt", "ngeom", "nsite", "ntendon", "neq", "nsensor", "nkey"):
        print(f"{name:>8} {getattr(topology, name)}")

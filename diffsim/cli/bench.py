"""The commands `diffsim bench MODEL`, which measures compile time and throughput, and `diffsim selftest`.

`bench` compares diffsim with MJX, C MuJoCo and MuJoCo Warp. In addition to files, it takes two generated models,
`made:chain` and `made:hand`.
"""

import argparse
import importlib.util
import sys
from typing import NamedTuple

import jax

from diffsim import parallel
from diffsim.base.errors import ArgumentError
from diffsim.cli.models import Command, declare_model, find_model, loading_options
from diffsim.load import MODELS

# help for `--against`
AGAINST = (
    "mjx: compiled by jax.jit alone, as MJX documents; mjx-tuned: with diffsim's compiler options; c: C MuJoCo; warp: "
    "MuJoCo Warp, with buffers large enough to drop no contact, on a GPU in a CUDA graph"
)


class Packages(NamedTuple):
    """The modules that an engine of `--against` imports, parents first, and the arguments of `pip install` for them."""

    modules: tuple[str, ...]
    install: str


C = Packages(modules=("mujoco",), install="mujoco==3.8.1")
MJX = Packages(modules=("mujoco", "mujoco.mjx"), install="mujoco-mjx==3.8.1")
# MuJoCo Warp 3.8.1 fails to compile its sensors with newer releases of Warp (tried: 1.19)
WARP = Packages(modules=("mujoco", "warp", "mujoco_warp"), install="mujoco-warp==3.8.1 warp-lang==1.13.0")
# the packages of each engine
PACKAGES = {"mjx": MJX, "mjx-tuned": MJX, "c": C, "warp": WARP}


def _declare(parser: argparse.ArgumentParser) -> None:
    """The arguments of `diffsim bench`."""
    declare_model(parser)
    parser.add_argument("--batch", type=int, nargs="+", default=[512])
    parser.add_argument("--steps", type=int, default=50, help="timed steps")
    parser.add_argument("--warmup", type=int, default=100, help="steps before the timed ones")
    parser.add_argument("--iterations", type=int, help="solver iterations (default: the model's)")
    parser.add_argument("--ls-iterations", type=int, help="line search iterations (default: the model's)")
    parser.add_argument("--keyframe", type=int, help="initial keyframe, by number (default: qpos0)")
    noise = "controls: the keyframe's plus Gaussian noise of this size (default: uniformly random in [-1, 1])"
    parser.add_argument("--noise", type=float, help=noise)
    parser.add_argument(
        "--cores", type=int, help="on the CPU: number of cores, each used as a device (default: one device)"
    )
    parser.add_argument("--against", nargs="*", default=[], choices=PACKAGES, help=AGAINST)
    length = "steps of the differentiated rollout; 0 for no gradient"
    parser.add_argument("--gradient-steps", type=int, default=20, help=length)
    parser.add_argument("--noslip-iterations", type=int, default=0, help="iterations of the noslip solver")
    parser.add_argument("--no-stages", action="store_true", help="do not print the table of stages")
    parser.add_argument("--stages", action="store_true", help="print only the table of stages")


def _run(options: argparse.Namespace) -> None:
    """Runs `diffsim bench`."""
    for name in options.against:
        modules, install = PACKAGES[name]
        if not all(importlib.util.find_spec(module) for module in modules):
            raise ArgumentError(f"--against {name} needs the package {install.split('==')[0]}: pip install {install}")
    if options.cores is not None:
        jax.config.update("jax_platforms", "cpu")
        parallel.use_cores(options.cores)
    from diffsim.bench.engines import Workload
    from diffsim.bench.report import Schedule, report

    workload = Workload(
        path=find_model(options.model),
        iterations=options.iterations,
        ls_iterations=options.ls_iterations,
        noslip_iterations=options.noslip_iterations,
        keyframe=options.keyframe,
        noise=options.noise,
        loading=loading_options(options),
    )
    schedule = Schedule(
        batches=options.batch,
        steps=options.steps,
        warmup=options.warmup,
        gradient_steps=options.gradient_steps,
        whole=not options.stages,
        stages=not options.no_stages,
        counts="warp" in options.against,
    )
    report(workload, schedule, options.against)


COMMAND = Command("compile time and throughput, compared with MJX and C MuJoCo", _declare, _run)


def _declare_selftest(parser: argparse.ArgumentParser) -> None:
    """The arguments of `diffsim selftest`."""
    names = sorted(path.stem for path in MODELS.glob("*.xml"))
    parser.add_argument("--models", nargs="+", choices=names, help="default: four models, one or two minutes")


def _run_selftest(options: argparse.Namespace) -> None:
    """Runs `diffsim selftest`; the exit status is 1 if a check failed."""
    from diffsim.bench.selftest import MODELS, selftest

    if not selftest(options.models or MODELS):
        sys.exit(1)


SELFTEST = Command("checks diffsim on this device; prints a page for bug reports", _declare_selftest, _run_selftest)

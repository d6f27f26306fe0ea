"""`diffsim bench MODEL`: compile time and throughput compared with MJX and C MuJoCo; `diffsim selftest`.

In addition to files, `bench` takes two generated models, `made:chain` and `made:hand`.
"""

import argparse
import importlib.util
import sys

import jax

from diffsim import parallel
from diffsim.base.errors import ArgumentError
from diffsim.cli.models import Command, declare_model, find_model, loading_options
from diffsim.load import MODELS

# MJX, WARP and PACKAGES: the modules that an engine of `--against` needs, parents first, and what pip must install
MJX = (("mujoco", "mujoco.mjx"), "mujoco-mjx==3.8.1")
AGAINST = (
    "mjx: compiled by jax.jit alone, as MJX documents; mjx-tuned: with diffsim's compiler options; c: C MuJoCo; warp: "
    "MuJoCo Warp, with buffers that drop nothing, in a CUDA graph where there is a GPU"
)
# with newer releases of Warp, MuJoCo Warp 3.8.1 does not compile its sensors (tried: 1.19)
WARP = (("mujoco", "warp", "mujoco_warp"), "mujoco-warp==3.8.1 warp-lang==1.13.0")
PACKAGES = {"mjx": MJX, "mjx-tuned": MJX, "c": (("mujoco",), "mujoco==3.8.1"), "warp": WARP}


def _declare(parser: argparse.ArgumentParser) -> None:
    declare_model(parser)
    parser.add_argument("--batch", type=int, nargs="+", default=[512])
    parser.add_argument("--steps", type=int, default=50, help="timed steps")
    parser.add_argument("--warmup", type=int, default=100, help="steps before the clock starts")
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
    parser.add_argument("--no-stages", action="store_true", help="without the table of stages")
    parser.add_argument("--stages", action="store_true", help="only the table of stages")


def _run(options: argparse.Namespace) -> None:
    for name in options.against:
        modules, requirements = PACKAGES[name]
        if not all(importlib.util.find_spec(module) for module in modules):
            raise ArgumentError(
                f"--against {name} needs the package {requirements.split('==')[0]}: pip install {requirements}"
            )
    if options.cores is not None:
        jax.config.update("jax_platforms", "cpu")
        parallel.use_cores(options.cores)
    from diffsim.bench.engines import Workload
    from diffsim.bench.report import Schedule, report

    limits = (options.iterations, options.ls_iterations, options.noslip_iterations)
    start = {"keyframe": options.keyframe, "noise": options.noise}
    workload = Workload(find_model(options.model), *limits, **start, loading=loading_options(options))
    shown = {"whole": not options.stages, "stages": not options.no_stages, "counts": "warp" in options.against}
    schedule = Schedule(options.batch, options.steps, options.warmup, options.gradient_steps, **shown)
    report(workload, schedule, options.against)


COMMAND = Command("compile time and throughput, compared with MJX and C MuJoCo", _declare, _run)


def _declare_selftest(parser: argparse.ArgumentParser) -> None:
    names = sorted(path.stem for path in MODELS.glob("*.xml"))
    parser.add_argument("--models", nargs="+", choices=names, help="default: four models, one or two minutes")


def _run_selftest(options: argparse.Namespace) -> None:
    from diffsim.bench.selftest import MODELS, selftest

    if not selftest(options.models or MODELS):
        sys.exit(1)


SELFTEST = Command("checks diffsim on this device; prints a page for bug reports", _declare_selftest, _run_selftest)

"""What programs are made of: CPU seconds by stage of compilation, and equations and operations by routine.

python -m tests.measure.compile [readme "four shapes" ...] [--rows 12] [--without-routines]

Each program is compiled in a process of its own, without the cache of compiled programs. Stages are those of JAX:
tracing (Python to a jaxpr), lowering (jaxpr to StableHLO) and XLA (StableHLO to machine code, of which LLVM compiles
the kernels); times are CPU seconds of all threads. A routine is a room of the code, and for collision a kind of pairs.
Columns: equations of the jaxpr, operations of StableHLO, and how many percent of these are derivatives. What a loop
holds counts once, what is called counts for each call, because XLA inlines calls. MENAGERIE is a folder with MuJoCo
Menagerie; without it its robots are left out. Compare commits on one machine, one after the other.
"""

import argparse
import collections
import functools
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

SHAPES = ('box" size=".1 .1 .1', 'capsule" size=".05 .1', 'cylinder" size=".1 .1', 'ellipsoid" size=".1 .08 .06')
ROBOTS = ("unitree_g1", "leap_hand", "universal_robots_ur5e")
# steps of rollouts: a loop, whose length does not change the program
STEPS = 20


class Program(NamedTuple):
    """A function of arrays that the measurement compiles."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]


def scene(geoms: tuple[str, ...]) -> str:
    """MJCF of free bodies above a floor."""
    bodies = "".join(
        f'<body pos="0 0 {0.3 * k}"><freejoint/><geom type="{geom}"/></body>' for k, geom in enumerate(geoms, 1)
    )
    return f'<mujoco><worldbody><geom type="plane" size="2 2 .1"/>{bodies}</worldbody></mujoco>'


def step_of(model: Any) -> Program:
    """A step of one world."""
    import diffsim

    return Program(lambda state: diffsim.step(model, state), (diffsim.make_state(model),))


def forward_of(model: Any) -> Program:
    """`forward` of one world."""
    import diffsim

    return Program(lambda state: diffsim.forward(model, state), (diffsim.make_state(model),))


def gradient_of(model: Any) -> Program:
    """The gradient of a rollout of one world with respect to all its controls."""
    import jax
    import jax.numpy as jnp

    import diffsim

    def loss(ctrl: Any, state: Any) -> Any:
        return jnp.sum(diffsim.rollout(model, state, ctrl)[0].qpos ** 2)

    return Program(jax.grad(loss), (jnp.zeros((STEPS, model.nu)), diffsim.make_state(model)))


def readme() -> Program:
    """The gradient in the first program of the README."""
    import jax
    import jax.numpy as jnp

    import diffsim

    model = diffsim.load("quadruped")
    state, inputs = diffsim.make_state(model, "stand"), diffsim.make_inputs(model, "stand")

    def travel(gain: Any) -> Any:
        ctrl = inputs.ctrl + gain * jnp.sin(jnp.linspace(0, 3, 50))[:, None]
        return diffsim.rollout(model, state, ctrl)[0].qpos[0]

    return Program(jax.grad(travel), (0.1,))


def mjx_model(name: str) -> Any:
    """A model of MJX's test data."""
    import mujoco

    import diffsim

    return diffsim.load(str(pathlib.Path(mujoco.__file__).parent / "mjx" / "test_data" / name))


def text_model(*geoms: str) -> Any:
    """The model of free bodies above a floor."""
    import diffsim

    return diffsim.load(scene(geoms))


PROGRAMS: dict[str, Callable[[], Program]] = {
    "readme": readme,
    "two boxes": lambda: forward_of(text_model(SHAPES[0], SHAPES[0])),
    "four shapes": lambda: step_of(text_model(*SHAPES)),
    "humanoid": lambda: step_of(mjx_model("humanoid/humanoid.xml")),
    "three humanoids": lambda: step_of(mjx_model("humanoid/03_humanoids.xml")),
    "arm26 gradient": lambda: gradient_of(mjx_model("actuator/arm26.xml")),
}
if os.environ.get("MENAGERIE"):
    import diffsim as _diffsim

    FOLDER = pathlib.Path(os.environ["MENAGERIE"])
    PROGRAMS |= {name: lambda name=name: step_of(_diffsim.load(str(FOLDER / name / "scene.xml"))) for name in ROBOTS}


def measured(name: str, with_routines: bool) -> dict[str, Any]:
    """CPU seconds of each stage of a program, and the parts that it is made of."""
    import jax

    import diffsim

    # all frames of each operation's origin, by which it is counted
    jax.config.update("jax_traceback_in_locations_limit", -1 if with_routines else 10)
    clock = time.process_time
    marks = [clock()]
    program = PROGRAMS[name]()
    marks.append(clock())
    traced = jax.jit(program.function).trace(*program.arguments)
    marks.append(clock())
    lowered = traced.lower()
    marks.append(clock())
    print(START, file=sys.stderr, flush=True)
    lowered.compile(compiler_options=diffsim.compiler_options())
    marks.append(clock())
    seconds = (end - start for start, end in itertools.pairwise(marks))
    stages = dict(zip(("load", "trace", "lower", "xla"), seconds, strict=True))
    if not with_routines:
        return {"stages": stages, "parts": []}
    counts: dict[str, list[int]] = collections.defaultdict(lambda: [0, 0, 0])
    for frames, scope in equations(traced.jaxpr.jaxpr, [], ""):
        counts[routine(frames, scope)][0] += 1
    for frames, scope in operations(lowered.compiler_ir("stablehlo")):
        found = counts[routine(frames, scope)]
        found[1] += 1
        found[2] += "jvp(" in scope
    return {"stages": stages, "parts": [[name, *numbers] for name, numbers in counts.items()]}


# an origin: files of diffsim from the outermost frame inwards
Frames = list[str]
# rooms that lead to the routines, or help them: the first other room from outside is the routine
AROUND = {"simulate", "xla", "types", "base", "optimize", "parallel", "load", "__init__", "math"}


def routine(frames: Frames, scope: str) -> str:
    """The name of what an equation belongs to."""
    kind = re.search(r"pairs ([\w-]+)", scope)
    if kind:
        return f"collision: {kind[1]}"
    paths = [pathlib.Path(file.split("/diffsim/")[-1]).with_suffix("") for file in frames]
    rooms = [path.parts[0] for path in paths if path.parts[0] not in AROUND]
    stages = ["/".join(path.parts) for path in paths if path.parts[0] == "simulate"]
    return (rooms[:1] or stages[-1:] or ["the program around"])[0]


def equations(jaxpr: Any, origin: Frames, outer: str) -> Iterator[tuple[Frames, str]]:
    """Origins of all equations of a jaxpr and of those that it holds, with the scopes around them.

    What JAX has traced once for several callers has no frames: it belongs to the equation that holds it.
    """
    import jax
    from jax.extend.core import Jaxpr

    for equation in jaxpr.eqns:
        info = equation.source_info
        frames = [frame.file_name for frame in info.traceback.frames] if info.traceback else []
        frames = [file for file in reversed(frames) if "/diffsim/" in file] or origin
        scope = f"{outer}/{info.name_stack}"
        yield frames, scope
        for inner in jax.tree.leaves(list(equation.params.values())):
            # a closed one holds its jaxpr
            inner = getattr(inner, "jaxpr", inner)
            if isinstance(inner, Jaxpr):
                yield from equations(inner, frames, scope)


# a file in a location of MLIR
FILE = re.compile(r'\("([^"]*\.py)":')
# operations that compute nothing
SILENT = {"stablehlo.constant", "stablehlo.return", "func.return", "func.call"}


def operations(module: Any) -> Iterator[tuple[Frames, str]]:
    """Origins of the operations of a StableHLO module, those of a function for each call of it."""
    functions = {str(function.name).strip('"'): function for function in module.body.operations}

    @functools.cache
    def located(location: str) -> tuple[Frames, str]:
        scope = re.search(r'"([^"]*)"', location)
        return [file for file in reversed(FILE.findall(location)) if "/diffsim/" in file], scope[1] if scope else ""

    def walk(function: Any, origin: Frames, outer: str) -> Iterator[tuple[Frames, str]]:
        for operation in nested(function):
            frames, scope = located(str(operation.location))
            frames, scope = frames or origin, f"{outer}/{scope}"
            if operation.name == "func.call":
                yield from walk(functions[str(operation.attributes["callee"]).removeprefix("@")], frames, scope)
            elif operation.name not in SILENT:
                yield frames, scope

    return walk(functions["main"], [], "")


def nested(operation: Any) -> Iterator[Any]:
    """The operations within an operation, at any depth."""
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield inner
                yield from nested(inner)


# a line of XLA's log: microseconds of LLVM for one kernel
KERNEL = re.compile(r"Compiled LLVM module: .*? \((\d+) us\)")
# printed to the log before XLA compiles the program; what comes before are programs that made the model
START = "the program begins"


def report(name: str, found: dict[str, Any], kernels: list[float], rows: int) -> None:
    """Prints the stages and the largest routines of a program, whose kernels took so many microseconds of LLVM."""
    stages = found["stages"]
    times = ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in stages.items())
    llvm = f"of which LLVM {sum(kernels) / 1e6:.1f} for {len(kernels)} kernels"
    print(f"{name}: {sum(stages.values()):.1f} CPU s: {times}, {llvm}")
    parts = sorted(found["parts"], key=lambda part: -part[2])
    rest = [sum(part[k] for part in parts[rows:]) for k in (1, 2, 3)]
    total = [sum(part[k] for part in parts) for k in (1, 2, 3)]
    print(f"  {'':<32} {'jaxpr':>7} {'StableHLO':>9} {'derivatives':>12}")
    for label, number, operations, derivatives in [*parts[:rows], ("others", *rest), ("all", *total)]:
        if number or operations:
            print(f"  {label:<32} {number:7} {operations:9} {100 * derivatives / max(operations, 1):11.0f}%")


def main() -> None:
    """A table for each program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", choices=[*PROGRAMS, []], default=[])
    parser.add_argument("--rows", type=int, default=12)
    parser.add_argument("--without-routines", action="store_true", help="stages only; counting takes longer")
    parser.add_argument("--one", choices=list(PROGRAMS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measured(options.one, not options.without_routines)))
        return
    for name in options.programs or PROGRAMS:
        command = [sys.executable, "-m", "tests.measure.compile", "--one", name]
        command += ["--without-routines"] if options.without_routines else []
        environment = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
        # XLA tells how long LLVM took for each kernel
        environment |= {"TF_CPP_MIN_LOG_LEVEL": "0", "TF_CPP_VMODULE": "ir_compiler=1", "DIFFSIM_PROGRESS": "0"}
        run = subprocess.run(command, capture_output=True, text=True, env=environment)
        if run.returncode:
            print(f"{name}: FAILED\n{run.stderr}")
            continue
        kernels = [float(us) for us in KERNEL.findall(run.stderr.split(START)[-1])]
        report(name, json.loads(run.stdout.splitlines()[-1]), kernels, options.rows)


if __name__ == "__main__":
    main()

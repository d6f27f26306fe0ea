"""The command line: `diffsim COMMAND MODEL`, also as `python -m diffsim COMMAND MODEL`.

Each command is a `Command` in a module of this package: its purpose, its arguments, and the function that runs it.
"""

import argparse
import sys
from collections.abc import Sequence

import jax

from diffsim.base.errors import DiffsimError
from diffsim.cli import bench, models, render
from diffsim.cli.models import Command
from diffsim.cli.models import find_model as find_model
from diffsim.version import VERSION
from diffsim.xla.compiled import use_cache

COMMANDS: dict[str, Command] = {
    "info": models.INFO,
    "view": render.VIEW,
    "render": render.COMMAND,
    "bench": bench.COMMAND,
    "selftest": bench.SELFTEST,
}

ABOUT = """Differentiable, batched rigid-body simulation on JAX, with MuJoCo's semantics.

A MODEL is a file (MJCF, URDF or saved), a file inside an installed package such as dm_control/suite/hopper.xml, or the
name of a task of diffsim.envs: cartpole, reacher, hopper, walker, quadruped, humanoid, hand, joystick."""
EXAMPLES = """examples:
  diffsim info robot.xml                               what a model contains
  diffsim view quadruped --keyframe stand              simulates in a browser: drag bodies, set controls
  diffsim render quadruped --keyframe stand --out a.png    a picture
  diffsim render robot.xml --out drop.gif --seconds 3  simulates and makes a film (also .mp4)
  diffsim render robot.xml --out drop.html             the same as a page to play in a browser
  diffsim bench hopper --batch 512 4096                compile time and steps per second
  diffsim selftest                                     checks this device; prints a page for bug reports

`diffsim COMMAND --help` shows the options of a command."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; without a command prints the help.

    Args:
      arguments: of the command line; None for the arguments of the process.

    Returns:
      The exit status: 0, or 2 for an error of the user, such as a model that does not load.
    """
    parser = argparse.ArgumentParser(
        prog="diffsim", description=ABOUT, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    # the versions that a bug report should contain
    python = ".".join(map(str, sys.version_info[:3]))
    parser.add_argument(
        "--version", action="version", version=f"diffsim {VERSION} (jax {jax.__version__}, Python {python})"
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, command in COMMANDS.items():
        arguments_of = commands.add_parser(name, help=command.about, description=command.about)
        command.declare(arguments_of)
        arguments_of.set_defaults(run=command.run)
    options = parser.parse_args(arguments)
    if "run" not in options:
        parser.print_help()
        return 0
    use_cache()
    try:
        options.run(options)
    except DiffsimError as error:
        print(error, file=sys.stderr)
        return 2
    return 0

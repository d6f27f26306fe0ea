"""`diffsim info MODEL`: what a model contains, by number and by name."""

import argparse

from diffsim.cli.models import Command, declare_model, load_model
from diffsim.support.describe import print_model
from diffsim.types.kinds import KINDS

SIZES = ("nq", "nv", "nu", "na", "nbody", "njnt", "ngeom", "nsite", "ntendon", "neq", "nsensor", "nkey")
NAMED = ("joint", "actuator", "sensor", "camera", "key")
MOST = 40


def _declare(parser: argparse.ArgumentParser) -> None:
    declare_model(parser)
    parser.add_argument("--all", action="store_true", help="every field of the model")


def _run(options: argparse.Namespace) -> None:
    model = load_model(options)
    if options.all:
        return print_model(model)
    for name in SIZES:
        print(f"{name:>8} {getattr(model.topology, name)}")
    for kind in NAMED:
        count = getattr(model.topology, KINDS[kind].size)
        names = [model.name(kind, index) or f"({index})" for index in range(min(count, MOST))]
        if names:
            print(f"{kind}s: {', '.join(names)}{' ...' if count > MOST else ''}")


COMMAND = Command("what a model contains", _declare, _run)

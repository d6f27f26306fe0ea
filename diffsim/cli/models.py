"""Shared by all commands: the record of a command, and the options for loading a model. Also the command `info`."""

import argparse
import pathlib
import site
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from diffsim.base import changes
from diffsim.base.enums import GeomType
from diffsim.compiler.passes import compile_all
from diffsim.envs.tasks import MODEL_OF
from diffsim.load import MODELS, load
from diffsim.mjcf import read
from diffsim.support.describe import print_model
from diffsim.types import Model
from diffsim.types.kinds import KINDS
from diffsim.types.saved import is_saved
from diffsim.types.state import make_state
from diffsim.viz.view import poses_of


class Command(NamedTuple):
    """A command: its purpose in one line, a function that declares its arguments, and a function that runs it."""

    about: str
    declare: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], None]


def declare_model(parser: argparse.ArgumentParser) -> None:
    """Declares the argument `model` and the options for `diffsim.load`."""
    parser.add_argument("model")
    loading = parser.add_argument_group("loading")
    loading.add_argument("--strict", action="store_true", help="open no files outside the folder of the model")
    loading.add_argument("--max-contacts", type=int, help="slots for contacts (default: from the model)")
    loading.add_argument("--max-pairs", type=int, help="pairs of geoms to test, per kind (default: from the model)")
    loading.add_argument("--mujoco", help="version of MuJoCo whose semantics to use (default: 3.8.1)")
    loading.add_argument(
        "--keep", nargs="*", default=[], metavar="FIELD", help="fields whose code to include even if they are zero"
    )


def declare_floor(parser: argparse.ArgumentParser) -> None:
    """Declares the option that `load_on_floor` reads."""
    parser.add_argument("--no-floor", action="store_true", help="do not add a floor to a model without ground")


def loading_options(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `diffsim.load` except the model."""
    same = {name: getattr(options, name) for name in ("max_contacts", "max_pairs", "keep", "mujoco")}
    return same | {"allow_outside": False if options.strict else None}


def load_model(options: argparse.Namespace) -> Model:
    """The model of the command line."""
    return load(find_model(options.model), **loading_options(options))


def load_on_floor(options: argparse.Namespace) -> Model:
    """The model of the command line, with a floor added if it is MJCF or URDF without any ground (a bare robot)."""
    model = load_model(options)
    path = find_model(options.model)
    ground = (GeomType.PLANE, GeomType.HFIELD)
    if options.no_floor or np.isin(model.topology.geom_type, ground).any() or not model.ngeom or is_saved(path):
        return model
    spec = read(path, allow_outside=loading_options(options)["allow_outside"], mujoco=model.opt.mujoco)
    poses = poses_of(model, make_state(model))
    # the floor touches the lowest bounding box; the lowest z of a box is center - sum of |z component of axis| * half
    # size
    axis = np.asarray(poses.geom_xmat)[:, 2]
    box = np.asarray(model.geom_aabb)
    middle = np.asarray(poses.geom_xpos)[:, 2] + np.sum(axis * box[:, :3], axis=1)
    low = middle - np.sum(np.abs(axis) * box[:, 3:], axis=1)
    spec.worldbody.add("geom", type="plane", size=[0, 0, 1], pos=[0, 0, float(low.min())])
    sizes = {name: value for name, value in loading_options(options).items() if name not in ("allow_outside", "mujoco")}
    return compile_all(spec, **sizes)


def find_model(name: str) -> str:
    """The path of a model: a file, a file in an installed package, or the model of a task; `name` itself otherwise."""
    roots = [pathlib.Path(), *map(pathlib.Path, site.getsitepackages())]
    places = [*(root / name for root in roots), MODELS / f"{MODEL_OF.get(name, name)}.xml"]
    return next((str(place) for place in places if place.is_file()), name)


# sizes that `info` prints
SIZES = ("nq", "nv", "nu", "na", "nbody", "njnt", "ngeom", "nsite", "ntendon", "neq", "nsensor", "nkey")
# kinds of objects whose names `info` lists
NAMED = ("joint", "actuator", "sensor", "camera", "key")
# largest number of names of a kind that `info` lists, about a screen
MOST = 40


def _declare_info(parser: argparse.ArgumentParser) -> None:
    """The arguments of `diffsim info`."""
    declare_model(parser)
    parser.add_argument("--all", action="store_true", help="print every field of the model")


def _run_info(options: argparse.Namespace) -> None:
    """Prints the sizes and names of a model, or all of its fields."""
    model = load_model(options)
    if options.all:
        return print_model(model)
    print(f"{'mujoco':>8} {model.opt.mujoco}{_followed(model.opt.mujoco)}")
    for name in SIZES:
        print(f"{name:>8} {getattr(model.topology, name)}")
    for kind in NAMED:
        count = getattr(model.topology, KINDS[kind].size)
        names = [model.name(kind, index) or f"({index})" for index in range(min(count, MOST))]
        if names:
            print(f"{kind}s: {', '.join(names)}{' ...' if count > MOST else ''}")


def _followed(version: str) -> str:
    """The end of a line: the names of the later changes of MuJoCo that a model of this version follows."""
    names = changes.followed(version)
    return f", with {', '.join(names)}" if names else ""


INFO = Command("what a model contains", _declare_info, _run_info)

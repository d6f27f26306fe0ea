"""What all commands share: a row of their table, which model and how it is loaded; `diffsim info`, what it contains."""

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
from diffsim.types.record import is_saved
from diffsim.types.state import make_state
from diffsim.viz.view import poses_of


class Command(NamedTuple):
    """A command: its purpose in a line; how it declares its arguments; what it does with them."""

    about: str
    declare: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], None]


def declare_model(parser: argparse.ArgumentParser) -> None:
    """Declares the model and the options of `diffsim.load`."""
    parser.add_argument("model")
    loading = parser.add_argument_group("loading")
    loading.add_argument("--strict", action="store_true", help="open no files outside the folder of the model")
    loading.add_argument("--max-contacts", type=int, help="slots for contacts (default: what the model asks for)")
    loading.add_argument("--max-pairs", type=int, help="pairs of a kind that are examined (default: likewise)")
    loading.add_argument("--mujoco", help="version of MuJoCo whose semantics the model gets (default: 3.8.1)")
    loading.add_argument("--keep", nargs="*", default=[], metavar="FIELD", help="fields to have although they are zero")


def declare_floor(parser: argparse.ArgumentParser) -> None:
    """Declares the option that `load_on_floor` reads."""
    parser.add_argument("--no-floor", action="store_true", help="draw a model without ground as it is, without a floor")


def loading_options(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `diffsim.load`, but for the model."""
    same = {name: getattr(options, name) for name in ("max_contacts", "max_pairs", "keep", "mujoco")}
    return same | {"allow_outside": False if options.strict else None}


def load_model(options: argparse.Namespace) -> Model:
    """The model, loaded."""
    return load(find_model(options.model), **loading_options(options))


def load_on_floor(options: argparse.Namespace) -> Model:
    """The model, loaded; one of an MJCF or URDF file without any ground, as robots come, stands on a floor."""
    model, path = load_model(options), find_model(options.model)
    ground = (GeomType.PLANE, GeomType.HFIELD)
    if options.no_floor or np.isin(model.topology.geom_type, ground).any() or not model.ngeom or is_saved(path):
        return model
    spec = read(path, allow_outside=loading_options(options)["allow_outside"], mujoco=model.opt.mujoco)
    poses = poses_of(model, make_state(model))
    # of each geom the lowest corner of its bounding box
    axis, box = np.asarray(poses.geom_xmat)[:, 2], np.asarray(model.geom_aabb)
    middle = np.asarray(poses.geom_xpos)[:, 2] + np.sum(axis * box[:, :3], axis=1)
    low = middle - np.sum(np.abs(axis) * box[:, 3:], axis=1)
    spec.worldbody.add("geom", type="plane", size=[0, 0, 1], pos=[0, 0, float(low.min())])
    sizes = {name: value for name, value in loading_options(options).items() if name not in ("allow_outside", "mujoco")}
    return compile_all(spec, **sizes)


def find_model(name: str) -> str:
    """A path as it stands, inside an installed package, or of the model of a task; `name` itself if there is none."""
    roots = [pathlib.Path(), *map(pathlib.Path, site.getsitepackages())]
    places = [*(root / name for root in roots), MODELS / f"{MODEL_OF.get(name, name)}.xml"]
    return next((str(place) for place in places if place.is_file()), name)


SIZES = ("nq", "nv", "nu", "na", "nbody", "njnt", "ngeom", "nsite", "ntendon", "neq", "nsensor", "nkey")
NAMED = ("joint", "actuator", "sensor", "camera", "key")
MOST = 40


def _declare_info(parser: argparse.ArgumentParser) -> None:
    declare_model(parser)
    parser.add_argument("--all", action="store_true", help="every field of the model")


def _run_info(options: argparse.Namespace) -> None:
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
    """Which later changes of MuJoCo a model of a version follows, as the end of a line."""
    names = changes.followed(version)
    return f", with {', '.join(names)}" if names else ""


INFO = Command("what a model contains", _declare_info, _run_info)

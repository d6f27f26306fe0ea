"""The model of a command: the arguments that say which it is and how it is loaded, the same for all commands."""

import argparse
import pathlib
import site
from typing import Any

from diffsim.envs.table import MODEL_OF
from diffsim.load import MODELS, load
from diffsim.types import Model


def declare_model(parser: argparse.ArgumentParser) -> None:
    """Declares the model and the options of `diffsim.load`."""
    parser.add_argument("model")
    loading = parser.add_argument_group("loading")
    loading.add_argument("--allow-outside", action="store_true", help="files may lie outside the folder of the model")
    loading.add_argument("--max-contacts", type=int, help="slots for contacts (default: what the model asks for)")
    loading.add_argument("--max-pairs", type=int, help="pairs of a kind that are examined (default: likewise)")
    loading.add_argument("--keep", nargs="*", default=[], metavar="FIELD", help="fields to have although they are zero")


def loading_options(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `diffsim.load`, but for the model."""
    return {name: getattr(options, name) for name in ("allow_outside", "max_contacts", "max_pairs", "keep")}


def load_model(options: argparse.Namespace) -> Model:
    """The model, loaded."""
    return load(find_model(options.model), **loading_options(options))


def find_model(name: str) -> str:
    """A path as it stands, inside an installed package, or of the model of a task; `name` itself if there is none."""
    roots = [pathlib.Path(), *map(pathlib.Path, site.getsitepackages())]
    places = [*(root / name for root in roots), MODELS / f"{MODEL_OF.get(name, name)}.xml"]
    return next((str(place) for place in places if place.is_file()), name)

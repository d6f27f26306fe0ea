"""find_model: what a user of the command line may call a model."""

import pathlib
import site

from diffsim.envs.table import MODELS


def find_model(name: str) -> str:
    """A path as it stands, inside an installed package, or of the model of a task; `name` itself if there is none."""
    roots = [pathlib.Path(), *map(pathlib.Path, site.getsitepackages())]
    places = [*(root / name for root in roots), MODELS / f"{name}.xml"]
    return next((str(place) for place in places if place.is_file()), name)

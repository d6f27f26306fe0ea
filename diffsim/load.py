"""`load`: the Model of an XML file or text, of a saved model, or of a model that comes with the package."""

import dataclasses
import os
from collections.abc import Collection, Mapping
from pathlib import Path

from diffsim.base import changes
from diffsim.base.errors import ArgumentError, MissingFileError, Problem
from diffsim.compiler.budget import check_capacities
from diffsim.compiler.passes import compile_all
from diffsim.mjcf import read
from diffsim.types.hooks import Hooks
from diffsim.types.model import Model
from diffsim.types.record import near
from diffsim.types.saved import is_saved, restore
from diffsim.xla.compiled import uncollected

# the models that come with the package, one MJCF file each: `diffsim.load("humanoid")`
MODELS = Path(__file__).parent / "envs" / "models"


@uncollected()
def load(
    path_or_text: str | bytes | os.PathLike[str],
    assets: Mapping[str, bytes] | None = None,
    allow_outside: bool | None = None,
    max_contacts: int | None = None,
    max_pairs: int | None = None,
    keep: Collection[str] = (),
    hooks: Hooks | None = None,
    mujoco: str | None = None,
) -> Model:
    """Loads a model: MJCF, URDF, a file from `Model.save`, or a model that comes with diffsim.

    Args:
      path_or_text: path of an XML file or of a saved model, XML text (a string that begins with `<`, or bytes), or the
        name of a model that comes with diffsim: cartpole, hand, hopper, humanoid, quadruped, reacher, walker. If a
        file has this name, the file is loaded.
      assets: files in memory, by name; they take precedence over files on disk.
      allow_outside: whether includes and assets may lie outside the model's folder. By default (None) a model from a
        file may open any file, as in MuJoCo, and a model from text none. Pass False for a model that you do not trust.
      max_contacts: number of contacts that a step can hold; None for the number in the model (see `diffsim.compile`).
      max_pairs: number of pairs of geoms that a step can test; None for the number in the model.
      keep: names of fields, such as "dof_damping", whose code stays in the program even if they are zero, so that you
        can set them later.
      hooks: your own functions, as in `model.replace(hooks=...)`. Plugins must be given here.
      mujoco: the version of MuJoCo whose semantics the model gets: "3.8.1" (the default), or a later one up to "4.0";
        `docs/coming/newer.md` lists the differences. A saved model keeps its version.

    Returns:
      The Model. Models that differ only in the values of their fields share all compiled programs.

    Raises:
      MjcfError: the model is invalid; the message lists every problem with file, line and element.
      UnsupportedError: the model uses a feature that diffsim lacks.
      MissingFileError: the file does not exist, and no model of diffsim has this name; it is a FileNotFoundError.
      ArgumentError: an argument has a wrong type, or diffsim does not support the version `mujoco`.
      ValueError: `keep`, or a version other than the saved one, is given for a saved model.
    """
    source = _source(path_or_text)
    if assets is not None and not isinstance(assets, Mapping):
        raise ArgumentError(f"assets is a {type(assets).__name__}, expected a mapping from file names to bytes")
    check_capacities(max_contacts, max_pairs)
    if mujoco is not None:
        mujoco = _version(mujoco)
    hooks = Hooks() if hooks is None else hooks
    if not isinstance(source, bytes) and not str(source).lstrip().startswith("<") and is_saved(source):
        if keep:
            raise ValueError("keep is for models from XML; a saved model is not compiled again")
        model = restore(Model, source)
        if mujoco not in (None, model.opt.mujoco):
            reason = f"the model was saved with the semantics of MuJoCo {model.opt.mujoco}"
            raise ValueError(f"mujoco is {mujoco}, but {reason}; load its XML again")
        capacities = {"max_contacts": max_contacts, "max_pairs": max_pairs}
        changed = {name: number for name, number in capacities.items() if number is not None}
        topology = dataclasses.replace(model.topology, **changed) if changed else model.topology
        return model.replace(hooks=hooks, topology=topology)
    spec = read(source, assets=assets, allow_outside=allow_outside, mujoco=mujoco or changes.DEFAULT)
    return compile_all(spec, max_contacts=max_contacts, max_pairs=max_pairs, keep=keep, hooks=hooks)


def _version(mujoco: str) -> str:
    """The user's version of MuJoCo, as `base.changes` writes it."""
    try:
        return changes.version_of(mujoco)
    except ValueError as error:
        raise ArgumentError(f"mujoco: {error}") from None


def _source(source: object) -> str | bytes | Path:
    """The argument as a path, XML text or bytes; the name of a bundled model becomes its path."""
    if isinstance(source, str) and source.isidentifier() and not Path(source).exists():
        bundled = sorted(path.stem for path in MODELS.glob("*.xml"))
        if source not in bundled:
            known = near(source, bundled, listed=len(bundled))
            message = f"no such file, and no model of this name comes with diffsim{known}"
            raise MissingFileError([Problem(source, 0, "", message)])
        return MODELS / f"{source}.xml"
    if isinstance(source, str | bytes):
        return source
    if isinstance(source, bytearray | memoryview):
        return bytes(source)
    path = os.fspath(source) if isinstance(source, os.PathLike) else None
    if not isinstance(path, str):
        kind = type(source).__name__
        raise ArgumentError(f"the model is a {kind}, expected a path, XML text or bytes")
    return Path(path)

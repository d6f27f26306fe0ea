"""load: a model file or text, a saved model, or the name of a model that comes with the package -> Model."""

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
from diffsim.types.record import is_saved, near, restore

# the models that come with the package, one MJCF file each: `diffsim.load("humanoid")`
MODELS = Path(__file__).parent / "envs" / "models"


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
    """Loads a model: MJCF, URDF, what `Model.save` wrote, or one that comes with diffsim.

    Args:
      path_or_text: path of an XML file or of a saved model, or XML text (anything that begins with `<`, or bytes); or
        a name, where there is no such file: cartpole, hand, hopper, humanoid, quadruped, reacher, walker.
      assets: files in memory, by name; they come before files on disk.
      allow_outside: whether includes and assets may lie outside the folder of the model. By default what a file on the
        disk names is read, as MuJoCo does, and text opens no files. Pass False for a file that came from a stranger.
      max_contacts, max_pairs: contact capacities; None for what the model asks for (see `diffsim.compile`).
      keep: names of switch fields (such as "dof_damping") that stay in the program although they are zero.
      hooks: functions of yours, as in `model.replace(hooks=...)`; here if there are plugins among them.
      mujoco: the version of MuJoCo whose semantics the model gets: "3.8.1" (None), or a later one up to "4.0", whose
        changes `docs/coming/newer.md` lists. A saved model keeps the version that it was loaded with.

    Returns:
      The Model. Equal content gives an equal `topology`, and so shares every compilation.

    Raises:
      MjcfError: the model is wrong; the message lists every problem with file, line and element.
      UnsupportedError: the model uses a feature that diffsim lacks.
      MissingFileError: no file and no model has this name; it is a FileNotFoundError too.
      ArgumentError: an argument is of the wrong kind.
    """
    source = _source(path_or_text)
    if assets is not None and not isinstance(assets, Mapping):
        raise ArgumentError(f"assets: a mapping of names to bytes is expected, {type(assets).__name__} was given")
    check_capacities(max_contacts, max_pairs)
    if mujoco is not None:
        mujoco = _version(mujoco)
    hooks = Hooks() if hooks is None else hooks
    if not isinstance(source, bytes) and not str(source).lstrip().startswith("<") and is_saved(source):
        if keep:
            raise ValueError("keep is for models from XML: a saved model keeps what it had when it was compiled")
        model = restore(Model, source)
        if mujoco not in (None, model.opt.mujoco):
            raise ValueError(f"mujoco: the model was saved with the semantics of MuJoCo {model.opt.mujoco}")
        capacities = {"max_contacts": max_contacts, "max_pairs": max_pairs}
        changed = {name: number for name, number in capacities.items() if number is not None}
        topology = dataclasses.replace(model.topology, **changed) if changed else model.topology
        return model.replace(hooks=hooks, topology=topology)
    spec = read(source, assets=assets, allow_outside=allow_outside, mujoco=mujoco or changes.DEFAULT)
    return compile_all(spec, max_contacts=max_contacts, max_pairs=max_pairs, keep=keep, hooks=hooks)


def _version(mujoco: str) -> str:
    """The version of MuJoCo that a user names, as `base.changes` spells it."""
    try:
        return changes.version_of(mujoco)
    except ValueError as error:
        raise ArgumentError(f"mujoco: {error}") from None


def _source(source: object) -> str | bytes | Path:
    """The source of a model: its path, XML text or bytes."""
    if isinstance(source, str) and source.isidentifier() and not Path(source).exists():
        bundled = sorted(path.stem for path in MODELS.glob("*.xml"))
        if source not in bundled:
            known = near(source, bundled, listed=len(bundled))
            message = f"there is no such file, and no model of this name comes with diffsim{known}"
            raise MissingFileError([Problem(source, 0, "", message)])
        return MODELS / f"{source}.xml"
    if isinstance(source, str | bytes):
        return source
    if isinstance(source, bytearray | memoryview):
        return bytes(source)
    path = os.fspath(source) if isinstance(source, os.PathLike) else None
    if not isinstance(path, str):
        kind = type(source).__name__
        raise ArgumentError(f"a model is loaded from a path, XML text or bytes; {kind} was given")
    return Path(path)

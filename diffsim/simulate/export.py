"""A step as a file: traced once, then run by any process with the same jax, without tracing.

Only XLA's part of the first call is left, and with the persistent cache (docs, "First call") only reading a file. The
program is StableHLO by `jax.export`; later releases of jax read such files for half a year.
"""

import json
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import jax
import jax.export
import jax.numpy as jnp

from diffsim.base.errors import MjcfError, Problem
from diffsim.simulate.step import step
from diffsim.types import Inputs, Model, State
from diffsim.types.saved import DAMAGED, restore
from diffsim.types.state import make_inputs, make_state
from diffsim.version import VERSION
from diffsim.xla.compiled import jit
from diffsim.xla.loops import fori_loop

# entries of the file
ABOUT = "about.json"
MODEL = "model.npz"
PROGRAM = "program.bin"


class Program(NamedTuple):
    """A step that `load_program` has read.

    Attributes:
      model: the model that was exported; its numbers may be replaced, its structure is the program's.
      step: (model, states, inputs) -> states; it has derivatives if they were exported.
      batch: number of worlds; None for one world without a batch axis.
      steps: number of timesteps per call.
    """

    model: Model
    step: Callable[[Model, State, Inputs], State]
    batch: int | None
    steps: int


def export(
    model: Model,
    path: str | Path,
    batch: int | None = None,
    steps: int = 1,
    platforms: Sequence[str] | None = None,
    differentiable: bool = False,
) -> None:
    """Writes a model and the program of its step to a file, for `load_program`.

    Args:
      model: the compiled model. Only its structure is fixed: numbers are arguments of the program.
      path: the file.
      batch: number of worlds, which share the model; None for one world without a batch axis.
      steps: number of timesteps per call, during which inputs stay the same.
      platforms: such as `("cpu", "cuda")`, one program for each; None for the default backend.
      differentiable: whether the file also has the derivative (reverse mode). Then jit the function that you
        differentiate, so that derivatives that are not needed, such as with respect to the model, are not computed.

    Raises:
      ValueError: no worlds or steps, or a model with functions in it (hooks).
    """
    for name, count in (("batch", 1 if batch is None else batch), ("steps", steps)):
        if count < 1:
            raise ValueError(f"{name} is {count}, expected at least 1")

    def one(model: Model, state: State, inputs: Inputs) -> State:
        if steps == 1:
            return step(model, state, inputs)
        return fori_loop(0, steps, lambda _, state: step(model, state, inputs), state)

    example = _example(model, batch)
    structure = jax.tree.structure(example)

    def flat(*leaves: jax.Array) -> list[jax.Array]:
        function = one if batch is None else jax.vmap(one, in_axes=(None, 0, 0))
        return jax.tree.leaves(function(*jax.tree.unflatten(structure, leaves)))

    exported = jax.export.export(jax.jit(flat), platforms=platforms)(*jax.tree.leaves(example))
    about = {"diffsim": VERSION, "batch": batch, "steps": steps}
    with TemporaryDirectory() as folder, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        model.save(Path(folder) / MODEL)
        archive.write(Path(folder) / MODEL, MODEL)
        archive.writestr(ABOUT, json.dumps(about))
        archive.writestr(PROGRAM, exported.serialize(vjp_order=1 if differentiable else 0))


def load_program(path: str | Path) -> Program:
    """Reads what `export` wrote.

        program = diffsim.load_program("humanoid.step")
        states = program.step(program.model, states, inputs)

    Args:
      path: the file. Nothing in it is Python; like a compiled program it should come from someone you trust.

    Returns:
      The model and its step.

    Raises:
      MjcfError: a file that is damaged, or of another version of diffsim or jax.
    """
    try:
        with zipfile.ZipFile(path) as archive, TemporaryDirectory() as folder:
            about = json.loads(archive.read(ABOUT))
            if about["diffsim"] != VERSION:
                raise ValueError(f"of diffsim {about['diffsim']}, this is {VERSION}")
            model = restore(Model, archive.extract(MODEL, folder))
            exported = jax.export.deserialize(bytearray(archive.read(PROGRAM)))
            batch, steps = about["batch"], about["steps"]
    except MjcfError:
        raise
    except DAMAGED as problem:
        hint = "export it again with this diffsim and jax"
        raise MjcfError([Problem(str(path), 0, "", f"not an exported program, or damaged ({problem})", hint)]) from None
    example = _example(model, batch)
    run = jit(exported.call)

    def call(model: Model, state: State, inputs: Inputs) -> State:
        arguments = model, state, inputs
        if jax.tree.structure(arguments) != jax.tree.structure(example):
            raise ValueError("the model has another structure than the exported one: export the changed model")
        for (place, leaf), wanted in zip(jax.tree.leaves_with_path(arguments), jax.tree.leaves(example), strict=True):
            if leaf.shape != wanted.shape or leaf.dtype != wanted.dtype:
                name = ("model", "state", "inputs")[place[0].idx] + jax.tree_util.keystr(place[1:])
                raise ValueError(
                    f"{name} is {leaf.dtype}{list(leaf.shape)}, the program was exported for "
                    f"{wanted.dtype}{list(wanted.shape)}"
                )
        return jax.tree.unflatten(jax.tree.structure(state), run(*jax.tree.leaves(arguments)))

    return Program(model, call, batch, steps)


def _example(model: Model, batch: int | None) -> tuple[Model, State, Inputs]:
    """Arguments of the program; their numbers do not matter."""
    state, inputs = make_state(model), make_inputs(model)
    if batch is None:
        return model, state, inputs
    states, inputs = jax.tree.map(lambda x: jnp.broadcast_to(x, (batch, *x.shape)), (state, inputs))
    return model, states, inputs

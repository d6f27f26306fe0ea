"""The engines of rows of `make gpu-plan` and `make tpu-plan`, with models of this library or of MJX's tests."""

import pathlib
from typing import Any

import jax
import jax.numpy as jnp

from diffsim.bench.engines import ENGINES, Workload

HERE = pathlib.Path(__file__).parent
FOLDERS = [HERE / "models", *(HERE.parents[1] / name for name in ("examples/models", "diffsim/envs/models"))]
STEPS = 20


def engine_of(name: str, path: str, limits: tuple[int, ...] = ()) -> Any:
    """An engine with a model, by its file, and with solver settings."""
    import mujoco.mjx

    folders = [*FOLDERS, pathlib.Path(mujoco.mjx.__file__).parent / "test_data"]
    file = next(folder / path for folder in folders if (folder / path).exists())
    iterations, ls_iterations = limits or (None, None)
    made: Any = ENGINES[name](Workload(str(file), iterations, ls_iterations))
    if name == "mjx":
        made.model = made.mjx.put_model(made.mjmodel, impl="jax")
    return made


def arguments_of(engine: Any, mode: str, batch: int) -> tuple[Any, jax.ShapeDtypeStruct]:
    """The shapes of what a function of an engine takes: states, and controls of one step or of `STEPS`."""
    shape = (batch, engine.model.nu) if mode == "step" else (STEPS, batch, engine.model.nu)
    return jax.eval_shape(lambda: engine.start(batch)), jax.ShapeDtypeStruct(shape, jnp.float32)

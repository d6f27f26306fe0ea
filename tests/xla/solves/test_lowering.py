"""A step and its gradient lower for accelerators that are not there, at full precision and without libraries."""

import functools
import re
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from programs import equations

import diffsim
from diffsim import envs

MODEL = envs.MODELS / "quadruped.xml"
FULL = (jax.lax.Precision.HIGHEST, jax.lax.Precision.HIGHEST)


@functools.cache
def loaded() -> tuple[Any, ...]:
    """A model, its state and its inputs in float32."""
    model = diffsim.load(MODEL)
    return jax.tree.map(
        lambda x: x.astype(jnp.float32) if jnp.issubdtype(x.dtype, jnp.floating) else x,
        (model, diffsim.make_state(model), diffsim.make_inputs(model)),
    )


def trace() -> Any:
    """The gradient through a batched step."""
    model, state, inputs = loaded()
    travel = lambda s, u: diffsim.step(model, s, inputs.replace(ctrl=u)).qpos[0]  # noqa: E731
    batch = jax.tree.map(lambda x: jax.ShapeDtypeStruct((8, *x.shape), x.dtype), (state, inputs.ctrl))
    return jax.jit(jax.vmap(jax.grad(travel, argnums=1))).trace(*batch)


traced = functools.cache(trace)


def test_cuda_has_kernels_and_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    # on, also where all else is tested without kernels
    monkeypatch.setenv("DIFFSIM_KERNELS", "1")
    # outside, for loading is done on a device that is there
    loaded()
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    text = trace().lower(lowering_platforms=("cuda",)).as_text()
    # of step and derivative
    assert {"solve_sum", "solve_gram"} <= set(re.findall(r"visible .entry (\w+)\(", text))
    assert "cusolver" not in text and "cublas" not in text and "triangular_solve" not in text


def test_tpu_has_all_operations() -> None:
    assert "xla.gpu.ptx" not in traced().lower(lowering_platforms=("tpu",)).as_text()


def test_no_product_is_rounded() -> None:
    """TF32 and bfloat16, which accelerators use unless told otherwise, break dynamics."""
    products = [each for each in equations(traced().jaxpr.jaxpr) if each.primitive.name == "dot_general"]
    assert products
    assert {each.params["precision"] for each in products} == {FULL}

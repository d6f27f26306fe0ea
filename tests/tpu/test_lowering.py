"""A step and its gradient as they are lowered for a TPU, which needs none: full precision, no library, no gather."""

import functools
import re
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from wide import wide

import diffsim
from diffsim import envs
from diffsim.xla import gather

# a size that no other axis has
WORLDS = 1009
# contacts of a heap, a mesh, a tendon with a muscle, and a box on the ground
TOUCHING = """<mujoco>
  <asset><mesh name="wedge" vertex="0 0 0 .2 0 0 0 .2 0 0 0 .2"/></asset>
  <worldbody>
    <geom type="plane" size="2 2 .1"/>
    <body pos="0 0 .1"><freejoint/><geom type="box" size=".1 .1 .1"/></body>
    <body pos=".1 0 .3"><freejoint/><geom type="mesh" mesh="wedge"/></body>
    <body pos="0 .1 .5"><freejoint/><geom type="capsule" size=".05 .1"/></body>
    <body pos="1 0 1"><joint name="a" axis="0 1 0"/><geom type="sphere" size=".1" pos=".2 0 0"/></body>
  </worldbody>
  <actuator><muscle joint="a" lengthrange="0 1"/></actuator>
</mujoco>"""


@pytest.fixture(autouse=True)
def on_a_tpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Programs are traced as where a TPU is JAX's default backend, also those that other tests have traced."""
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    jax.clear_caches()
    with jax.enable_x64(False):
        yield
    jax.clear_caches()


def lowered(model: diffsim.Model, function: Any) -> str:
    """The program of a batch, for a TPU: `function(model, state, inputs)` of each world."""
    model, state, inputs = jax.tree.map(
        lambda x: x.astype(jnp.float32) if jnp.issubdtype(x.dtype, jnp.floating) else x,
        (model, diffsim.make_state(model), diffsim.make_inputs(model)),
    )
    batch = jax.tree.map(lambda x: jax.ShapeDtypeStruct((WORLDS, *x.shape), x.dtype), (state, inputs))
    traced = jax.jit(jax.vmap(functools.partial(function, model))).trace(*batch)
    return traced.lower(lowering_platforms=("tpu",)).as_text()


def gradient(model: diffsim.Model, state: diffsim.State, inputs: diffsim.Inputs) -> jax.Array:
    """Of the height after a step, with respect to positions."""
    return jax.grad(lambda qpos: diffsim.step(model, state.replace(qpos=qpos), inputs).qpos[2])(state.qpos)


def check(text: str) -> None:
    """Products in full float32, nothing in float64, and no library that a TPU does not have."""
    products = [line for line in text.splitlines() if re.search(r"stablehlo\.(dot_general|dot|convolution)\b", line)]
    assert products
    rounded = [line.strip() for line in products if line.count("HIGHEST") != 2]
    assert not rounded, f"{len(rounded)} of {len(products)} products are rounded to bfloat16: {rounded[0]}"
    assert "f64" not in text
    calls = set(re.findall(r"custom_call @(\w+)", text))
    assert calls <= {"Sharding", "TopK", "mhlo.topk"}, calls


def gathers(text: str) -> list[str]:
    """Gathers and scatters with an axis of worlds; those of a table are made once, by the compiler."""
    lines = [line for line in text.splitlines() if "stablehlo.gather" in line or "stablehlo.scatter" in line]
    return [line for line in lines if re.search(rf"\b{WORLDS}x", line)]


@pytest.mark.parametrize("function", [diffsim.step, gradient])
def test_humanoid_is_exact_and_has_no_gather(function: Any) -> None:
    text = lowered(diffsim.load(envs.MODELS / "humanoid.xml"), function)
    check(text)
    assert not gathers(text)


@pytest.mark.parametrize("function", [diffsim.step, *wide([gradient])])
def test_contacts_are_exact(function: Any) -> None:
    text = lowered(diffsim.load(TOUCHING), function)
    check(text)
    assert not gathers(text)


def test_a_rounded_product_is_found() -> None:
    text = jax.jit(lambda x: x @ x).trace(jnp.eye(3)).lower(lowering_platforms=("tpu",)).as_text()
    with pytest.raises(AssertionError, match="bfloat16"):
        check(text)


def test_a_gather_of_worlds_is_found() -> None:
    rows = jax.ShapeDtypeStruct((WORLDS, 3), jnp.float32)
    text = jax.jit(jax.vmap(lambda x: x[jnp.argsort(x)])).trace(rows).lower(lowering_platforms=("tpu",)).as_text()
    assert gathers(text)


def test_rows_as_slices_are_the_rows() -> None:
    rng = np.random.default_rng(0)
    values = jnp.asarray(rng.normal(size=(3, 7, 2)))
    for ids in [(0, 1, 2), (6, 5, -1, -1, 0), (-1,), (3, 3, 4, 5, -1, 1), tuple(range(7))]:
        assert np.array_equal(
            gather._gather_by_slices(values, ids=ids, axis=1),
            gather._gather_in_numpy(np.asarray(values), ids=ids, axis=1),
        )
    assert gather.runs_of((2, 3, -1, -1, 3, 3, 4)) == [(2, 2), (-1, 2), (3, 1), (3, 2)]

"""diffsim.torch: values and gradients equal ours, memory is shared, and what cannot be had is refused."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import diffsim
from diffsim import envs
from diffsim.base.errors import ArgumentError

torch = pytest.importorskip("torch")


def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
    return diffsim.torch.wrap(function)


def tensor(values: Any, requires_grad: bool = True) -> Any:
    return torch.tensor(np.asarray(values), requires_grad=requires_grad)


def test_a_rollout_of_worlds_has_our_gradient() -> None:
    model = diffsim.load(envs.MODELS / "hopper.xml")
    # at rest on the ground, so that contacts act
    state = diffsim.make_state(model, "stand")

    def ends(ctrl: Any, state: diffsim.State) -> dict[str, Any]:
        final = diffsim.rollout(model, state, ctrl)[0]
        return {"place": final.qpos, "speed": final.qvel}

    def loss(result: dict[str, Any]) -> Any:
        return (result["place"][..., 0] + 0.1 * result["speed"][..., 1] ** 2).sum()

    worlds = jax.vmap(ends, in_axes=(0, None))
    ctrl = 0.5 * np.random.default_rng(0).normal(size=(3, 6, model.nu))
    ours = jax.jit(jax.value_and_grad(lambda *args: loss(worlds(*args)), argnums=(0, 1)))(ctrl, state)
    mine = tensor(ctrl)
    start = jax.tree.map(lambda x: x.requires_grad_(), jax.tree.map(torch.clone, diffsim.torch.to_torch(state)))
    value = loss(wrap(worlds)(mine, start))
    value.backward()
    np.testing.assert_allclose(value.item(), ours[0], rtol=1e-12)
    np.testing.assert_allclose(mine.grad, ours[1][0], atol=1e-6)
    np.testing.assert_allclose(start.qvel.grad, ours[1][1].qvel, atol=1e-6)
    assert np.abs(mine.grad.numpy()).max() > 1e-3


def test_trees_numbers_and_leaves_without_a_gradient() -> None:
    @wrap
    def function(x: Any, rest: Any, *, scale: Any, key: Any) -> dict[str, Any]:
        total = rest["y"] * jnp.sin(x) * scale + jax.random.normal(key)
        return {"total": total, "most": jnp.argmax(x), "any": jnp.any(x > 0), "key": key, "none": None}

    x, y = tensor([0.1, 0.4]), tensor([2.0, 3.0], requires_grad=False)
    result = function(x, {"y": y, "flag": None}, scale=2, key=jax.random.key(0))
    assert result["most"].item() == 1 and result["any"].dtype is torch.bool and result["none"] is None
    assert not result["most"].requires_grad and result["total"].requires_grad
    assert isinstance(result["key"], jax.Array)
    # twice, of one graph
    for _ in range(2):
        x.grad = None
        result["total"].sum().backward(retain_graph=True)
        np.testing.assert_allclose(x.grad, 2 * y.numpy() * np.cos(x.detach().numpy()), rtol=1e-12)
    with torch.no_grad():
        assert not function(x, {"y": y, "flag": None}, scale=2, key=jax.random.key(0))["total"].requires_grad


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_other_kinds_of_floats(kind: str) -> None:
    x = torch.tensor([0.5, 1.0], dtype=getattr(torch, kind), requires_grad=True)
    result = wrap(lambda x: x * x)(x)
    assert result.dtype is x.dtype
    result.sum().backward()
    assert x.grad.dtype is x.dtype and x.grad.tolist() == [1.0, 2.0]


def test_one_program_for_each_shape() -> None:
    traced = []
    function = wrap(lambda x: (traced.append(x.shape), jnp.sum(x**2))[1])
    for size in (3, 3, 4, 3):
        # strides, and a gradient that is one number for all
        x = torch.ones((size, 2), dtype=torch.float64)[:, 1].requires_grad_()
        function(x).backward()
        assert x.grad.tolist() == [2.0] * size
    assert traced == [(3,), (4,)]


def test_memory_is_shared() -> None:
    x = torch.arange(8, dtype=torch.float64)
    array = diffsim.torch.to_jax({"x": x})["x"]
    assert array.unsafe_buffer_pointer() == x.data_ptr()
    assert diffsim.torch.to_torch(array).data_ptr() == x.data_ptr()

    # what is written while the program runs is what the program reads: it has no copy of its argument
    def write(_: Any) -> Any:
        x[0] = 7.0
        return np.float64(0)

    read = wrap(lambda x: x[0] + jax.pure_callback(write, jax.ShapeDtypeStruct((), x.dtype), x[1]))
    assert read(x).item() == 7.0


def test_results_may_be_written_into() -> None:
    x = tensor([1.0, 2.0])
    result = wrap(lambda x: (x, jnp.exp(x)))(x)
    addresses = {x.data_ptr(), *[each.data_ptr() for each in result]}
    assert len(addresses) == 3
    total = result[1].mul_(2).sum()
    # the argument too: its derivative is known
    x.detach().zero_()
    total.backward()
    np.testing.assert_allclose(x.grad, 2 * np.exp([1.0, 2.0]))


def test_a_second_derivative_is_refused() -> None:
    x = tensor([1.0, 2.0])
    (slope,) = torch.autograd.grad(wrap(lambda x: jnp.sum(x**3))(x), x, create_graph=True)
    np.testing.assert_allclose(slope.detach(), [3.0, 12.0])
    with pytest.raises(diffsim.UnsupportedError, match=r"second derivative.*jax\.grad"):
        slope.sum().backward()
    # the way out
    wrap(jax.grad(lambda x: jnp.sum(x**3)))(x).sum().backward()
    np.testing.assert_allclose(x.grad, [6.0, 12.0])


def test_other_devices_are_refused() -> None:
    with pytest.raises(ArgumentError, match="JAX computes on cpu"):
        wrap(jnp.sin)(torch.zeros(2, device="meta"))


def test_gradcheck_of_pytorch() -> None:
    function = wrap(lambda x, y: (jnp.sin(x) * y, jnp.cumsum(y)))
    assert torch.autograd.gradcheck(function, (tensor([0.1, 0.2, 0.3]), tensor([1.0, 2.0, 3.0])))

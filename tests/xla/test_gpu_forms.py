"""What is written in another way for a GPU gives the same numbers; here on a CPU, which can run it too."""

from typing import Any

import jax
import numpy as np
import pytest
from uncompiled import uncompiled

import diffsim
from diffsim import envs
from diffsim.geometry.primitive.box import sphere_box
from diffsim.geometry.primitive.box_box import box_box
from diffsim.geometry.shapes import Shape
from diffsim.kinematics.tree import last_dof, sum_dofs, sum_subtree
from diffsim.math.linalg import blocks_of, columns_of


def both(monkeypatch: pytest.MonkeyPatch, function: Any, *arguments: Any) -> list[Any]:
    """The results as traced for a CPU and for a GPU; a function of its own for each, which is not traced again."""
    found = []
    for backend in ("cpu", "gpu"):
        monkeypatch.setattr(jax, "default_backend", lambda backend=backend: backend)
        found.append(uncompiled(lambda *given: function(*given))(*arguments))
    return found


def test_sums_over_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    topology, rng = diffsim.load(envs.MODELS / "quadruped.xml").topology, np.random.default_rng(0)
    terms = [(rng.normal(size=(topology.nv, 6)), rng.normal(size=topology.nv)) for _ in range(2)]
    cpu, gpu = both(monkeypatch, lambda *given: sum_dofs(topology, last_dof(topology), *given), *terms)
    assert np.max(np.abs(cpu - gpu)) < 1e-13 * np.max(np.abs(cpu))


def test_sums_over_subtrees(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = diffsim.load(envs.MODELS / "quadruped.xml").topology
    values = np.random.default_rng(0).normal(size=(topology.nbody, 6))
    cpu, gpu = both(monkeypatch, lambda given: sum_subtree(topology, given), values)
    assert np.max(np.abs(cpu - gpu)) < 1e-13 * np.max(np.abs(cpu))
    assert np.allclose(gpu[0], np.sum(values, axis=0))


def test_products_with_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    blocks = blocks_of(np.zeros(4, int))
    product = lambda rows, b: columns_of(blocks, rows).readable_by_columns().mul_vec_t(b)  # noqa: E731
    cpu, gpu = both(monkeypatch, product, rng.normal(size=(5, 4)), rng.normal(size=5))
    assert np.max(np.abs(cpu - gpu)) < 1e-14


@pytest.mark.parametrize("depth", [-0.1, 0.1])
def test_ball_in_box(depth: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Apart and inside, where two faces are equally near: the first of them."""
    size, still = np.array([0.3, 0.3, 0.5]), np.eye(3)
    ball = Shape(np.array([0.3 - depth, 0.3 - depth, 0.1]), still, np.array([0.05, 0.0, 0.0]))
    cpu, gpu = both(monkeypatch, sphere_box, ball, Shape(np.zeros(3), still, size), np.array(0.01))
    for one, other in zip(cpu, gpu, strict=True):
        assert np.array_equal(one, other)
    assert depth < 0 or np.array_equal(cpu.normal, [[-1, 0, 0]])


@pytest.mark.parametrize("seed", range(4))
def test_box_on_box(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    turns = [np.linalg.qr(rng.normal(size=(3, 3)))[0] for _ in range(2)]
    first, second = (
        Shape(pos, turn * np.sign(np.linalg.det(turn)), size)
        for pos, turn, size in zip(0.4 * rng.normal(size=(2, 3)), turns, rng.uniform(0.2, 0.5, (2, 3)), strict=True)
    )
    cpu, gpu = both(monkeypatch, box_box, first, second, np.array(0.01))
    assert np.array_equal(cpu.valid, gpu.valid) and np.any(cpu.valid)
    for one, other in zip(cpu, gpu, strict=True):
        assert np.max(np.abs(1.0 * one - 1.0 * other)) < 1e-13


def landed(cone: str) -> tuple[Any, Any]:
    """A quadruped that moves with its feet in a ground that moves too: model and state."""
    text = (envs.MODELS / "quadruped.xml").read_text()
    model = diffsim.load(text.replace('name="floor"', 'name="floor" surfacevel=".5 .2 0 0 0 .3"'))
    model = model.replace(opt=model.opt.replace(cone=cone))
    state = diffsim.make_state(model, 0)
    qvel = 0.5 * np.random.default_rng(0).normal(size=model.nv)
    return model, state.replace(qpos=state.qpos.at[2].add(-0.02), qvel=qvel)


@pytest.mark.parametrize(("kind", "close"), [(np.float64, 1e-9), (np.float32, 1e-4)])
@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
def test_accelerations(kind: type, close: float, cone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Contacts, limits and their solver; in float32 on a GPU the sum over rows is part of the solve."""
    given = jax.tree.map(lambda x: x.astype(kind) if x.dtype == float else x, landed(cone))
    cpu, gpu = both(monkeypatch, lambda model, state: diffsim.forward(model, state), *given)
    assert np.sum(cpu.contact.dist < 0) > 0 and np.any(np.abs(cpu.qfrc_constraint) > 1)
    assert cpu.efc.warm.size == 0 < gpu.efc.warm.size
    for name in ("qacc", "qfrc_constraint"):
        one, other = getattr(cpu, name), getattr(gpu, name)
        assert np.max(np.abs(one - other)) < close * np.max(np.abs(one)), name


def test_slopes_of_accelerations(monkeypatch: pytest.MonkeyPatch) -> None:
    model, state = landed("pyramidal")

    def force(qvel: Any, qpos: Any) -> Any:
        return diffsim.forward(model, state.replace(qvel=qvel, qpos=qpos)).qfrc_constraint[2]

    slopes = lambda *given: jax.grad(force, (0, 1))(*given)  # noqa: E731
    for cpu, gpu in zip(*both(monkeypatch, slopes, state.qvel, state.qpos), strict=True):
        assert np.max(np.abs(cpu)) > 1
        assert np.max(np.abs(cpu - gpu)) < 1e-8 * np.max(np.abs(cpu))

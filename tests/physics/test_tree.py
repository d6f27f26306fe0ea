"""Sums over trees: masks and pointer jumping agree, on a model with several branches and on a chain."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest

from diffsim.kinematics import forest, frames, joints, tree


@pytest.mark.parametrize("path", ["smooth", "dm_control/suite/humanoid.xml"])
def test_pointer_jumping_equals_masks(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = oracle.load_pair(path)
    topology, links = model.topology, frames.chain(model.topology)
    rng = np.random.default_rng(0)
    bodies = jnp.asarray(rng.normal(size=(topology.nbody, 3)))
    dofs = jnp.asarray(rng.normal(size=(topology.nv, 6)))
    rates = jnp.asarray(rng.normal(size=topology.nv))
    offsets = jnp.asarray(rng.normal(size=(len(links.parent), 3))).at[0].set(0)

    def sums() -> list[np.ndarray]:
        found = [
            tree.sum_subtree(topology, bodies),
            tree.sum_chain(topology, (dofs, rates)),
            tree.sum_dofs(topology, joints.earlier_dof(topology), (dofs, rates), (rates[:, None] * dofs, rates)),
            frames.sum_offsets(links, offsets),
        ]
        return [np.asarray(values) for values in found]

    monkeypatch.setattr(tree, "_body_forest", lambda _: None)
    monkeypatch.setattr(tree, "_dof_forest", lambda _: None)
    links = dataclasses.replace(links, forest=None)
    by_masks = sums()
    monkeypatch.setattr(tree, "MASK_LIMIT", 0)
    monkeypatch.setattr(frames, "MASK_LIMIT", 0)
    for masked, jumped in zip(by_masks, sums(), strict=True):
        np.testing.assert_allclose(jumped, masked, rtol=0, atol=1e-12)


def test_subtree_sums_are_what_recursion_gives() -> None:
    model, _ = oracle.load_pair("dm_control/suite/humanoid.xml")
    topology = model.topology
    values = np.random.default_rng(1).normal(size=(topology.nbody, 2))
    expected = values.copy()
    for body in range(topology.nbody - 1, 0, -1):
        expected[topology.body_parentid[body]] += expected[body]
    np.testing.assert_allclose(tree.sum_subtree(topology, jnp.asarray(values)), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("path", ["many_trees", "gymnasium/envs/mujoco/assets/ant.xml", "dm_control/suite/dog.xml"])
def test_ranges_of_dofs_are_the_table_of_chains(path: str) -> None:
    """Which dofs move a body: dofs are numbered depth first, so that comparisons can stand for the table."""
    topology = oracle.load_pair(path)[0].topology
    table = tree.body_dof_mask(topology)
    assert not np.any(table[0])
    for index in tree.dof_blocks(topology).index:
        found = np.asarray(tree.chain_mask(topology, tree.last_dof(topology), index))
        np.testing.assert_array_equal(found, np.moveaxis(table[:, index], 0, 1))


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
def test_sums_along_the_trees_of_a_forest(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees of equal and of different shapes, small and large ones, one of them between the nodes of another."""
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    branching = [-1, *(node // 2 for node in range(11))]
    parents = [branching, [-1, 0, 1], [-1], [-1, 0, 1], branching, [-1, 0, 0]]
    starts = np.cumsum([0, *map(len, parents)])
    parent = np.concatenate(
        [np.where(np.array(p) < 0, -1, np.array(p) + s) for p, s in zip(parents, starts, strict=False)]
    )
    parent = np.append(parent, 12)
    shapes = forest.shapes_of(parent)
    assert sorted(shape.nodes.shape for shape in shapes) == [(1, 1), (1, 3), (1, 3), (1, 4), (2, 12)]
    mask = forest.ancestor_mask(parent)
    values = np.random.default_rng(0).normal(size=(len(parent), 3))
    np.testing.assert_allclose(forest.sum_above(shapes, jnp.asarray(values)), mask @ values, rtol=0, atol=1e-12)
    np.testing.assert_allclose(forest.sum_below(shapes, jnp.asarray(values)), mask.T @ values, rtol=0, atol=1e-12)


def test_forest_of_a_model_equals_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of models whose trees are summed by themselves."""
    model, _ = oracle.load_pair("many_trees")
    topology, rng = model.topology, np.random.default_rng(0)
    bodies, dofs = jnp.asarray(rng.normal(size=(topology.nbody, 3))), jnp.asarray(rng.normal(size=(topology.nv, 6)))
    rates = jnp.asarray(rng.normal(size=topology.nv))

    def sums() -> list[np.ndarray]:
        return [np.asarray(tree.sum_subtree(topology, bodies)), np.asarray(tree.sum_chain(topology, (dofs, rates)))]

    monkeypatch.setattr(tree, "_body_forest", lambda topology: forest.shapes_of(topology.body_parentid[1:] - 1))
    monkeypatch.setattr(tree, "_dof_forest", lambda topology: forest.shapes_of(topology.dof_parentid))
    by_trees = sums()
    monkeypatch.setattr(tree, "_body_forest", lambda _: None)
    monkeypatch.setattr(tree, "_dof_forest", lambda _: None)
    for summed, masked in zip(by_trees, sums(), strict=True):
        np.testing.assert_allclose(summed, masked, rtol=0, atol=1e-12)

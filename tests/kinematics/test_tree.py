"""Sums over trees: masks and pointer jumping agree, on a model with several branches and on a chain."""

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest

from diffsim.kinematics import joints, poses, tree
from diffsim.kinematics.tree import dof_blocks
from diffsim.xla import tree_sums


@pytest.mark.parametrize("path", ["smooth", "dm_control/suite/humanoid.xml", "many_trees"])
def test_all_forms_of_a_sum_agree(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By trees, where that is chosen; by one mask; by pointer jumping."""
    topology = oracle.load_pair(path)[0].topology
    rng = np.random.default_rng(0)
    bodies = jnp.asarray(rng.normal(size=(topology.nbody, 3)))
    dofs = jnp.asarray(rng.normal(size=(topology.nv, 6)))
    rates = jnp.asarray(rng.normal(size=topology.nv))
    links = poses.chain(topology)
    offsets = jnp.asarray(rng.normal(size=(len(links.parent), 3))).at[0].set(0)

    def sums() -> list[np.ndarray]:
        values = [
            tree.sum_subtree(topology, bodies),
            tree.sum_chain(topology, (dofs, rates)),
            tree.sum_dofs(topology, joints.earlier_dof(topology), (dofs, rates), (rates[:, None] * dofs, rates)),
            links.trees.above(offsets),
        ]
        return [np.asarray(x) for x in values]

    chosen = sums()
    monkeypatch.setattr(tree_sums, "FEWER_ENTRIES", np.inf)
    for table in (tree.bodies(topology), tree.dofs(topology), links.trees):
        table.__dict__.pop("shapes", None)
    by_masks = sums()
    assert tree.bodies(topology).shapes is None
    monkeypatch.setattr(tree_sums, "MASK_LIMIT", 0)
    for first, masked, jumped in zip(chosen, by_masks, sums(), strict=True):
        np.testing.assert_allclose(masked, first, rtol=0, atol=1e-12)
        np.testing.assert_allclose(jumped, masked, rtol=0, atol=1e-12)
    for table in (tree.bodies(topology), tree.dofs(topology), links.trees):
        table.__dict__.pop("shapes", None)


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
    for index in dof_blocks(topology).index:
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
    shapes = tree_sums.shapes_of(parent)
    assert sorted(shape.nodes.shape for shape in shapes) == [(1, 1), (1, 3), (1, 3), (1, 4), (2, 12)]
    mask = tree_sums.ancestor_mask(parent)
    trees = tree_sums.Trees(parent)
    monkeypatch.setitem(trees.__dict__, "shapes", shapes)
    values = np.random.default_rng(0).normal(size=(len(parent), 3))
    np.testing.assert_allclose(trees.above(jnp.asarray(values)), mask @ values, rtol=0, atol=1e-12)
    np.testing.assert_allclose(trees.below(jnp.asarray(values)), mask.T @ values, rtol=0, atol=1e-12)

"""Sums over trees: masks and pointer jumping agree, on a model with several branches and on a chain."""

import jax.numpy as jnp
import numpy as np
import oracle
import pytest

from diffsim.physics import frames, joint, tree


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
            tree.sum_dofs(topology, joint.earlier_dof(topology), (dofs, rates), (rates[:, None] * dofs, rates)),
            frames.sum_offsets(links, offsets),
        ]
        return [np.asarray(values) for values in found]

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

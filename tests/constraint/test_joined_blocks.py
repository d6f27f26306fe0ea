"""Contacts of many trees: rows that touch two blocks at most, and which of them join two blocks."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from oracle import assert_close, mujoco

import diffsim
from diffsim.constraint.islands import trees_moved
from diffsim.kinematics.tree import dof_blocks
from diffsim.math.stencil_rows import PairRows, SparseRows
from diffsim.solver.objective import may_join

COUNT = 20
ARM = """<body pos="{place}"><freejoint/><geom size=".1"/><body pos=".15 0 0"><joint axis="0 0 1"/>
  <geom size=".1" pos=".1 0 0"/></body></body>"""


def text_of(spacing: float) -> str:
    """Pairs of balls on a plane, each pair a tree, in a row; the balls of a pair touch, too."""
    trees = "".join(ARM.format(place=f"0 {i * spacing} .09") for i in range(COUNT))
    return f'<mujoco><worldbody><geom type="plane" size="9 9 1"/>{trees}</worldbody></mujoco>'


def arms(spacing: float) -> tuple[diffsim.Model, diffsim.Data]:
    """The model of `text_of`, and what is computed of its start."""
    model = diffsim.load(text_of(spacing))
    assert not dof_blocks(model.topology).single
    return model, diffsim.forward(model, diffsim.make_state(model), diffsim.make_inputs(model))


@pytest.mark.parametrize(("spacing", "joined"), [(0.5, False), (0.19, True)])
def test_rows_touch_the_trees_of_their_bodies(spacing: float, joined: bool) -> None:
    model, data = arms(spacing)
    constraints = data.efc
    assert bool(may_join(constraints)) == joined
    assert isinstance(constraints.jacobian, SparseRows)
    for rows in constraints.contacts:
        pairs = constraints.jacobian.segment_at(rows.start)[0].stencil
        assert isinstance(pairs, PairRows)
        dense = np.asarray(constraints.basis_jacobian(rows))
        of_tree = model.topology.dof_treeid[:, None] == np.arange(COUNT)
        touched = np.any((dense != 0)[..., None] & of_tree, axis=(0, 2))
        assert np.array_equal(trees_moved(model, constraints, rows), touched)
        assert np.array_equal(np.sum(touched, axis=1) == 2, pairs.joins)


@pytest.mark.parametrize("spacing", [0.5, 0.19])
def test_solutions_with_and_without_joined_trees(spacing: float) -> None:
    """M qacc = qfrc_smooth + J^T f."""
    _, data = arms(spacing)
    force = data.qfrc_smooth + data.qfrc_constraint
    assert jnp.max(jnp.abs(data.qM @ data.qacc - force)) < 1e-6 * jnp.max(jnp.abs(force))


def test_accelerations_of_joined_trees_are_those_of_mujoco() -> None:
    model, _ = arms(0.19)
    mjmodel = mujoco.MjModel.from_xml_string(text_of(0.19))
    mjmodel.opt.tolerance, data = 1e-14, mujoco.MjData(mjmodel)
    data.qvel[:] = np.random.default_rng(0).normal(size=mjmodel.nv)
    mujoco.mj_forward(mjmodel, data)
    model = model.replace(opt=dataclasses.replace(model.opt, tolerance=jnp.asarray(1e-14)))
    state = diffsim.make_state(model).replace(qvel=jnp.asarray(data.qvel))
    ours = diffsim.forward(model, state, diffsim.make_inputs(model))
    assert data.ncon == np.sum(ours.contact.dist < 0)
    assert_close("qacc", ours.qacc, data.qacc, 1e-7 * np.max(np.abs(data.qacc)))

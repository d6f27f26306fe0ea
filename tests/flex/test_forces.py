"""Vertices, edges, passive forces and equalities of flexes, and the optimum of Newton's method, are the oracle's."""

import jax
import numpy as np
import pytest
from flex.models import EDGES, NO_CONTACT, check_slopes, flexcomp, moved, pair, velocity_along
from oracle import mujoco, state_of
from uncompiled import uncompiled

import diffsim
from diffsim.base.errors import UnsupportedError
from diffsim.constraint.islands import trees_moved
from diffsim.math.linalg import BlockColumns
from diffsim.math.stencil_rows import SparseRows, StencilRows

PIN = '<pin id="0 1"/>'
MODELS = {
    "edges of few vertices": flexcomp(NO_CONTACT + EDGES + PIN, "3 3 1"),
    "edges of points": flexcomp(NO_CONTACT + EDGES + PIN, "6 6 1"),
    "strain at vertices": flexcomp(NO_CONTACT + '<edge equality="vert"/>', "6 5 1", turned=""),
    "a rope": flexcomp(NO_CONTACT + '<edge stiffness="50" damping=".5"/>' + PIN, "8 1 1", 1),
    "a plate": flexcomp(
        NO_CONTACT + '<elasticity young="3e5" poisson=".3" thickness="8e-3" damping=".02" elastic2d="both"/>',
        "5 5 1",
        turned="",
    ),
    "a solid": flexcomp(
        NO_CONTACT + '<elasticity young="3e4" poisson=".2" damping=".02"/>' + PIN, "3 3 4", dim=3, turned=""
    ),
}
# relative to the largest number of the oracle's
CLOSE = {"flexvert_xpos": 1e-12, "flexvert_length": 1e-12, "flexedge_length": 1e-12, "flexedge_velocity": 1e-12}
CLOSE |= {"qfrc_spring": 1e-12, "qfrc_damper": 1e-12, "qacc": 1e-10, "qfrc_constraint": 1e-9, "energy": 1e-12}


@pytest.mark.parametrize("name", MODELS)
def test_forces_are_the_oracles(name):
    model, mjmodel = pair(MODELS[name])
    # diffsim computes the energy without the flag
    mjmodel.opt.enableflags |= mujoco.mjtEnableBit.mjENBL_ENERGY
    data = moved(mjmodel)
    found = uncompiled(diffsim.forward)(model, state_of(data))
    assert isinstance(found.efc.jacobian, SparseRows) == (mjmodel.nv > 70)
    for field, tolerance in CLOSE.items():
        theirs = getattr(data, field).reshape(np.shape(getattr(found, field)))
        difference = np.abs(np.asarray(getattr(found, field)) - theirs)
        assert np.max(difference, initial=0) <= tolerance * max(np.max(np.abs(theirs), initial=0), 1e-3), field


def test_a_product_with_rows_by_points_is_that_of_a_matrix():
    model, mjmodel = pair(MODELS["edges of points"])
    jacobian = uncompiled(diffsim.forward)(model, state_of(moved(mjmodel))).efc.jacobian
    rng = np.random.default_rng(0)
    vector, force, dense = rng.normal(size=mjmodel.nv), rng.normal(size=jacobian.height), np.asarray(jacobian.dense)
    np.testing.assert_allclose(jacobian.mul_vec(vector), dense @ vector, atol=1e-12)
    np.testing.assert_allclose(jacobian.mul_vec_t(force), dense.T @ force, atol=1e-12)


def test_solvers_that_need_all_of_the_matrix_are_refused():
    model = pair(MODELS["edges of points"])[0]
    for option in ({"solver": "PGS"}, {"noslip_iterations": 1}):
        with pytest.raises(UnsupportedError, match=next(iter(option))):
            jax.eval_shape(diffsim.forward, model.replace(opt=model.opt.replace(**option)), diffsim.make_state(model))


def test_steps_and_gradients():
    """Five steps to 1e-9; jvp and vjp of the acceleration equal Richardson differences."""
    model, mjmodel = pair(MODELS["edges of points"])
    data = moved(mjmodel)
    step = uncompiled(diffsim.step)
    state = state_of(data)
    rng = np.random.default_rng(1)
    names = ("body_mass", "eq_solref", "flexedge_length0")
    change = {name: 0.1 * rng.normal(size=getattr(model, name).shape) * getattr(model, name) for name in names}
    turn, push, weight = rng.normal(size=(3, mjmodel.nv))
    check_slopes(velocity_along(model, state, change, push, 1e-2 * turn), weight, 4e-4, 1e-9)
    for _ in range(5):
        state = step(model, state)
        mujoco.mj_step(mjmodel, data)
    np.testing.assert_allclose(state.qpos, data.qpos, atol=1e-9)


@pytest.mark.parametrize("integrator", ["implicit", "implicitfast"])
def test_implicit_steps_see_the_damping_of_edges(integrator):
    """Five steps of a rope of points beside a jointed body equal the oracle's."""
    world = '<body pos="0 0 3"><joint axis="0 1 0" damping=".1"/><geom size=".1"/></body>'
    edge = '<edge stiffness="50" damping=".5"/>'
    model, mjmodel = pair(flexcomp(NO_CONTACT + edge + PIN, "26 1 1", 1, f'integrator="{integrator}"', world))
    data = moved(mjmodel)
    step, state = uncompiled(diffsim.step), state_of(data)
    for _ in range(5):
        state = step(model, state)
        mujoco.mj_step(mjmodel, data)
    np.testing.assert_allclose(state.qvel, data.qvel, atol=1e-12)


CLOTH_AND_BODIES = """<mujoco><worldbody>
  <flexcomp name="cloth" type="grid" dim="2" count="6 6 1" spacing=".05 .05 .05" radius=".01" mass=".1">
    <edge equality="true"/><contact selfcollide="none"/></flexcomp>
  <body pos=".02 .01 .05"><freejoint/><geom size=".05" condim="3"/></body>
  <body pos="1 0 0"><joint name="a"/><geom size=".1"/></body><body pos="2 0 0"><joint name="b"/><geom size=".1"/></body>
</worldbody><equality><joint joint1="a" joint2="b"/></equality></mujoco>"""


def test_trees_that_rows_move_are_those_of_a_matrix():
    model, mjmodel = pair(CLOTH_AND_BODIES)
    constraints = uncompiled(diffsim.forward)(model, state_of(moved(mjmodel))).efc
    parts = {type(part) for segment in constraints.jacobian.segments for part in segment.parts}
    assert parts >= {BlockColumns, StencilRows}
    assert any(np.any(rows.D) for rows in constraints.contacts)
    own = model.topology.dof_treeid[:, None] == np.arange(model.topology.ntree)
    for rows in constraints.groups:
        dense = np.asarray(constraints.basis_jacobian(rows)) != 0
        touched = np.any(dense[..., None] & own, axis=(0, 2))
        found = uncompiled(lambda constraints, rows=rows: trees_moved(model, constraints, rows))(constraints)
        assert np.array_equal(found, touched), rows.family

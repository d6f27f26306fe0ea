"""Which contacts join two trees: what the solver leaves out where none does."""

import jax.numpy as jnp
import numpy as np

import diffsim
from diffsim.kinematics.tree import dof_blocks
from diffsim.solver.objective import may_join

COUNT = 20
ARM = """<body pos="{place}"><freejoint/><geom size=".1"/><body pos=".15 0 0"><joint axis="0 0 1"/>
  <geom size=".1" pos=".1 0 0"/></body></body>"""


def arms(spacing: float) -> diffsim.Data:
    """Pairs of balls on a plane, each pair a tree, in a row; the balls of a pair touch, too."""
    trees = "".join(ARM.format(place=f"0 {i * spacing} .09") for i in range(COUNT))
    text = f'<mujoco><worldbody><geom type="plane" size="9 9 1"/>{trees}</worldbody></mujoco>'
    model = diffsim.load(text)
    assert not dof_blocks(model.topology).single
    return diffsim.forward(model, diffsim.make_state(model), diffsim.make_inputs(model))


def test_contacts_that_do_not_join_touch_one_block() -> None:
    for spacing, joined in ((0.5, False), (0.19, True)):
        constraints = arms(spacing).efc
        assert bool(may_join(constraints)) == joined
        for rows in constraints.contacts:
            (part,) = constraints.jacobian.parts
            blocks = np.any(np.asarray(part) != 0, axis=2)
            own = blocks[:, rows.start : rows.start + rows.height].reshape(len(blocks), rows.dim, rows.count)
            touched = np.sum(np.any(own, axis=1), axis=0)
            assert np.array_equal(touched == 2, np.asarray(rows.spans_blocks) > 0)


def test_solutions_with_and_without_joined_trees() -> None:
    """M qacc = qfrc_smooth + J^T f."""
    for spacing in (0.5, 0.19):
        data = arms(spacing)
        force = data.qfrc_smooth + data.qfrc_constraint
        assert jnp.max(jnp.abs(data.qM @ data.qacc - force)) < 1e-6 * jnp.max(jnp.abs(force))

"""Momenta of subtrees against mj_subtreeVel, fed its kinematics; far from the origin too."""

import jax
import numpy as np
import oracle
import pytest
from oracle import mujoco

from diffsim.compiler.host.interpret import interpret
from diffsim.kinematics.com import compute_subtree_velocities
from diffsim.types.data import ComFrame, Velocities


@pytest.mark.parametrize("path", ["smooth", "many_trees", "dm_control/suite/humanoid_CMU.xml"])
def test_velocities_of_subtrees(path: str) -> None:
    model, mjmodel = oracle.load_pair(path)
    for seed in range(3):
        data = oracle.sample(mjmodel, seed)
        mujoco.mj_subtreeVel(mjmodel, data)
        records = [oracle.record_of(cls, mjmodel, data) for cls in (ComFrame, Velocities)]
        ours = interpret(compute_subtree_velocities, model, *records)
        for name, value in vars(ours).items():
            expected = getattr(data, name)
            oracle.assert_close(name, value, expected, 1e-11 * (1 + np.abs(expected).max()))


def test_a_subtree_without_mass_has_finite_derivatives() -> None:
    text = "<mujoco><worldbody><body/><body><joint/><geom size='.1'/></body></worldbody></mujoco>"
    model, mjmodel = oracle.load_pair(text)
    data = oracle.sample(mjmodel, 0)
    com, velocities = (oracle.record_of(cls, mjmodel, data) for cls in (ComFrame, Velocities))

    def pulled(velocities: Velocities) -> tuple[Velocities]:
        ours, back = jax.vjp(lambda v: compute_subtree_velocities(model, com, v), velocities)
        return back(ours)

    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(interpret(pulled, velocities)))

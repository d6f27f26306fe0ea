"""Limits and dry friction of joints and tendons.

Limits are one-sided rows, active where the distance to the bound is below the margin. A hinge or slide has a lower row
(dist = q - range0, J = +1) and an upper row (dist = range1 - q, J = -1); both may be active. A ball joint has one row
on its rotation angle.

Rows of dry friction oppose motion with a force of at most `frictionloss`. They exist where frictionloss was not zero
when the model was compiled. A value of zero at run time gives no force; the derivative there is one-sided, towards
positive friction. Source: MuJoCo documentation, "Computation", limits and friction loss.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from diffsim.base.joints import is_ball, is_scalar
from diffsim.constraint.rows import RawRows, Sources
from diffsim.math import safe
from diffsim.math.rotation import quat_log, quat_normalize
from diffsim.math.vector import scale
from diffsim.types.topology import Topology, per_topology
from diffsim.xla.gather import pick


class LimitLayout(NamedTuple):
    """Which dofs, ball joints and tendons are limited."""

    # (nv,) whether the dof is a limited hinge or slide, and its coordinate
    dof: np.ndarray
    dof_qposadr: np.ndarray
    ball: np.ndarray
    # (nball, 3, nv) 0/1: which dofs are the three of each ball joint
    ball_dofs: np.ndarray
    ball_qpos: np.ndarray
    tendon: np.ndarray


@per_topology
def limit_layout(topology: Topology) -> LimitLayout:
    """The limits of a model."""
    limited = topology.jnt_limited != 0
    scalar = is_scalar(topology.jnt_type)
    joint = topology.dof_jntid
    ball = np.flatnonzero(limited & is_ball(topology.jnt_type))
    dofs = topology.jnt_dofadr[ball][:, None] + np.arange(3)
    return LimitLayout(
        dof=(limited & scalar)[joint],
        dof_qposadr=topology.jnt_qposadr[joint],
        ball=ball,
        ball_dofs=(dofs[:, :, None] == np.arange(topology.nv)).astype(float),
        ball_qpos=topology.jnt_qposadr[ball][:, None] + np.arange(4),
        tendon=np.flatnonzero(topology.tendon_limited),
    )


def dof_joints(topology: Topology) -> np.ndarray:
    """The joint of each dof (nv,)."""
    return topology.dof_jntid


def limited_balls(topology: Topology) -> np.ndarray:
    """Ids of the limited ball joints."""
    return limit_layout(topology).ball


def limited_tendons(topology: Topology) -> np.ndarray:
    """Ids of the limited tendons."""
    return limit_layout(topology).tendon


def _joint_side(source: Sources, side: int) -> list[RawRows]:
    """Lower (side -1) or upper (1) limits of hinges and slides, on all dofs."""
    model = source.model
    topology = source.model.topology
    layout = limit_layout(topology)
    if not layout.dof.any():
        return []
    joint = topology.dof_jntid
    value = pick(source.state.qpos, layout.dof_qposadr)
    bound = pick(model.jnt_range[:, max(side, 0)], joint)
    pos = side * (bound - value)
    margin = pick(model.jnt_margin, joint)
    raw = RawRows(
        pos=pos,
        margin=margin,
        active=jnp.asarray(layout.dof) & (pos < margin),
        diagonal=model.dof_invweight0,
        solref=pick(model.jnt_solref, joint),
        solimp=pick(model.jnt_solimp, joint),
        sign=-side,
    )
    return [raw]


def joint_lower(source: Sources) -> list[RawRows]:
    """Lower limits of hinges and slides, on all dofs."""
    return _joint_side(source, -1)


def joint_upper(source: Sources) -> list[RawRows]:
    """Upper limits of hinges and slides, on all dofs."""
    return _joint_side(source, 1)


def ball(source: Sources) -> list[RawRows]:
    """Limits of the rotation angle of ball joints: dist = max(range) - angle, J = -axis."""
    model = source.model
    layout = limit_layout(source.model.topology)
    joint = layout.ball
    if not len(joint):
        return []
    # d angle / d qvel is the rotation axis in the frame of the body, in which qvel of a ball joint is written
    rotvec = quat_log(quat_normalize(pick(source.state.qpos, layout.ball_qpos)))
    axis = safe.normalize(rotvec)
    pos = safe.greater(model.jnt_range[joint, 0], model.jnt_range[joint, 1]) - safe.norm(rotvec)
    dofs = jnp.asarray(layout.ball_dofs, axis.dtype)
    jacobian = -sum(scale(dofs[:, i], axis[:, i]) for i in range(3))
    margin = pick(model.jnt_margin, joint)
    raw = RawRows(
        pos=pos,
        margin=margin,
        active=pos < margin,
        diagonal=pick(model.dof_invweight0, source.model.topology.jnt_dofadr[joint]),
        solref=pick(model.jnt_solref, joint),
        solimp=pick(model.jnt_solimp, joint),
        jacobian=jnp.asarray(jacobian),
    )
    return [raw]


def _tendon_side(source: Sources, side: int) -> list[RawRows]:
    """Lower (side -1) or upper (1) limits of tendons."""
    model = source.model
    tendon = limit_layout(source.model.topology).tendon
    if not len(tendon):
        return []
    pos = side * (model.tendon_range[tendon, max(side, 0)] - source.tendons.ten_length[tendon])
    margin = model.tendon_margin[tendon]
    raw = RawRows(
        pos=pos,
        margin=margin,
        active=pos < margin,
        diagonal=model.tendon_invweight0[tendon],
        solref=model.tendon_solref_lim[tendon],
        solimp=model.tendon_solimp_lim[tendon],
        jacobian=-side * source.tendons.ten_J[tendon],
    )
    return [raw]


def tendon_lower(source: Sources) -> list[RawRows]:
    """Lower limits of tendons."""
    return _tendon_side(source, -1)


def tendon_upper(source: Sources) -> list[RawRows]:
    """Upper limits of tendons."""
    return _tendon_side(source, 1)


def all_dofs(topology: Topology) -> np.ndarray:
    """Ids of all dofs (nv,)."""
    return np.arange(topology.nv)


def dof_friction(source: Sources) -> list[RawRows]:
    """Dry friction on all dofs; J is the identity."""
    model = source.model
    topology = source.model.topology
    if not topology.has("dof_frictionloss"):
        return []
    zero = jnp.zeros_like(source.state.qvel)
    raw = RawRows(
        pos=zero,
        margin=zero,
        active=jnp.asarray(topology.present["dof_frictionloss"]),
        diagonal=model.dof_invweight0,
        solref=model.dof_solref,
        solimp=model.dof_solimp,
        sign=1,
        frictionloss=model.dof_frictionloss,
    )
    return [raw]


def friction_tendons(topology: Topology) -> np.ndarray:
    """Ids of the tendons with dry friction."""
    return np.flatnonzero(topology.present["tendon_frictionloss"])


def tendon_friction(source: Sources) -> list[RawRows]:
    """Dry friction along tendons."""
    model = source.model
    tendon = friction_tendons(model.topology)
    if not len(tendon):
        return []
    loss = model.tendon_frictionloss[tendon]
    raw = RawRows(
        pos=jnp.zeros_like(loss),
        margin=jnp.zeros_like(loss),
        active=jnp.ones(loss.shape, bool),
        diagonal=model.tendon_invweight0[tendon],
        solref=model.tendon_solref_fri[tendon],
        solimp=model.tendon_solimp_fri[tendon],
        jacobian=source.tendons.ten_J[tendon],
        frictionloss=loss,
    )
    return [raw]

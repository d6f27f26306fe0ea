"""Joint kinds: widths, units and blocks of free, ball, slide and hinge joints, one row of a table each.

The reader, the compiler, physics, limits and sensors ask these rows instead of testing for a type; how a joint moves
is `kinematics/joints.py`. Rules for one kind alone ask `is_free`, `is_ball` or `is_scalar`, of one type or of an array
of them (`jnt_type`). Source: MuJoCo documentation, "Computation", "Coordinate frames".
"""

import dataclasses
from typing import Any

import numpy as np

from diffsim.base.enums import JointType


@dataclasses.dataclass(frozen=True)
class JointKind:
    """One type of joint; its dofs count from 0.

    Attributes:
      nq, nv: widths in qpos and in qvel.
      angular: (nv,) whether a dof is a rotation (rad), else it is a translation (m).
      blocks: ranges (start, stop) of dofs that are one vector: the translation of a free joint, the rotation of a ball.
      carried_by: (nv,) how many of the joint's first dofs carry the axis of a dof: the rotations of a free joint are
        carried by its three translations, the three rotations of a ball not by one another.
      quaternion: where the quaternion (w, x, y, z) starts in the joint's qpos; None without one.
    """

    nq: int
    nv: int
    angular: tuple[bool, ...]
    blocks: tuple[tuple[int, int], ...]
    carried_by: tuple[int, ...]
    quaternion: int | None

    @property
    def scalar(self) -> bool:
        """Whether one number is the whole position: hinges and slides."""
        return self.nq == 1

    @property
    def free(self) -> bool:
        """Whether qpos is a position and a quaternion in the world."""
        return self.quaternion == 3


KINDS: dict[JointType, JointKind] = {
    JointType.FREE: JointKind(7, 6, (False,) * 3 + (True,) * 3, ((0, 3), (3, 6)), (0, 0, 0, 3, 3, 3), 3),
    JointType.BALL: JointKind(4, 3, (True,) * 3, ((0, 3),), (0, 0, 0), 0),
    JointType.SLIDE: JointKind(1, 1, (False,), ((0, 1),), (0,), None),
    JointType.HINGE: JointKind(1, 1, (True,), ((0, 1),), (0,), None),
}

# columns of the table, by the value of the type
_NQ, _NV, _SCALAR = (np.array([getattr(KINDS[kind], name) for kind in JointType]) for name in ("nq", "nv", "scalar"))


def kind_of(joint_type: int) -> JointKind:
    """The row of a type."""
    return KINDS[JointType(joint_type)]


def qpos_widths(types: Any) -> np.ndarray:
    """How many numbers of qpos joints of these types have, in the shape of `types`."""
    return _NQ[types]


def dof_widths(types: Any) -> np.ndarray:
    """How many degrees of freedom joints of these types have, in the shape of `types`."""
    return _NV[types]


def is_scalar(types: Any) -> np.ndarray:
    """Which of these types are hinges and slides."""
    return _SCALAR[types]


def is_free(types: Any) -> np.ndarray:
    """Which of these types are free joints, whose qpos is the pose of the body in the world."""
    return np.equal(types, JointType.FREE)


def is_ball(types: Any) -> np.ndarray:
    """Which of these types are ball joints."""
    return np.equal(types, JointType.BALL)


def dofs_angular(types: Any) -> np.ndarray:
    """(nv,) whether each degree of freedom of these joints (njnt,) is a rotation."""
    return np.array([turns for kind in types for turns in kind_of(kind).angular], bool)


def dofs_block(types: Any) -> np.ndarray:
    """(nv,) the number of the block that each degree of freedom of these joints (njnt,) belongs to."""
    sizes = [stop - start for kind in types for start, stop in kind_of(kind).blocks]
    return np.repeat(np.arange(len(sizes)), sizes)

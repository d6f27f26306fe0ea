"""The table of joint types: sizes in qpos and qvel, units, and which coordinates belong together, one row per type.

The MJCF reader, the compiler, the physics and the sensors read these rows instead of testing for a type; how a joint
moves is in `kinematics/joints.py`. Where a rule concerns one type only, use `is_free`, `is_ball` or `is_scalar`, which
take one type or an array of types (`jnt_type`). Source: MuJoCo documentation, "Computation", "Coordinate frames".
"""

import dataclasses
from typing import Any

import numpy as np

from diffsim.base.enums import JointType


@dataclasses.dataclass(frozen=True)
class JointKind:
    """The facts of one joint type; dofs of the joint are numbered from 0.

    Attributes:
      nq: number of elements in qpos.
      nv: number of degrees of freedom.
      angular: (nv,) True for a rotation (rad), False for a translation (m).
      blocks: ranges (start, stop) of dofs that form one vector, such as the translation of a free joint.
      carried_by: (nv,) the number of the joint's first dofs that move the axis of each dof: 3 for the rotations of a
        free joint, whose axes move with its translations. The rotations of a ball do not move each other's axes.
      quaternion: where the quaternion (w, x, y, z) starts in the joint's qpos; None if there is none.
    """

    nq: int
    nv: int
    angular: tuple[bool, ...]
    blocks: tuple[tuple[int, int], ...]
    carried_by: tuple[int, ...]
    quaternion: int | None

    @property
    def scalar(self) -> bool:
        """Whether the position is one number: hinges and slides."""
        return self.nq == 1

    @property
    def rotational(self) -> bool:
        """Whether all degrees of freedom are rotations: hinges and balls."""
        return all(self.angular)

    @property
    def free(self) -> bool:
        """Whether qpos is a position and a quaternion, relative to the world."""
        return self.quaternion == 3


KINDS: dict[JointType, JointKind] = {
    JointType.FREE: JointKind(
        nq=7,
        nv=6,
        angular=(False, False, False, True, True, True),
        blocks=((0, 3), (3, 6)),
        carried_by=(0, 0, 0, 3, 3, 3),
        quaternion=3,
    ),
    JointType.BALL: JointKind(
        nq=4,
        nv=3,
        angular=(True, True, True),
        blocks=((0, 3),),
        carried_by=(0, 0, 0),
        quaternion=0,
    ),
    JointType.SLIDE: JointKind(
        nq=1,
        nv=1,
        angular=(False,),
        blocks=((0, 1),),
        carried_by=(0,),
        quaternion=None,
    ),
    JointType.HINGE: JointKind(
        nq=1,
        nv=1,
        angular=(True,),
        blocks=((0, 1),),
        carried_by=(0,),
        quaternion=None,
    ),
}

# columns of the table as arrays, to be indexed by joint types
_NQ = np.array([KINDS[kind].nq for kind in JointType])
_NV = np.array([KINDS[kind].nv for kind in JointType])
_SCALAR = np.array([KINDS[kind].scalar for kind in JointType])


def kind_of(joint_type: int) -> JointKind:
    """The row of the table for a joint type."""
    return KINDS[JointType(joint_type)]


def qpos_widths(types: Any) -> np.ndarray:
    """The number of elements in qpos of each of these joints; the result has the shape of `types`."""
    return _NQ[types]


def dof_widths(types: Any) -> np.ndarray:
    """The number of degrees of freedom of each of these joints; the result has the shape of `types`."""
    return _NV[types]


def is_scalar(types: Any) -> np.ndarray:
    """Whether each of these types is a hinge or a slide."""
    return _SCALAR[types]


def is_free(types: Any) -> np.ndarray:
    """Whether each of these types is a free joint."""
    return np.equal(types, JointType.FREE)


def is_ball(types: Any) -> np.ndarray:
    """Whether each of these types is a ball joint."""
    return np.equal(types, JointType.BALL)


def dofs_angular(types: Any) -> np.ndarray:
    """(nv,) bool: whether each degree of freedom of these joints (njnt,) is a rotation."""
    return np.array([turns for kind in types for turns in kind_of(kind).angular], bool)


def dofs_block(types: Any) -> np.ndarray:
    """(nv,) the block (see `JointKind`) to which each degree of freedom of these joints (njnt,) belongs."""
    sizes = [stop - start for kind in types for start, stop in kind_of(kind).blocks]
    return np.repeat(np.arange(len(sizes)), sizes)

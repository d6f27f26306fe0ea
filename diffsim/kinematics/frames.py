"""The chain of frames: one node per joint, and one per body without joints, composed from the world outwards.

A node's frame is its parent's frame, moved by the body's fixed frame (first node of a body) and by its joint. Rotations
compose by pointer jumping, in ceil(log2(depth)) rounds. Once all rotations are known, each position is a sum of
offsets over ancestors, a product with a static mask.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.kinematics.forest import Shape, ancestor_mask, sum_above
from diffsim.kinematics.joints import groups
from diffsim.kinematics.tree import MASK_LIMIT, jump_rounds, worthwhile_forest
from diffsim.math.linalg import matmul
from diffsim.math.rotation import quat_mul
from diffsim.types.topology import Topology, per_topology
from diffsim.xla.barriers import computed_once
from diffsim.xla.pick import pick, pick_some

Array = jax.Array

IDENTITY = np.array([1, 0, 0, 0])


@dataclasses.dataclass(frozen=True)
class Chain:
    """Nodes in tree order; node 0 is the world.

    Attributes:
      parent: (n,) parent node, 0 for children of the world and the world itself.
      body, joint: (n,) the body, and the joint or -1.
      based: (n,) whether the node starts with its body's fixed frame.
      absolute: (n,) the three entries of qpos that place the node in the world, or -1.
      last: (nbody,) the node that is the body's frame.
      of_joint: (njnt,) the node of each joint.
      rounds: pointers of each round of pointer jumping.
      forest: the nodes but the world, counted from 0, by shape of their trees, where that is worthwhile.
    """

    parent: np.ndarray
    body: np.ndarray
    joint: np.ndarray
    based: np.ndarray
    absolute: np.ndarray
    last: np.ndarray
    of_joint: np.ndarray
    rounds: tuple[np.ndarray, ...]
    forest: tuple[Shape, ...] | None


@per_topology
def chain(topology: Topology) -> Chain:
    """The nodes of a model."""
    parent, owner, joint = [0], [0], [-1]
    last = np.zeros(topology.nbody, dtype=np.int32)
    for body in range(1, topology.nbody):
        above = int(last[topology.body_parentid[body]])
        start, count = int(topology.body_jntadr[body]), int(topology.body_jntnum[body])
        own = range(start, start + count) if count else (-1,)
        for member in own:
            parent.append(above)
            owner.append(body)
            joint.append(member)
            above = len(parent) - 1
        last[body] = above
    parents, bodies, joints = (np.array(column, dtype=np.int32) for column in (parent, owner, joint))
    absolute = np.full((len(parents), 3), -1)
    of_joint = np.zeros(topology.njnt, dtype=np.int32)
    of_joint[joints[joints >= 0]] = np.flatnonzero(joints >= 0)
    for group in groups(topology):
        if group.kind.free:
            absolute[of_joint[group.joints]] = group.qpos[:, :3]
    first = np.append(True, bodies[1:] != bodies[:-1])
    jumps = jump_rounds(np.where(parents == 0, -1, parents))
    return Chain(
        parent=parents,
        body=bodies,
        joint=joints,
        based=first & (absolute[:, 0] < 0) & (bodies > 0),
        absolute=absolute,
        last=last,
        of_joint=of_joint,
        # the world composes as the identity, so it stands for what is beyond it
        rounds=tuple(np.where(pointer == len(parents), 0, pointer) for pointer in jumps),
        forest=worthwhile_forest(parents[1:] - 1),
    )


def compose_rotations(links: Chain, quat: Array) -> Array:
    """(n, 4) world rotations from rotations in the parent's frame; node 0 must be the identity."""
    for pointer in links.rounds:
        quat = _after_parent(quat, pointer)
    return quat


@computed_once
def _after_parent(quat: Array, pointer: np.ndarray) -> Array:
    """One round: XLA would compute all rounds before it again, for each of its inputs."""
    return quat_mul(pick_some(quat, np.where(pointer > 0, pointer, -1), IDENTITY), quat)


def sum_offsets(links: Chain, offset: Array) -> Array:
    """(n, 3) world positions from world-oriented offsets to the parent."""
    if links.forest is not None:
        return jnp.concatenate([offset[:1], sum_above(links.forest, offset[1:])])
    if len(links.parent) <= MASK_LIMIT:
        mask = ancestor_mask(np.append(-1, links.parent[1:]))
        return matmul(jnp.asarray(mask, offset.dtype), offset)
    for pointer in links.rounds:
        # offset 0 is zero
        offset = offset + pick(offset, pointer)
    return offset

"""Centres of mass of subtrees, and inertias and motion axes about the centre of mass of each tree.

Second stage: everything spatial after it is expressed in this frame (world-oriented, at the `subtree_com` of the
tree's root body), where sums along the tree need no change of frame. Source: Featherstone 2008, ch. 2 and 5.
"""

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.kinematics.joints import joint_axes
from diffsim.kinematics.tree import sum_subtree
from diffsim.math import safe
from diffsim.math.vector import dot_components, pack, scale, unpack
from diffsim.types.data import ComFrame, Kinematics
from diffsim.types.model import Model
from diffsim.xla.bilinear import by_components
from diffsim.xla.gather import pick

Array = jax.Array

# a subtree lighter than this (kg) has its centre at its own body's inertial frame
MIN_MASS = 1e-15


def compute_com_frame(model: Model, kinematics: Kinematics) -> ComFrame:
    """subtree_com (nbody, 3) m, cinert (nbody, 10) in kg m^2, kg m and kg, cdof (nv, 6), all world-oriented."""
    topology = model.topology
    centre = subtree_com(model, kinematics.xipos)
    origin = pick(centre, topology.body_rootid)
    inertia = _inertia_about(model.body_mass, model.body_inertia, kinematics.ximat, kinematics.xipos - origin)
    offset = pick(origin, topology.jnt_bodyid) - kinematics.xanchor
    return ComFrame(
        subtree_com=centre,
        # the world carries nothing
        cinert=by_components(jnp.where(np.arange(topology.nbody)[:, None] > 0, inertia, 0)),
        cdof=by_components(joint_axes(topology, kinematics.xaxis, kinematics.xmat, offset)),
    )


def subtree_com(model: Model, xipos: Array) -> Array:
    """(nbody, 3) m, world: centre of mass of each body with its descendants; its own (xipos) if they have no mass."""
    mass = model.body_mass
    # apart from the moments: it is the same for all worlds, unless they have models of their own
    below = sum_subtree(model.topology, mass[:, None])[:, 0]
    heavy = below > MIN_MASS
    share = safe.divide(jnp.ones_like(mass), jnp.where(heavy, below, 1))
    mean = scale(sum_subtree(model.topology, scale(xipos, mass)), share)
    return jnp.where(heavy[:, None], mean, xipos)


def _inertia_about(mass: Array, diagonal: Array, ximat: Array, offset: Array) -> Array:
    """(nbody, 10) inertias R diag R^T + m (o^2 1 - o o^T), about the points that lie `offset` before the centres."""
    rows, sizes = [unpack(row) for row in unpack(ximat, axis=-2)], unpack(diagonal)
    scaled = [[size * entry for size, entry in zip(sizes, row, strict=True)] for row in rows]
    moment, arm = unpack(scale(offset, mass)), unpack(offset)
    square = dot_components(moment, arm)

    def entry(i: int, j: int) -> Array:
        return dot_components(scaled[i], rows[j]) - moment[i] * arm[j]

    diagonals = [entry(i, i) + square for i in range(3)]
    return pack([*diagonals, entry(0, 1), entry(0, 2), entry(1, 2), *moment, mass])

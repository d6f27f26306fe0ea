"""singular: which degrees of freedom move without any inertia, where M has no inverse.

Two parallel slides of one body, or two hinges on one line, are one motion with two coordinates: nothing says how it is
shared. For explanations only, on the host, in numpy. Source: Featherstone 2008, ch. 6.
"""

import numpy as np
from scipy.sparse.csgraph import connected_components

Array = np.ndarray

# share of the largest entry from which on a dof takes part in a motion
TAKES_PART = 0.1


def motions_without_inertia(inertia: Array) -> list[Array]:
    """For each part of M that is not positive definite to rounding: the dofs that move where nothing resists.

    Args:
      inertia: (nv, nv) joint-space inertia, kg m^2, kg m and kg.
    """
    if not np.isfinite(inertia).all():
        return [np.flatnonzero(~np.isfinite(inertia).all(axis=1))]
    count, label = connected_components(inertia != 0, directed=False)
    motions = (_motion(inertia, np.flatnonzero(label == part)) for part in range(count))
    return [motion for motion in motions if len(motion)]


def _motion(inertia: Array, dofs: Array) -> Array:
    """Those of some dofs which take part in a motion without inertia; none if there is no such motion."""
    block = inertia[np.ix_(dofs, dofs)]
    # metres and radians made comparable
    size = np.sqrt(np.maximum(np.diagonal(block), np.finfo(block.dtype).tiny))
    values, vectors = np.linalg.eigh(block / size[:, None] / size)
    free = vectors[:, values <= len(dofs) * np.finfo(block.dtype).eps]
    share = np.abs(free).max(axis=1, initial=0)
    return dofs[share > TAKES_PART * share.max(initial=0)]

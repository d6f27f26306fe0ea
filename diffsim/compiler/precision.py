"""How ill-conditioned the inertia matrix M of a model is, and the warning where it is beyond float32.

The measure is the largest M_ii (M^-1)_ii: how much more inertia a dof has while all others are held than while they are
free. It does not depend on units, and the relative error of accelerations is up to about epsilon times it. Large values
come from light links that carry heavy ones without armature.
"""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from diffsim.base.errors import PrecisionWarning
from diffsim.base.joints import dofs_block
from diffsim.solver.conditioning import BEYOND
from diffsim.types.model import Model

# from here on programs in float32 watch the condition. Of 103 models of public packages none has more than 550
WATCHED = 1e3
# what armature should reach: a third of BEYOND, for other poses than qpos0
REACHED = 1e4
# body_simple of bodies that only slide
SLIDES = 2
# bodies that the warning names at most
NAMED = 6


def condition(fields: Mapping[str, Any]) -> np.ndarray:
    """(nv,) M_ii (M^-1)_ii at qpos0, at least 1, of a table of fields under mjModel's names."""
    inverse, inertia = (np.array(fields[name], float).ravel() for name in ("dof_invweight0", "dof_M0"))
    # inverse weights are means over the axes of a block; for bodies that only slide they are 1 / mass
    block = dofs_block(np.ravel(fields["jnt_type"]))
    least = np.full(block.max(initial=-1) + 1, np.inf)
    np.minimum.at(least, block, inertia)
    slides = np.ravel(fields["body_simple"])[np.ravel(fields["dof_bodyid"])] == SLIDES
    return np.where(slides, 1.0, np.maximum(inverse * least[block], 1.0))


def warn_of_condition(model: Model, fields: Mapping[str, Any]) -> None:
    """Warns that a float32 model is beyond float32, and says which bodies and how much armature would do."""
    measure = condition(fields)
    if model.qpos0.dtype != np.float32 or not np.any(measure > BEYOND):
        return
    topology = model.topology
    dofs = np.flatnonzero(measure > REACHED)
    bodies = list(dict.fromkeys(topology.dof_bodyid[dofs].tolist()))
    names = ", ".join(topology.name("body", body) or f"body {body}" for body in bodies[:NAMED])
    armature = np.ravel(fields["dof_M0"])[dofs].max() / REACHED
    warnings.warn(
        f"the inertia matrix is beyond float32: its condition is {measure.max():.1e}, and accelerations may be off by "
        f"over 1% for {names}{' ...' if len(bodies) > NAMED else ''}. Light links carry heavy ones there. Switch "
        f"jax_enable_x64 on before you load the model, or give these joints an armature of {armature:.1g} or more",
        PrecisionWarning,
        stacklevel=3,
    )

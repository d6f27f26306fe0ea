"""The condition of a model's inertia matrix M, and the warnings if float32 is not accurate enough for a model.

The measure is the largest M_ii (M^-1)_ii: the ratio of a dof's inertia when all other dofs are held to its inertia when
they are free. It does not depend on units. The relative error of accelerations is up to about machine epsilon times
this ratio. It is large if light links carry heavy ones without armature.
"""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from diffsim.base.enums import Cone
from diffsim.base.errors import PrecisionWarning
from diffsim.base.joints import dofs_block
from diffsim.solver.conditioning import BEYOND
from diffsim.types.model import Model

# float32 programs check the condition in every step if it is above this at qpos0; of 103 models in public packages none
# has more than 550
WATCHED = 1e3
# condition that the recommended armature achieves at qpos0: a third of BEYOND, as it is larger in other poses
RECOMMENDED = 1e4
# value of body_simple for bodies that only slide
SLIDES = 2
# the warning names at most this many bodies
NAMED = 6
# largest impratio for elliptic cones in float32. A box that friction holds on a slope of 20 degrees takes 0.6
# iterations a step at 1e3, as at 1; at 1e4 half of the steps do not converge, and it sinks by 0.9 mm in 4 s
LARGEST_IMPRATIO = 2e3


def condition(fields: Mapping[str, Any]) -> np.ndarray:
    """(nv,) M_ii (M^-1)_ii at qpos0, at least 1, from a table of fields under mjModel's names."""
    inverse, inertia = (np.array(fields[name], float).ravel() for name in ("dof_invweight0", "dof_M0"))
    # inverse weights are means over the axes of a block; for bodies that only slide they are 1 / mass
    block = dofs_block(np.ravel(fields["jnt_type"]))
    least = np.full(block.max(initial=-1) + 1, np.inf)
    np.minimum.at(least, block, inertia)
    slides = np.ravel(fields["body_simple"])[np.ravel(fields["dof_bodyid"])] == SLIDES
    return np.where(slides, 1.0, np.maximum(inverse * least[block], 1.0))


def warn_of_precision(model: Model, fields: Mapping[str, Any]) -> None:
    """Warns if a float32 model needs float64: because of its inertia matrix, or because of a large impratio."""
    warn_of_condition(model, fields)
    impratio = float(np.max(np.asarray(model.opt.impratio)))
    if model.qpos0.dtype != np.float32 or model.opt.cone != Cone.ELLIPTIC or impratio <= LARGEST_IMPRATIO:
        return
    warnings.warn(
        f"impratio {impratio:g} with an elliptic cone is too large for float32: the solver does not converge where "
        f"friction holds a body, and the body creeps and sinks. Use an impratio of at most {LARGEST_IMPRATIO:g} or a "
        "pyramidal cone, or set jax_enable_x64 before you load the model",
        PrecisionWarning,
        stacklevel=3,
    )


def warn_of_condition(model: Model, fields: Mapping[str, Any]) -> None:
    """Warns if a float32 model is too ill-conditioned; names the bodies and an armature that is large enough."""
    measure = condition(fields)
    if model.qpos0.dtype != np.float32 or not np.any(measure > BEYOND):
        return
    topology = model.topology
    dofs = np.flatnonzero(measure > RECOMMENDED)
    bodies = list(dict.fromkeys(topology.dof_bodyid[dofs].tolist()))
    names = ", ".join(topology.name("body", body) or f"body {body}" for body in bodies[:NAMED])
    armature = np.ravel(fields["dof_M0"])[dofs].max() / RECOMMENDED
    warnings.warn(
        f"the inertia matrix is too ill-conditioned for float32: its condition is {measure.max():.1e}, so "
        f"accelerations may be wrong by more than 1% for {names}{' ...' if len(bodies) > NAMED else ''}. The usual "
        "cause is a light link that carries a heavy one. Set jax_enable_x64 before you load the model, or give these "
        f"joints an armature of {armature:.1g} or more",
        PrecisionWarning,
        stacklevel=4,
    )

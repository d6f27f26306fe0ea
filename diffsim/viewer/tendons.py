"""Spatial tendons as a player draws them: straight pieces, whose ends move with every frame."""

from typing import Any

import jax
import numpy as np

from diffsim.types import Model
from diffsim.types.data import Kinematics
from diffsim.viewer.numbers import Numbers
from diffsim.viz.material import colours
from diffsim.viz.tendon import tendon_ids, tendon_lines
from diffsim.viz.visible import HIDDEN_GROUPS


def tendons(model: Model, poses: Kinematics, numbers: Numbers) -> dict[str, Any]:
    """The header's "tendons": colours of n pieces, and of each frame and world (T, worlds) both ends and the radius of
    each piece, (n, 7), m; a radius below 0 where there is no piece."""
    ids = tendon_ids(model)
    if not len(ids):
        return {"rgba": [], "lines": numbers.put(np.zeros(0, np.float32))}
    lines = jax.jit(jax.vmap(jax.vmap(tendon_lines, (None, 0)), (None, 0)))(model, poses)
    start, end, radius = (np.asarray(each, np.float32) for each in lines)
    rgba = np.asarray(colours(model, "tendon"), float)[ids]
    rgba[np.isin(model.topology.tendon_group[ids], HIDDEN_GROUPS), 3] = 0
    shown = np.concatenate([start, end, np.where(rgba[:, 3] > 0, radius, -1)[..., None]], axis=-1)
    return {"rgba": np.round(rgba, 6).tolist(), "lines": numbers.put(shown)}

"""Straight pieces as a player draws them: those of spatial tendons, and what else is a line; ends move every frame."""

from typing import Any, NamedTuple

import jax
import numpy as np

from diffsim.types import Model
from diffsim.types.data import Kinematics
from diffsim.viewer.numbers import Numbers
from diffsim.viz.material import colours
from diffsim.viz.tendon import tendon_ids, tendon_lines
from diffsim.viz.visible import HIDDEN_GROUPS


class Pieces(NamedTuple):
    """Colours (n, 4), and of each frame and world both ends and the radius, (T, worlds, n, 7), m.

    A radius below 0 where there is no piece.
    """

    rgba: np.ndarray
    lines: np.ndarray


def tendons(model: Model, poses: Kinematics) -> Pieces:
    """The pieces of all spatial tendons; poses (T, worlds, ...)."""
    ids = tendon_ids(model)
    if not len(ids):
        return Pieces(np.zeros((0, 4)), np.zeros((*poses.xpos.shape[:2], 0, 7), np.float32))
    lines = jax.jit(jax.vmap(jax.vmap(tendon_lines, (None, 0)), (None, 0)))(model, poses)
    start, end, radius = (np.asarray(each, np.float32) for each in lines)
    rgba = np.asarray(colours(model, "tendon"), float)[ids]
    rgba[np.isin(model.topology.tendon_group[ids], HIDDEN_GROUPS), 3] = 0
    shown = np.concatenate([start, end, np.where(rgba[:, 3] > 0, radius, -1)[..., None]], axis=-1)
    return Pieces(rgba, shown)


def put(pieces: Pieces, numbers: Numbers) -> dict[str, Any]:
    """The header's "pieces"."""
    rgba = [[float(f"{value:.6g}") for value in row] for row in np.asarray(pieces.rgba, float).tolist()]
    return {"rgba": rgba, "lines": numbers.put(pieces.lines.astype(np.float32))}

"""Spatial tendons as capsules along their paths: a line between sites, or to a geom, through it and on from it.

As in MuJoCo's pictures, what is inside of a geom has half the width. Source: `addTendonGeoms` of 3.8.1.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.kinematics.tendon import spatial_paths, touches
from diffsim.math import safe
from diffsim.math.vector import cross
from diffsim.types import Model
from diffsim.types.data import Kinematics

Array = jax.Array


class Lines(NamedTuple):
    """Straight pieces of paths: both ends (n, 3), m, and radius (n,), m, below 0 where there is no piece."""

    start: Array
    end: Array
    radius: Array


def tendon_ids(model: Model) -> np.ndarray:
    """(n,) the tendon of each piece."""
    found = [np.zeros(0, int)]
    for path in spatial_paths(model.topology):
        found += [path.tendon] * (1 if path.geom is None else 3)
    return np.concatenate(found)


def tendon_lines(model: Model, kinematics: Kinematics) -> Lines:
    """The pieces of all spatial tendons; what touches no geom is one piece."""
    found = [Lines(jnp.zeros((0, 3)), jnp.zeros((0, 3)), jnp.zeros(0))]
    for path in spatial_paths(model.topology):
        start, end = kinematics.site_xpos[path.first], kinematics.site_xpos[path.last]
        width = model.tendon_width[path.tendon]
        if path.geom is None:
            found.append(Lines(start, end, width))
            continue
        touch = touches(model, kinematics, path)
        active = touch.active[:, None]
        found.append(Lines(start, jnp.where(active, touch.first, end), width))
        found.append(Lines(touch.first, touch.last, jnp.where(touch.active, 0.5 * width, -1)))
        found.append(Lines(touch.last, end, jnp.where(touch.active, width, -1)))
    return Lines(*(jnp.concatenate(each) for each in zip(*found, strict=True)))


def along(start: Array, end: Array) -> tuple[Array, Array, Array]:
    """Middles (n, 3), rotations (n, 3, 3) and half lengths (n,) of capsules between points, with z along them."""
    offset = end - start
    z = safe.normalize(offset)
    # any direction that is not along z
    other = jnp.where(jnp.abs(z[:, :1]) < 0.9, jnp.asarray([[1.0, 0, 0]]), jnp.asarray([[0, 1.0, 0]])).astype(z.dtype)
    x = safe.normalize(cross(other, z))
    return (start + end) / 2, jnp.stack([x, cross(z, x), z], axis=2), safe.norm(offset) / 2

"""Marks: what a live view draws beside the bodies: contact forces, frames of bodies, and the spring that pulls one."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.enums import ObjType
from diffsim.math.vector import cross
from diffsim.support.contacts import contact_force
from diffsim.support.motion import object_velocity, total_mass
from diffsim.types import Data, Model
from diffsim.viz.tendon import Lines, tendon_ids, tendon_lines

Array = jax.Array

FORCE, SPRING = (0.95, 0.45, 0.15, 1.0), (0.95, 0.1, 0.1, 1.0)
AXES = ((0.9, 0.1, 0.1, 1.0), (0.1, 0.8, 0.1, 1.0), (0.1, 0.2, 0.9, 1.0))
# square of the frequency of the spring, 1/s^2
STIFFNESS = 100.0
# of lines, in extents of the model; of a force that is the model's weight
THIN, AXIS, WEIGHT = 0.003, 0.05, 0.3


class Grip(NamedTuple):
    """A point of a body (3,), in its frame, m, that is pulled to a target (3,), world, m; no body is index 0."""

    body: Array
    point: Array
    target: Array


class Shown(NamedTuple):
    """Which marks are drawn."""

    forces: Array
    frames: Array


def colours_of_marks(model: Model, count: int) -> np.ndarray:
    """(count, 4) of the pieces of `marks` that are no tendons."""
    axes = [*AXES] * (model.nbody - 1)
    return np.asarray([FORCE] * (count - len(axes) - 1) + axes + [SPRING])


def marks(model: Model, data: Data, grip: Grip, shown: Shown) -> Lines:
    """Lines of tendons, of contact forces on their second geoms, of body frames, and of the spring; one world."""
    parts = [_forces(model, data, shown.forces), _frames(model, data, shown.frames), _spring(model, data, grip)]
    parts = [tendon_lines(model, data), *parts] if len(tendon_ids(model)) else parts
    return Lines(*(jnp.concatenate(each) for each in zip(*parts, strict=True)))


def _forces(model: Model, data: Data, on: Array) -> Lines:
    force = jnp.einsum("ci,cij->cj", contact_force(model, data)[:, :3], data.contact.frame)
    weight = total_mass(model) * jnp.linalg.norm(model.opt.gravity) + 1e-9
    end = data.contact.pos + WEIGHT * model.stat.extent / weight * force
    acts = on & (jnp.linalg.norm(force, axis=-1) > 1e-3 * weight)
    return Lines(data.contact.pos, end, jnp.where(acts, THIN * model.stat.extent, -1))


def _frames(model: Model, data: Data, on: Array) -> Lines:
    start = jnp.repeat(data.xpos[1:], 3, axis=0)
    axes = jnp.swapaxes(data.xmat[1:], -1, -2).reshape(-1, 3)
    radius = jnp.where(on, THIN * model.stat.extent, -1)
    return Lines(start, start + AXIS * model.stat.extent * axes, jnp.broadcast_to(radius, start.shape[:1]))


def _spring(model: Model, data: Data, grip: Grip) -> Lines:
    point = data.xpos[grip.body] + data.xmat[grip.body] @ grip.point
    radius = jnp.where(grip.body > 0, THIN * model.stat.extent, -1)
    return Lines(point[None], grip.target[None], radius[None])


def pull(model: Model, data: Data, grip: Grip) -> Array:
    """xfrc_applied (nbody, 6), N and N m, of a damped spring from the point of a body to its target.

    With the mass m of what hangs on the body and k = STIFFNESS: f = m (k (target - point) - 2 sqrt(k) velocity).
    """
    point = data.xpos[grip.body] + data.xmat[grip.body] @ grip.point
    arm = point - data.xipos[grip.body]
    motion = object_velocity(model, data, ObjType.BODY, grip.body)
    velocity = motion[3:] + cross(motion[:3], arm)
    mass = model.body_subtreemass[grip.body] * (grip.body > 0)
    force = mass * (STIFFNESS * (grip.target - point) - 2 * STIFFNESS**0.5 * velocity)
    return jnp.zeros((model.nbody, 6), point.dtype).at[grip.body].set(jnp.concatenate([force, cross(arm, force)]))

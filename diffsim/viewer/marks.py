"""The marks of a live view: contact forces, frames of bodies, and the spring by which the mouse pulls a body."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import ObjType
from diffsim.math.vector import cross
from diffsim.support.contacts import contact_force
from diffsim.support.motion import object_velocity, total_mass
from diffsim.types import Data, Model
from diffsim.viz.scene import Lines, tendon_ids, tendon_lines

# rgba of contact forces: orange
FORCE = (0.95, 0.45, 0.15, 1.0)
# rgba of the spring of the mouse: red
SPRING = (0.95, 0.1, 0.1, 1.0)
# rgba of the x, y and z axes of frames: red, green, blue
AXES = ((0.9, 0.1, 0.1, 1.0), (0.1, 0.8, 0.1, 1.0), (0.1, 0.2, 0.9, 1.0))
# stiffness of the spring per mass, 1/s^2: the body reaches the mouse in about 0.3 s
SPRING_STIFFNESS = 100.0
# radius of lines, in extents of the model
THIN = 0.003
# length of the axes of a frame, in extents of the model
AXIS = 0.05
# length of a force that equals the weight of the model, in extents of the model
WEIGHT = 0.3


class Grip(NamedTuple):
    """A body that the mouse pulls (mjvPerturb).

    Attributes:
      body: () its index; 0 for none.
      point: (3,) m, the point of the body at which it is pulled, in the body frame.
      target: (3,) m, the point to which it is pulled, in the world frame.
    """

    body: Array
    point: Array
    target: Array


class Shown(NamedTuple):
    """Which marks are drawn."""

    forces: Array
    frames: Array


def colours_of_marks(model: Model, count: int) -> np.ndarray:
    """rgba (count, 4) of the lines of `marks` after the tendons."""
    axes = [*AXES] * (model.nbody - 1)
    return np.asarray([FORCE] * (count - len(axes) - 1) + axes + [SPRING])


def marks(model: Model, data: Data, grip: Grip, shown: Shown) -> Lines:
    """The lines of one world: tendons, contact forces on the second geoms, frames of bodies, and the spring.

    The number of lines is static, so lines that are not drawn have radius -1.
    """
    extent = model.stat.extent
    thin = THIN * extent

    # contact forces in the world frame; those below 0.1% of the weight are not drawn
    force = jnp.einsum("ci,cij->cj", contact_force(model, data)[:, :3], data.contact.frame)
    weight = total_mass(model) * jnp.linalg.norm(model.opt.gravity) + 1e-9
    drawn = shown.forces & (jnp.linalg.norm(force, axis=-1) > 1e-3 * weight)
    pos = data.contact.pos
    forces = Lines(pos, pos + WEIGHT * extent / weight * force, jnp.where(drawn, thin, -1))

    # three axes for each body: the columns of xmat
    start = jnp.repeat(data.xpos[1:], 3, axis=0)
    end = start + AXIS * extent * jnp.swapaxes(data.xmat[1:], -1, -2).reshape(-1, 3)
    frames = Lines(start, end, jnp.full(len(start), jnp.where(shown.frames, thin, -1)))

    point = data.xpos[grip.body] + data.xmat[grip.body] @ grip.point
    spring = Lines(point[None], grip.target[None], jnp.where(grip.body > 0, thin, -1)[None])
    parts = [tendon_lines(model, data)] if len(tendon_ids(model)) else []
    return Lines(*(jnp.concatenate(columns) for columns in zip(*parts, forces, frames, spring, strict=True)))


def pull(model: Model, data: Data, grip: Grip) -> Array:
    """xfrc_applied (nbody, 6), N and N m, of a damped spring from the point of a body to its target.

    The spring is critically damped: f = m (k (target - point) - 2 sqrt(k) velocity), where k is SPRING_STIFFNESS and m
    is the mass of the body's subtree. The force acts at the point, so its torque about xipos is arm x f.
    """
    point = data.xpos[grip.body] + data.xmat[grip.body] @ grip.point
    arm = point - data.xipos[grip.body]
    motion = object_velocity(model, data, ObjType.BODY, grip.body)
    velocity = motion[3:] + cross(motion[:3], arm)
    mass = model.body_subtreemass[grip.body] * (grip.body > 0)
    force = mass * (SPRING_STIFFNESS * (grip.target - point) - 2 * SPRING_STIFFNESS**0.5 * velocity)
    return jnp.zeros((model.nbody, 6), point.dtype).at[grip.body].set(jnp.concatenate([force, cross(arm, force)]))

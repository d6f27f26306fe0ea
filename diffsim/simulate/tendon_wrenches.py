"""Forces and torques of spatial tendons on bodies. The sensors `force` and `torque` include them since MuJoCo 3.14.

The pull of a tendon is the sum of everything that acts along it: springs, dampers, actuators, armature, limits, dry
friction and equalities. Each part of its path pulls on the bodies at its ends, and on the geom that it goes around.
"""

import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import TrnType
from diffsim.constraint import tendon_tensions
from diffsim.dynamics.inertia import has_reflected, reflected
from diffsim.dynamics.passive import has_tendon_dampers, has_tendon_springs, tendon_dampers, tendon_springs
from diffsim.kinematics.tendon import Path, inverse_divisors, spatial_paths, tendon_drift, touches
from diffsim.math import safe
from diffsim.math.spatial import spatial_vector
from diffsim.math.vector import cross, matmul, scale
from diffsim.types.constraints import Constraints
from diffsim.types.data import Actuation, ComFrame, Kinematics, Solution, Tendons, Velocities
from diffsim.types.model import Model
from diffsim.xla.gather import pick


def tendon_wrenches(
    model: Model,
    qvel: Array,
    kinematics: Kinematics,
    com: ComFrame,
    tendons: Tendons,
    velocities: Velocities,
    actuation: Actuation,
    constraints: Constraints,
    solution: Solution,
) -> Array | None:
    """(nbody, 6) torque (N m) and force (N) of spatial tendons on each body, about its tree's centre of mass.

    None for models without spatial tendons, or with the semantics of an earlier MuJoCo. Arguments are the results of
    the stages, and qvel (nv,).
    """
    if not spatial_paths(model.topology) or not model.opt.follows("tendon_wrenches"):
        return None
    pull = tendon_tensions(model, tendons, constraints, solution.row_force)
    if has_tendon_springs(model):
        pull = pull + tendon_springs(model, tendons)
    if has_tendon_dampers(model):
        pull = pull + tendon_dampers(model, velocities)
    actuators = np.flatnonzero(model.topology.actuator_trntype == TrnType.TENDON)
    if actuators.size:
        force = model.actuator_gear[actuators, 0] * actuation.actuator_force[actuators]
        pull = pull.at[model.topology.actuator_trnid[actuators, 0]].add(force)
    if has_reflected(model.topology, "tendon_armature"):
        # the inertia of a tendon resists the acceleration of its length
        rate = matmul(tendons.ten_J, solution.qacc) + tendon_drift(model, qvel, kinematics, com, velocities)
        pull = pull - reflected(model, "tendon_armature") * rate
    centre = pick(com.subtree_com, model.topology.body_rootid)
    total = jnp.zeros((model.nbody, 6), pull.dtype)
    for path in spatial_paths(model.topology):
        for body, point, force in _pulls(model, kinematics, path, pull):
            owner = jnp.asarray(np.arange(model.nbody)[:, None] == body[None], pull.dtype)
            total = total + matmul(owner, spatial_vector(cross(point - centre[body], force), force))
    return total


def _pulls(model: Model, kinematics: Kinematics, path: Path, pull: Array) -> list[tuple[np.ndarray, Array, Array]]:
    """Bodies (n,), points (n, 3) and forces (n, 3) of the parts of paths, given the pull (ntendon,) of each tendon.

    A positive pull lengthens the tendon. A part that does not touch its geom pulls on the geom twice, in opposite
    directions along one line.
    """
    topology = model.topology
    force = pull[path.tendon] * inverse_divisors(model, path)
    start, end = kinematics.site_xpos[path.first], kinematics.site_xpos[path.last]
    near, far = end, start
    if path.geom is not None:
        touch = touches(model, kinematics, path)
        active = touch.active[:, None]
        near, far = jnp.where(active, touch.first, end), jnp.where(active, touch.last, start)
    on_first, on_last = scale(safe.normalize(start - near), force), scale(safe.normalize(end - far), force)
    pulls = [(topology.site_bodyid[path.first], start, on_first), (topology.site_bodyid[path.last], end, on_last)]
    if path.geom is not None:
        geom = topology.geom_bodyid[path.geom]
        pulls += [(geom, near, -on_first), (geom, far, -on_last)]
    return pulls

"""Cables: chains of bodies with stiffness in bending and torsion, as in MuJoCo's plugin `mujoco.elasticity.cable`.

A ball joint, the last joint of its body, connects each body to the previous one in the chain. Let q be the orientation
of a body in the frame of the previous body. The rotation vector omega = 2 log q measures how the cable bends and twists
between the two. With omega0 at rest, L the distance between the bodies and the stiffness k = (J G, Iy E, Iz E), the
torque on the body, in the frame of the previous body, is

    tau = -k (omega - omega0) / L.

The opposite torque acts on the previous body. Therefore the generalized force is q^-1 tau on the dofs of the ball
joint, and zero on all others. J is the torsion constant of the cross section, Iy and Iz are its second moments of area,
G and E are the settings `twist` and `bend` (Pa).
Source: plugin/elasticity/cable.cc (3.8.1).
"""

from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import GeomType
from diffsim.math.rotation import quat_mul, quat_to_vel, rotate_inv
from diffsim.math.safe import divide
from diffsim.types.hooks import check_settings
from diffsim.types.model import Model
from diffsim.types.topology import Topology, per_topology
from diffsim.xla.gather import pick, place

# name of the plugin
NAME = "mujoco.elasticity.cable"
# its settings; vmax is only for pictures
SETTINGS = ("twist", "bend", "flat", "vmax")


def no_cables() -> dict[str, np.ndarray | int]:
    """The fields of a model without cables."""
    return {
        "ncable": 0,
        "cable_bodyid": np.zeros(0, int),
        "cable_length": np.zeros(0),
        "cable_stiffness": np.zeros((0, 3)),
        "cable_curvature": np.zeros((0, 3)),
    }


def moduli(settings: Mapping[str, str]) -> tuple[float, float]:
    """The shear modulus and Young's modulus (Pa) that the plugin's settings give.

    Raises:
      ValueError: a setting is unknown, or its value is not a number.
    """
    check_settings(settings, SETTINGS)
    values = []
    for key in ("twist", "bend"):
        try:
            values.append(float(settings.get(key) or 0))
        except ValueError:
            raise ValueError(f"setting '{key}' is not a number: {settings[key]!r}") from None
    return values[0], values[1]


def section(kind: int, size: np.ndarray) -> np.ndarray:
    """(3,) m^4, torsion constant and second moments of area about y and z of a geom's cross section normal to x.

    Capsules and cylinders are circles; boxes are rectangles. Other geom types have no stiffness.
    """
    if kind in (GeomType.CAPSULE, GeomType.CYLINDER):
        return np.pi * size[0] ** 4 * np.array([0.5, 0.25, 0.25])
    if kind != GeomType.BOX:
        return np.zeros(3)
    high, wide = float(size[1]), float(size[2])
    # a rectangle with half sides a >= b: Roark's formula for the torsion constant, as in MuJoCo
    a, b = max(high, wide), min(high, wide)
    torsion = a * b**3 * (16 / 3 - 3.36 * b / a * (1 - (b / a) ** 4 / 12))
    return np.array([torsion, (2 * wide) ** 3 * 2 * high / 12, (2 * high) ** 3 * 2 * wide / 12])


@per_topology
def ball_places(topology: Topology) -> tuple[np.ndarray, np.ndarray]:
    """Dofs (ncable, 3) and qpos indices (ncable, 4) of the ball joints.

    As in MuJoCo, these are the last three dofs of each body, regardless of the joints before them.
    """
    body = topology.cable_bodyid
    dofs = (topology.body_dofadr[body] + topology.body_dofnum[body] - 3)[:, None] + np.arange(3)
    qpos = topology.jnt_qposadr[topology.body_jntadr[body]] + topology.body_dofnum[body] - 3
    return dofs, qpos[:, None] + np.arange(4)


def cable_force(model: Model, qpos: Array) -> Array:
    """(nv,) generalized force of all cables, N m."""
    topology = model.topology
    if not topology.ncable:
        return jnp.zeros((model.nv,), qpos.dtype)
    dofs, places = ball_places(topology)
    turn = quat_mul(pick(model.body_quat, topology.cable_bodyid), pick(qpos, places))
    bend = quat_to_vel(turn, 1.0) - model.cable_curvature
    torque = -model.cable_stiffness * divide(bend, jnp.broadcast_to(model.cable_length[:, None], bend.shape))
    return place(model.nv, dofs.ravel(), rotate_inv(turn, torque).reshape(-1))

"""Cables: chains of bodies that bend and twist against each other, MuJoCo's plugin `mujoco.elasticity.cable`.

A body hangs on the one before it by a ball joint, last of its joints. q takes its frame to that of the other, and the
rotation vector omega = 2 log q tells how the cable is curved there. With omega0 at rest, L the distance of the bodies
and stiffness k = (J G, Iy E, Iz E) the torque on the body is, in the frame of the other,

    tau = -k (omega - omega0) / L,

and the opposite one on the other body, so that the joint feels q^-1 tau, and no other joint feels anything. J is the
torsion constant of the section, Iy and Iz its second moments of area, G and E the settings `twist` and `bend` (Pa).
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

NAME = "mujoco.elasticity.cable"
SETTINGS = ("twist", "bend", "flat", "vmax")


def no_cables() -> dict[str, np.ndarray | int]:
    """The fields of a model without cables."""
    none = {"cable_bodyid": np.zeros(0, int), "cable_length": np.zeros(0), "ncable": 0}
    return none | {"cable_stiffness": np.zeros((0, 3)), "cable_curvature": np.zeros((0, 3))}


def moduli(settings: Mapping[str, str]) -> tuple[float, float]:
    """The shear and Young's modulus, Pa, of the plugin's settings.

    Raises:
      ValueError: a setting that the plugin has not, or no number.
    """
    check_settings(settings, SETTINGS)
    values = []
    for key in ("twist", "bend"):
        try:
            values.append(float(settings.get(key) or 0))
        except ValueError:
            raise ValueError(f"setting '{key}' is no number: {settings[key]!r}") from None
    return values[0], values[1]


def section(kind: int, size: np.ndarray) -> np.ndarray:
    """(3,) m^4: torsion constant, second moments about y and z of a capsule, cylinder or box along x; else zero."""
    if kind in (GeomType.CAPSULE, GeomType.CYLINDER):
        return np.pi * size[0] ** 4 * np.array([0.5, 0.25, 0.25])
    if kind != GeomType.BOX:
        return np.zeros(3)
    high, wide = float(size[1]), float(size[2])
    a, b = max(high, wide), min(high, wide)
    torsion = a * b**3 * (16 / 3 - 3.36 * b / a * (1 - (b / a) ** 4 / 12))
    return np.array([torsion, (2 * wide) ** 3 * 2 * high / 12, (2 * high) ** 3 * 2 * wide / 12])


@per_topology
def ball_places(topology: Topology) -> tuple[np.ndarray, np.ndarray]:
    """Dofs (ncable, 3) and places in qpos (ncable, 4) of the joints: the last three dofs of a body, as in MuJoCo."""
    body = topology.cable_bodyid
    dofs = (topology.body_dofadr[body] + topology.body_dofnum[body] - 3)[:, None] + np.arange(3)
    qpos = topology.jnt_qposadr[topology.body_jntadr[body]] + topology.body_dofnum[body] - 3
    return dofs, qpos[:, None] + np.arange(4)


def cable_force(model: Model, qpos: Array) -> Array:
    """(nv,) N m, of all cables."""
    topology = model.topology
    if not topology.ncable:
        return jnp.zeros((model.nv,), qpos.dtype)
    dofs, places = ball_places(topology)
    turn = quat_mul(pick(model.body_quat, topology.cable_bodyid), pick(qpos, places))
    bend = quat_to_vel(turn, 1.0) - model.cable_curvature
    torque = -model.cable_stiffness * divide(bend, jnp.broadcast_to(model.cable_length[:, None], bend.shape))
    return place(model.nv, dofs.ravel(), rotate_inv(turn, torque).reshape(-1))

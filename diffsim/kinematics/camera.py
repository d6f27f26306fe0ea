"""Poses of cameras and lights: fixed to a body, tracking it, or looking at another body.

Part of kinematics; the modes that need a subtree's centre of mass compute it here, so that models without them pay
nothing. Source: MuJoCo XML reference, attribute `mode` of `camera`.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.enums import CamLightMode
from diffsim.kinematics.com import subtree_com
from diffsim.math import safe
from diffsim.math.rotation import quat_normalize, quat_to_mat
from diffsim.math.vector import cross, mul_mat, mul_vec, transpose
from diffsim.types.model import Model
from diffsim.types.topology import Topology, per_topology

Array = jax.Array


@dataclasses.dataclass(frozen=True)
class Modes:
    """Which objects track (keep their orientation) or look at a target, and of which of these by centre of mass."""

    track: np.ndarray
    target: np.ndarray
    by_com: np.ndarray
    targets: np.ndarray

    @property
    def fixed(self) -> bool:
        """Whether every object is simply fixed to its body."""
        return not (np.any(self.track) or np.any(self.target))


def _modes(mode: np.ndarray, target_body: np.ndarray) -> Modes:
    aims = np.isin(mode, (CamLightMode.TARGETBODY, CamLightMode.TARGETBODYCOM)) & (target_body >= 0)
    return Modes(
        track=np.isin(mode, (CamLightMode.TRACK, CamLightMode.TRACKCOM)),
        target=aims,
        by_com=np.isin(mode, (CamLightMode.TRACKCOM, CamLightMode.TARGETBODYCOM)),
        targets=np.maximum(target_body, 0),
    )


@per_topology
def camera_modes(topology: Topology) -> Modes:
    """Modes of the cameras."""
    return _modes(topology.cam_mode, topology.cam_targetbodyid)


@per_topology
def light_modes(topology: Topology) -> Modes:
    """Modes of the lights."""
    return _modes(topology.light_mode, topology.light_targetbodyid)


def cameras_and_lights(model: Model, xpos: Array, xmat: Array, xipos: Array) -> dict[str, Array]:
    """World poses from those of bodies: cam_xpos, light_xpos (n, 3) m, cam_xmat (n, 3, 3), unit light_xdir (n, 3)."""
    topology = model.topology
    cameras, lights = camera_modes(topology), light_modes(topology)
    centre = subtree_com(model, xipos) if np.any(cameras.by_com) or np.any(lights.by_com) else xpos

    body = topology.cam_bodyid
    cam_pos = xpos[body] + mul_vec(xmat[body], model.cam_pos)
    cam_mat = mul_mat(xmat[body], quat_to_mat(quat_normalize(model.cam_quat)))
    if not cameras.fixed:
        initial = model.cam_mat0.reshape(-1, 3, 3)
        tracked = _tracked(cameras, body, (xpos, model.cam_pos0), (centre, model.cam_poscom0))
        cam_pos = jnp.where(cameras.track[:, None], tracked, cam_pos)
        cam_mat = jnp.where(cameras.track[:, None, None], initial, cam_mat)
        aimed = _look_at(cam_pos, _targets(cameras, xpos, centre))
        cam_mat = jnp.where(cameras.target[:, None, None], aimed, cam_mat)

    body = topology.light_bodyid
    light_pos = xpos[body] + mul_vec(xmat[body], model.light_pos)
    light_dir = mul_vec(xmat[body], model.light_dir)
    if not lights.fixed:
        tracked = _tracked(lights, body, (xpos, model.light_pos0), (centre, model.light_poscom0))
        light_pos = jnp.where(lights.track[:, None], tracked, light_pos)
        light_dir = jnp.where(lights.track[:, None], model.light_dir0, light_dir)
        light_dir = jnp.where(lights.target[:, None], _targets(lights, xpos, centre) - light_pos, light_dir)
    return {
        "cam_xpos": cam_pos,
        "cam_xmat": cam_mat,
        "light_xpos": light_pos,
        "light_xdir": safe.normalize(light_dir),
    }


def _tracked(modes: Modes, body: np.ndarray, by_body: tuple[Array, Array], by_com: tuple[Array, Array]) -> Array:
    """(n, 3) m, where tracking objects are: body (or subtree) positions plus constant offsets in the world."""
    positions, offset = by_body
    centres, offset_com = by_com
    return jnp.where(modes.by_com[:, None], centres[body] + offset_com, positions[body] + offset)


def _targets(modes: Modes, xpos: Array, centre: Array) -> Array:
    """The points (n, 3) that objects look at."""
    return jnp.where(modes.by_com[:, None], centre[modes.targets], xpos[modes.targets])


def _look_at(pos: Array, target: Array) -> Array:
    """Orientation (n, 3, 3), local to world, of cameras that look along -z at targets, with a horizontal x axis."""
    z = safe.normalize(pos - target)
    up = jnp.broadcast_to(jnp.array([0, 0, 1], dtype=pos.dtype)[None], z.shape)
    x = safe.normalize(cross(up, z))
    y = safe.normalize(cross(z, x))
    return transpose(jnp.stack([x, y, z], axis=-2))

"""World poses of cameras and lights, which are fixed to a body, track it, or look at a body.

Source: MuJoCo XML reference, attribute `mode` of `camera`; mj_camlight.
"""

import dataclasses

import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import CamLightMode
from diffsim.kinematics.com import subtree_com
from diffsim.math import safe
from diffsim.math.rotation import quat_normalize, quat_to_mat
from diffsim.math.vector import cross, mul_mat, mul_vec, transpose
from diffsim.types.model import Model
from diffsim.xla.gather import rows_at


@dataclasses.dataclass(frozen=True)
class Modes:
    """How n cameras or lights follow bodies (mjtCamLight).

    Attributes:
      track: (n,) whether its orientation, and its offset from the body, are constant in the world.
      target: (n,) whether it looks at a body.
      by_com: (n,) whether it follows the centre of mass of the subtree instead of the body.
      targets: (n,) the body that it looks at; 0 for none.
    """

    track: np.ndarray
    target: np.ndarray
    by_com: np.ndarray
    targets: np.ndarray

    @property
    def fixed(self) -> bool:
        """Whether every camera or light is simply fixed to its body."""
        return not (np.any(self.track) or np.any(self.target))


def _modes(mode: np.ndarray, target_body: np.ndarray) -> Modes:
    """The modes of cameras or lights, from `cam_mode` or `light_mode` (n,) and the ids (n,) of their targets."""
    aims = np.isin(mode, (CamLightMode.TARGETBODY, CamLightMode.TARGETBODYCOM)) & (target_body >= 0)
    return Modes(
        track=np.isin(mode, (CamLightMode.TRACK, CamLightMode.TRACKCOM)),
        target=aims,
        by_com=np.isin(mode, (CamLightMode.TRACKCOM, CamLightMode.TARGETBODYCOM)),
        targets=np.maximum(target_body, 0),
    )


def cameras_and_lights(model: Model, xpos: Array, xmat: Array, xipos: Array) -> dict[str, Array]:
    """World poses of cameras and lights: cam_xpos, light_xpos (n, 3) m, cam_xmat (n, 3, 3), unit light_xdir (n, 3)."""
    topology = model.topology
    cameras = _modes(topology.cam_mode, topology.cam_targetbodyid)
    lights = _modes(topology.light_mode, topology.light_targetbodyid)
    centre = subtree_com(model, xipos) if np.any(cameras.by_com) or np.any(lights.by_com) else xpos

    body = topology.cam_bodyid
    cam_pos = rows_at(xpos, body) + mul_vec(rows_at(xmat, body), model.cam_pos)
    cam_mat = mul_mat(rows_at(xmat, body), quat_to_mat(quat_normalize(model.cam_quat)))
    # cameras that track keep a constant offset, in the world, from the body or from the centre of mass of its subtree
    if not cameras.fixed:
        initial = model.cam_mat0.reshape(-1, 3, 3)
        tracked = jnp.where(cameras.by_com[:, None], centre[body] + model.cam_poscom0, xpos[body] + model.cam_pos0)
        cam_pos = jnp.where(cameras.track[:, None], tracked, cam_pos)
        cam_mat = jnp.where(cameras.track[:, None, None], initial, cam_mat)
        aimed = _look_at(cam_pos, _targets(cameras, xpos, centre))
        cam_mat = jnp.where(cameras.target[:, None, None], aimed, cam_mat)

    body = topology.light_bodyid
    light_pos = rows_at(xpos, body) + mul_vec(rows_at(xmat, body), model.light_pos)
    light_dir = mul_vec(rows_at(xmat, body), model.light_dir)
    if not lights.fixed:
        tracked = jnp.where(lights.by_com[:, None], centre[body] + model.light_poscom0, xpos[body] + model.light_pos0)
        light_pos = jnp.where(lights.track[:, None], tracked, light_pos)
        light_dir = jnp.where(lights.track[:, None], model.light_dir0, light_dir)
        light_dir = jnp.where(lights.target[:, None], _targets(lights, xpos, centre) - light_pos, light_dir)
    return {
        "cam_xpos": cam_pos,
        "cam_xmat": cam_mat,
        "light_xpos": light_pos,
        "light_xdir": safe.normalize(light_dir),
    }


def _targets(modes: Modes, xpos: Array, centre: Array) -> Array:
    """(n, 3) the points that cameras or lights look at."""
    return jnp.where(modes.by_com[:, None], centre[modes.targets], xpos[modes.targets])


def _look_at(pos: Array, target: Array) -> Array:
    """(n, 3, 3) orientations, local to world, of cameras that look along -z at targets, with a horizontal x axis."""
    z = safe.normalize(pos - target)
    up = jnp.broadcast_to(jnp.array([0, 0, 1], dtype=pos.dtype)[None], z.shape)
    x = safe.normalize(cross(up, z))
    y = safe.normalize(cross(z, x))
    return transpose(jnp.stack([x, y, z], axis=-2))

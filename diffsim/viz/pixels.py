"""pixels: what a camera sees, as arrays of a pure function: colours, depths, and which object each pixel shows.

The picture is that of `render`: jitted with what uses it, mapped over models and states, differentiated by poses,
sizes, colours and the camera. What a pixel shows, whether it lies in shadow and which texels it covers is discrete: a
derivative tells how colour and depth change on the surface that is seen, and nothing of the moving outlines. Sums over
a picture have no useful derivative where outlines carry them (where an object is, by its silhouette).
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from diffsim.base.enums import ObjType
from diffsim.kinematics.poses import compute_kinematics
from diffsim.math.vector import dot
from diffsim.types import Model, State
from diffsim.types.data import Kinematics
from diffsim.types.state import make_inputs
from diffsim.viz.material import HIDDEN_GROUPS
from diffsim.viz.render import SIDE, Frame, corners, sun_over, through
from diffsim.viz.scene import exact_scene_of, fragments, plan_of, tendon_ids
from diffsim.viz.shade import Light, developed, radiance
from diffsim.viz.surface import first_hits
from diffsim.viz.view import Pose, View, pose


class Pixels(NamedTuple):
    """A picture of `height` rows from the top and `width` columns.

    Attributes:
      rgb: (height, width, 3) colours as on a screen, in [0, 1].
      depth: (height, width) m along the camera's axis; infinite where nothing is seen.
      segmentation: (height, width, 2) int32, id and type (geom, tendon or flex) of what is seen; -1 for nothing.
    """

    rgb: Array
    depth: Array
    segmentation: Array


def pixels(
    model: Model,
    state: State | Kinematics,
    camera: Pose | View | str | int,
    size: tuple[int, int] = (64, 64),
    samples: int = 1,
    hidden_groups: Sequence[int] = HIDDEN_GROUPS,
) -> Pixels:
    """What a camera sees. Pure: to be used within jit, vmap and grad; one state, and no batch axes of its own.

    Args:
      model: the model. Where it is traced, as under a vmap over models, colours may change and alphas may become 0.
      state: a state, whose mocap bodies are where the model has them, or poses that follow from one (`Data`).
      camera: the name or index of a camera of the model, a `Pose`, or a `View` with numbers for distance and lookat.
      size: width and height in pixels.
      samples: samples along each edge of a pixel; depth and segmentation are those of the middle one.
      hidden_groups: geom groups that are not drawn.

    Returns:
      Pixels.

    Raises:
      ValueError: a view has no distance, follows a body or has no point that it looks at.
    """
    if isinstance(camera, View) and (camera.lookat is None or camera.distance is None or camera.follow is not None):
        raise ValueError("a View of pixels takes numbers for lookat and distance, and follows no body: give a Pose")
    inputs = make_inputs(model)
    if isinstance(state, Kinematics):
        poses = state
    else:
        poses = compute_kinematics(model, state.qpos, inputs.mocap_pos, inputs.mocap_quat)
    eye, plan, frame = camera, plan_of(model, hidden_groups), Frame(*size, samples)
    if not isinstance(eye, Pose):
        eye = pose(model, poses, eye)
    eye = Pose(*(jnp.asarray(number, poses.geom_xpos.dtype) for number in eye))
    matrix = jnp.asarray(eye.matrix)
    scene, (across, down) = exact_scene_of(model, plan, poses), frame.squares
    corner = corners(frame, jnp.arange(across * down, dtype=jnp.int32)).astype(eye.matrix.dtype)
    offsets, angle = frame.offsets, frame.angle(eye)

    def seen(offset: Array) -> tuple[Array, Array, Array]:
        rays = through(eye, frame, corner, offset)
        hits = first_hits(scene, plan.groups, rays)
        colour = radiance(scene, plan, rays, hits, Light(sun_over(matrix, offset), angle))
        forward = -dot(rays.direction, jnp.broadcast_to(eye.matrix[:, 2], rays.direction.shape))
        return colour, jnp.where(hits.thing >= 0, hits.distance * forward, jnp.inf), hits.thing

    colours, depths, things = zip(*(seen(jnp.asarray(offset, angle.dtype)) for offset in offsets), strict=True)
    rgb = developed(jnp.mean(jnp.stack(colours), axis=0))
    middle = len(offsets) // 2
    # rows of id and type, of nothing first
    rows = [(geom, ObjType.GEOM) for geom in plan.geoms]
    rows += [(tendon, ObjType.TENDON) for tendon in tendon_ids(model)[list(plan.pieces)].tolist()]
    soft = fragments(model.topology, plan.flexes)
    rows += [(part.flex, ObjType.FLEX) for part in soft for _ in part.vertex]
    names = jnp.asarray([(-1, -1), *(rows[place] for place in plan.order)], jnp.int32)
    shown = _image(frame, names[things[middle] + 1])
    return Pixels(_image(frame, rgb), _image(frame, depths[middle]), shown)


def _image(frame: Frame, bundles: Array) -> Array:
    """(height, width, ...) of values (b, l, ...) of all bundles."""
    across, down = frame.squares
    rest = bundles.shape[2:]
    rows = bundles.reshape(down, across, SIDE, SIDE, *rest).swapaxes(1, 2)
    return rows.reshape(down * SIDE, across * SIDE, *rest)[: frame.height, : frame.width]

"""render: a picture of a model in a state, by casting rays; runs on any device that JAX has.

Rows of pixels are computed in chunks, so that memory stays small; several samples per pixel smooth the edges, and
each sample has its own direction to the light, so that shadows are soft.
"""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.checked import checked
from diffsim.geometry import ray
from diffsim.types import Model, State
from diffsim.types.data import Kinematics
from diffsim.viz.poses import poses_of
from diffsim.viz.shade import Scene, radiance
from diffsim.viz.view import Pose, View, directions, pose

Array = jax.Array

# rays that are traced at once
CHUNK = 1 << 15
# towards the sun, relative to the camera's azimuth: from behind the left shoulder
SUN = (-0.5, 0.95, 0.45)
SOFTNESS = 0.012
HIDDEN_GROUPS = (3, 4, 5)


@checked
def render(
    model: Model,
    state: State | Kinematics,
    camera: View | str | int | None = None,
    size: tuple[int, int] = (960, 540),
    samples: int = 2,
    hidden_groups: Sequence[int] = HIDDEN_GROUPS,
) -> np.ndarray:
    """A picture of a model.

    Args:
      model: the model.
      state: one state, or poses that follow from one (`Data`, or of `viz.poses_of`).
      camera: a `View`, or the name or index of a camera of the model; None for a view of the whole model.
      size: width and height in pixels.
      samples: samples along each edge of a pixel; 1 is fast, 2 or 3 are smooth.
      hidden_groups: geom groups that are not drawn.

    Returns:
      uint8 image (height, width, 3), sRGB.
    """
    poses = state if isinstance(state, Kinematics) else poses_of(model, state)
    return picture(scene_of(model, poses, hidden_groups), pose(model, poses, camera), size, samples)


def picture(scene: Scene, eye: Pose, size: tuple[int, int], samples: int) -> np.ndarray:
    """uint8 image (height, width, 3) of a scene; compiled once for all poses of a model."""
    eye = jax.tree.map(lambda number: np.asarray(number, np.float32), eye)
    return np.asarray(_picture(scene, eye, size, samples))


def scene_of(model: Model, poses: Kinematics, hidden_groups: Sequence[int] = HIDDEN_GROUPS) -> Scene:
    """What is to be seen of a model, in float32, colours made linear."""
    model = jax.tree.map(lambda x: x.astype(np.float32) if jnp.issubdtype(x.dtype, jnp.floating) else x, model)
    rgba = np.asarray(ray.rgba(model))
    shown = (rgba[:, 3] > 0) & ~np.isin(model.topology.geom_group, hidden_groups)
    extent = float(model.stat.extent)
    return Scene(
        model=model,
        xpos=jnp.asarray(poses.geom_xpos, np.float32),
        xmat=jnp.asarray(poses.geom_xmat, np.float32),
        colour=jnp.asarray(rgba[:, :3] ** 2.2, np.float32),
        shown=jnp.asarray(shown),
        tile=jnp.asarray(tile_size(extent), np.float32),
        fade=jnp.asarray(8 * extent, np.float32),
    )


def tile_size(extent: float) -> float:
    """Side of a floor's tiles, m: the largest of 1, 2, 5, 10 ... that is not above a fifth of a model's extent."""
    length = extent / 5
    power = 10.0 ** np.floor(np.log10(max(length, 1e-6)))
    return float(power * max(step for step in (1, 2, 5) if step * power <= length * 1.0001))


@functools.partial(jax.jit, static_argnums=(2, 3))
def _picture(scene: Scene, eye: Pose, size: tuple[int, int], samples: int) -> Array:
    """uint8 image (height, width, 3)."""
    width, height = size
    offsets = [((i + 0.5) / samples, (j + 0.5) / samples) for i in range(samples) for j in range(samples)]
    rows = max(1, min(height, CHUNK // width))
    chunks = -(-height // rows)

    def chunk(first_row: Array) -> Array:
        column, row = jnp.meshgrid(jnp.arange(width), jnp.arange(rows))
        corner = jnp.stack([column.ravel(), row.ravel() + first_row], axis=-1).astype(jnp.float32)

        def sample(total: Array, offset: Array) -> tuple[Array, None]:
            along = directions(eye, corner + offset[None], width, height)
            origin = jnp.broadcast_to(jnp.asarray(eye.position)[None], along.shape)
            return total + radiance(scene, origin, along, _sun(jnp.asarray(eye.matrix), offset)), None

        start = jnp.zeros((rows * width, 3), jnp.float32)
        total, _ = jax.lax.scan(sample, start, jnp.asarray(offsets, jnp.float32))
        return _encode(total / len(offsets))

    pixels = jax.lax.map(chunk, rows * jnp.arange(chunks))
    return pixels.reshape(chunks * rows, width, 3)[:height]


def _sun(matrix: Array, offset: Array) -> Array:
    """Unit direction to the light for one sample; the light turns with the camera's azimuth."""
    right = matrix[:, 0]
    level = jnp.sqrt(right[0] ** 2 + right[1] ** 2 + 1e-12)
    side, back = right[:2] / level, jnp.stack([right[1], -right[0]]) / level
    # spread over the disc of the sun
    shift = SOFTNESS * (2 * offset - 1)
    flat = side * (SUN[0] + shift[0]) + back * (SUN[2] + shift[1])
    towards = jnp.stack([flat[0], flat[1], jnp.asarray(SUN[1], flat.dtype)])
    return towards / jnp.sqrt(jnp.sum(towards * towards))


def _encode(linear: Array) -> Array:
    """Filmic shoulder and sRGB gamma, to bytes."""
    bright = jnp.clip(linear, 0, None)
    curved = bright * (1 + bright / 9) / (1 + 0.55 * bright)
    return jnp.round(255 * jnp.clip(curved, 0, 1) ** (1 / 2.2)).astype(jnp.uint8)

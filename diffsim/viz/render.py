"""render and pixels: pictures of a model in a state by ray casting, on any device that JAX supports.

The rays of a square of pixels form a bundle (surface.py). `render` draws the bundles in chunks, so that memory stays
small. Several samples per pixel smooth the edges. Each sample has its own direction to the light, so that shadows are
soft. On a CPU each core draws a share of the bundles.

`pixels` returns the same picture from a pure function that works under jit and under vmap over models and states, and
is differentiable with respect to poses, sizes, colours and the camera. Which object a pixel shows, whether it lies in
shadow and which texels it covers is discrete. So a derivative says how colour and depth change on the visible surface,
but does not see outlines move: a loss that depends on silhouettes has no useful gradient.
"""

import functools
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.checked import checked
from diffsim.base.enums import ObjType
from diffsim.geometry.rays.bundles import BundledRays
from diffsim.geometry.rays.triangle_surfaces import FACETED
from diffsim.kinematics.poses import compute_kinematics
from diffsim.math.vector import dot
from diffsim.types import Model, State
from diffsim.types.data import Kinematics
from diffsim.types.state import make_inputs
from diffsim.viz.lights import SOFTNESS, lights_of, sun_over
from diffsim.viz.material import HIDDEN_GROUPS
from diffsim.viz.scene import Plan, Scene, exact_scene_of, fragments, plan_of, scene_of, tendon_ids
from diffsim.viz.shade import Lighting, developed, radiance
from diffsim.viz.surface import first_hits, trace
from diffsim.viz.view import Pose, View, directions, pose, poses_of

# number of pixels along an edge of a bundle
SIDE = 8
# number of bundles in a chunk, on GPUs and for scenes with meshes: the search is efficient with many rays at once
CHUNK = 4096
# number of bundles in a chunk on a CPU for scenes without meshes: they fit in the cache of a core
CACHED = 256


class Frame(NamedTuple):
    """The static sizes of a picture: width and height in pixels, samples along each edge of a pixel."""

    width: int
    height: int
    samples: int

    @property
    def squares(self) -> tuple[int, int]:
        """Number of bundles across and down."""
        return -(-self.width // SIDE), -(-self.height // SIDE)

    @property
    def offsets(self) -> np.ndarray:
        """Positions (samples^2, 2) of the samples in a pixel, in pixels to the right and down."""
        steps = (np.arange(self.samples) + 0.5) / self.samples
        return np.stack(np.meshgrid(steps, steps, indexing="ij"), axis=-1).reshape(-1, 2)

    def angle(self, eye: Pose) -> Array:
        """The angle that a sample of a pixel spans, rad."""
        return 2 * jnp.tan(jnp.radians(eye.fovy) / 2) / self.height / self.samples


@checked
def render(
    model: Model,
    state: State | Kinematics,
    camera: View | str | int | None = None,
    size: tuple[int, int] = (960, 540),
    samples: int = 2,
    hidden_groups: Sequence[int] = HIDDEN_GROUPS,
) -> np.ndarray:
    """Renders a model in a state, or one picture for each of several states.

    Args:
      model: the model.
      state: a state, or its poses (`Data`, or the result of `viz.poses_of`); or several of them, stacked (T, ...).
      camera: a `View`, or the name or index of a camera of the model; None for a view of the whole model.
      size: width and height in pixels.
      samples: samples along each edge of a pixel; 1 is fast, 2 or 3 are smooth.
      hidden_groups: geom groups that are not drawn. If nothing else of a moving body would be drawn, its colliding
        geoms are drawn even if their group is hidden.

    Returns:
      uint8 image (height, width, 3), sRGB; for several states (T, height, width, 3), drawn by one program.
    """
    poses = state if isinstance(state, Kinematics) else poses_of(model, state)
    plan = plan_of(model, hidden_groups)
    if poses.xpos.ndim == 2:
        views = pose(model, poses, camera)
    else:
        poses = jax.tree.map(np.asarray, poses)
        moments = (jax.tree.map(lambda leaf, k=k: leaf[k], poses) for k in range(len(poses.xpos)))
        views = Pose(*map(np.stack, zip(*(pose(model, moment, camera) for moment in moments), strict=True)))
    return picture(scene_of(model, plan, poses), plan, views, Frame(*size, samples))


def picture(scene: Scene, plan: Plan, eye: Pose, frame: Frame) -> np.ndarray:
    """Draws a uint8 image (height, width, 3) of a scene, or of several; compiled once for all poses of a model."""
    eye = Pose(*(np.asarray(number, np.float32) for number in eye))
    # XLA runs a loop on one core, so on a CPU each core runs the program on its share of the bundles
    shares = (os.cpu_count() or 1) if jax.default_backend() == "cpu" else 1
    # the program depends on these settings of JAX, which each thread has for itself: pass them on to the pool
    wide, device = (getattr(jax.config, name) for name in ("jax_enable_x64", "jax_default_device"))

    def draw(share: int) -> np.ndarray:
        with jax.enable_x64(wide), jax.default_device(device):
            return np.asarray(_bundles(scene, plan, eye, frame, shares, share))

    with ThreadPoolExecutor(shares) as pool:
        bundles = np.stack(list(pool.map(draw, range(shares))), axis=-3)
    # Bundles are numbered row by row over the image, and share s draws the bundles whose number modulo `shares` is s.
    # So (..., chunks, bundles, shares, pixels, 3) flattens to bundles in order; the last ones only fill the last chunk.
    across, down = frame.squares
    moments = bundles.shape[:-5]
    squares = bundles.reshape(*moments, -1, SIDE, SIDE, 3)[..., : across * down, :, :, :]
    rows = squares.reshape(*moments, down, across, SIDE, SIDE, 3).swapaxes(-4, -3)
    return rows.reshape(*moments, down * SIDE, across * SIDE, 3)[..., : frame.height, : frame.width, :]


@functools.partial(jax.jit, static_argnums=(1, 3, 4))
def _bundles(scene: Scene, plan: Plan, eye: Pose, frame: Frame, shares: int, share: int | Array) -> Array:
    """uint8 colours (chunks, bundles, pixels, 3) of the bundles whose number modulo `shares` is `share`.

    For a scene at several moments the result has a leading axis.
    """
    if jnp.ndim(eye.position) == 1:
        return _chunks(scene, plan, eye, frame, shares, share)

    def one(moment: tuple) -> Array:
        places, lamps, eye = moment
        return _chunks(scene._replace(places=places, lamps=lamps), plan, eye, frame, shares, share)

    return jax.lax.map(one, (scene.places, scene.lamps, eye))


def _chunks(scene: Scene, plan: Plan, eye: Pose, frame: Frame, shares: int, share: int | Array) -> Array:
    """`_bundles` for one moment."""
    across, down = frame.squares
    searched = any(group.kind in FACETED for group in plan.groups)
    # as few chunks as possible, of equal size
    chunks = -(-across * down // (shares * (CHUNK if searched or shares == 1 else CACHED)))
    number = -(-across * down // (shares * chunks))
    offsets = frame.offsets
    angle = jnp.asarray(frame.angle(eye), jnp.float32)

    def chunk(first: Array) -> Array:
        """The colours of the bundles of one chunk, averaged over the samples of each pixel."""
        corner = corners(frame, share + shares * (first + jnp.arange(number, dtype=jnp.int32))).astype(jnp.float32)

        def sample(total: Array, offset: Array) -> tuple[Array, None]:
            rays = through(eye, frame, corner, offset)
            light = lighting(scene, plan, jnp.asarray(eye.matrix), offset, angle)
            return total + radiance(scene, plan, rays, trace(scene, plan.groups, rays), light), None

        start = jnp.zeros((*corner.shape[:2], 3), jnp.float32)
        light, _ = jax.lax.scan(sample, start, jnp.asarray(offsets, jnp.float32))
        return jnp.round(255 * developed(light / len(offsets))).astype(jnp.uint8)

    return jax.lax.map(chunk, number * jnp.arange(chunks, dtype=jnp.int32))


def corners(frame: Frame, bundle: Array) -> Array:
    """Columns and rows (b, l, 2) of the l pixels of each of the bundles (b,)."""
    across = frame.squares[0]
    lane = np.arange(SIDE * SIDE)
    start = SIDE * jnp.stack([bundle % across, bundle // across], axis=-1)
    return start[:, None] + np.stack([lane % SIDE, lane // SIDE], axis=-1)[None]


def through(eye: Pose, frame: Frame, corner: Array, offset: Array) -> BundledRays:
    """Rays through one sample of each pixel, at `offset` (2,) from the corners (b, l, 2) of the pixels."""
    places = (corner + offset[None, None]).reshape(-1, 2)
    along = directions(eye, places, frame.width, frame.height).reshape(*corner.shape[:2], 3)
    inside = (corner[..., 0] < frame.width) & (corner[..., 1] < frame.height)
    return BundledRays(jnp.broadcast_to(jnp.asarray(eye.position), along.shape), along, inside)


def lighting(scene: Scene, plan: Plan, matrix: Array, offset: Array, angle: Array) -> Lighting:
    """The lights for one sample of each pixel, at `offset` (2,), for a camera with axes `matrix` (3, 3)."""
    lights = lights_of(scene.model, plan.lights, scene.lamps, matrix) if plan.lights else sun_over(matrix)
    # the samples spread over the discs of the lights, so that their mean has soft shadows
    shift = SOFTNESS * (2 * offset - 1)
    return Lighting(lights, matrix[:, 0] * shift[0] + matrix[:, 1] * shift[1], angle)


class Pixels(NamedTuple):
    """A picture with `height` rows from the top and `width` columns.

    Attributes:
      rgb: (height, width, 3) gamma-encoded colours, in [0, 1].
      depth: (height, width) m along the camera's axis; infinite where there is no object.
      segmentation: (height, width, 2) int32, id and ObjType (geom, tendon or flex) of the object; -1 for none.
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
    """Renders what a camera sees, as a pure function for use inside jit, vmap and grad.

    It takes one state; use vmap for several.

    Args:
      model: the model. If it is traced, as under a vmap over models, colours may vary and alphas may be 0.
      state: a state (mocap bodies are at their poses in the model), or the poses of a state (`Data`).
      camera: the name or index of a camera of the model, a `Pose`, or a `View` with numbers for distance and lookat.
      size: width and height in pixels.
      samples: samples along each edge of a pixel; depth and segmentation are taken from the middle sample.
      hidden_groups: geom groups that are not drawn.

    Returns:
      Pixels.

    Raises:
      ValueError: a `View` has no distance or no lookat, or follows a body.
    """
    if isinstance(camera, View) and (camera.lookat is None or camera.distance is None or camera.follow is not None):
        raise ValueError("a View for pixels takes numbers for lookat and distance, and cannot follow a body: use Pose")
    inputs = make_inputs(model)
    if isinstance(state, Kinematics):
        poses = state
    else:
        poses = compute_kinematics(model, state.qpos, inputs.mocap_pos, inputs.mocap_quat)
    plan = plan_of(model, hidden_groups)
    frame = Frame(*size, samples)
    eye = camera if isinstance(camera, Pose) else pose(model, poses, camera)
    eye = Pose(*(jnp.asarray(number, poses.geom_xpos.dtype) for number in eye))
    matrix = jnp.asarray(eye.matrix)
    scene = exact_scene_of(model, plan, poses)
    across, down = frame.squares
    corner = corners(frame, jnp.arange(across * down, dtype=jnp.int32)).astype(eye.matrix.dtype)
    offsets = frame.offsets
    angle = frame.angle(eye)

    def seen(offset: Array) -> tuple[Array, Array, Array]:
        """Colour, depth and object of one sample of each pixel."""
        rays = through(eye, frame, corner, offset)
        hits = first_hits(scene, plan.groups, rays)
        colour = radiance(scene, plan, rays, hits, lighting(scene, plan, matrix, offset, angle))
        forward = -dot(rays.direction, jnp.broadcast_to(eye.matrix[:, 2], rays.direction.shape))
        return colour, jnp.where(hits.thing >= 0, hits.distance * forward, jnp.inf), hits.thing

    colours, depths, things = zip(*(seen(jnp.asarray(offset, angle.dtype)) for offset in offsets), strict=True)
    rgb = developed(jnp.mean(jnp.stack(colours), axis=0))
    middle = len(offsets) // 2
    # (id, type) of each object in the order of the scene, after a row for rays that hit nothing
    rows = [(geom, ObjType.GEOM) for geom in plan.geoms]
    rows += [(tendon, ObjType.TENDON) for tendon in tendon_ids(model)[list(plan.pieces)].tolist()]
    soft = fragments(model.topology, plan.flexes)
    rows += [(part.flex, ObjType.FLEX) for part in soft for _ in part.vertex]
    names = jnp.asarray([(-1, -1), *(rows[place] for place in plan.order)], jnp.int32)
    shown = _image(frame, names[things[middle] + 1])
    return Pixels(_image(frame, rgb), _image(frame, depths[middle]), shown)


def _image(frame: Frame, bundles: Array) -> Array:
    """Arranges the values (b, l, ...) of all bundles as an image (height, width, ...)."""
    across, down = frame.squares
    rest = bundles.shape[2:]
    rows = bundles.reshape(down, across, SIDE, SIDE, *rest).swapaxes(1, 2)
    return rows.reshape(down * SIDE, across * SIDE, *rest)[: frame.height, : frame.width]

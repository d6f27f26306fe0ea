"""Generated ground for legged robots: tiles of slopes, stairs, rough ground and gaps, harder from row to row.

A height field has a row of tiles for each level and a column for each kind. An episode begins in the middle of a tile,
on a flat platform. The numeric "levels" of the model holds the easiest and the hardest level at which episodes begin:

    env = env.replace(model=set_levels(env.model, 2, 4))

Programs that take the model as an argument are not compiled again for other levels, and worlds may differ in them
(`numeric_data` in `randomize`). The next episode of a world begins a level higher if the robot got to the next tile,
and a level lower if it walked less than half of what was commanded. Sizes of the tiles follow mjlab's terrains, and
so does this curriculum.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.math import safe
from diffsim.mjcf.spec import Spec
from diffsim.support.rays import RayFilter, multi_ray
from diffsim.types import Data, Model

# the group of geoms to which the ground belongs, and nothing else
GROUP = 4
# m, half the width of the flat platform in the middle of a tile
PLATFORM = 1.0
# m, flat border of a tile
BORDER = 0.3
# tangent of the steepest slope
STEEPEST = 0.7
# m, width of a stair, and height of the highest
STAIR = 0.3
HIGHEST = 0.2
# m, amplitude of the roughest ground
ROUGHEST = 0.15
# m, width of the narrowest and the widest gap, and depth of all
NARROWEST = 0.1
WIDEST = 0.5
DEPTH = 0.5
# m, from where rays look down: above all ground
ABOVE = 10.0


def _slope(x: np.ndarray, y: np.ndarray, edge: float, level: float) -> np.ndarray:
    """A pyramid with a flat top."""
    return STEEPEST * level * (edge - np.clip(np.maximum(abs(x), abs(y)), PLATFORM, edge))


def _stairs(x: np.ndarray, y: np.ndarray, edge: float, level: float) -> np.ndarray:
    """Stairs up to a platform."""
    steps = np.floor((edge - np.clip(np.maximum(abs(x), abs(y)), PLATFORM, edge)) / STAIR + 1e-6)
    return HIGHEST * level * steps


def _rough(x: np.ndarray, y: np.ndarray, edge: float, level: float) -> np.ndarray:
    """Bumps of random heights around the platform."""
    far = np.maximum(abs(x), abs(y))
    bumps = np.random.default_rng(0).uniform(0, ROUGHEST * level, x.shape)
    return np.where((far > PLATFORM) & (far < edge), bumps, 0)


def _gaps(x: np.ndarray, y: np.ndarray, edge: float, level: float) -> np.ndarray:
    """A trench around the platform."""
    far = np.maximum(abs(x), abs(y))
    width = NARROWEST + (WIDEST - NARROWEST) * level
    return np.where((far > PLATFORM + STAIR) & (far < PLATFORM + STAIR + width), -DEPTH, 0)


# kind -> heights, m, at (x, y) m from the middle of a tile whose border begins at `edge`, for a level in (0, 1]
KINDS = {"slope": _slope, "stairs": _stairs, "rough": _rough, "gaps": _gaps}


@dataclasses.dataclass(frozen=True)
class Terrain:
    """Generated ground, and the height scan of a robot on it.

    Attributes:
      kinds: keys of `KINDS`, a column of tiles each.
      levels: number of levels.
      size: m, width of a tile.
      resolution: m, width of a cell of the height field.
      reach: m, half the length and half the width of the scan, in the robot's heading.
      spacing: m, between points of the scan.
    """

    kinds: tuple[str, ...] = ("slope", "stairs", "rough", "gaps")
    levels: int = 5
    size: float = 8.0
    resolution: float = 0.1
    reach: tuple[float, float] = (0.8, 0.5)
    spacing: float = 0.2

    @functools.cached_property
    def scan(self) -> np.ndarray:
        """(n, 2) m, the points of the scan in the frame of the root's heading."""
        x, y = (np.linspace(-half, half, round(2 * half / self.spacing) + 1) for half in self.reach)
        return np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1).reshape(-1, 2)

    @functools.cached_property
    def elevation(self) -> np.ndarray:
        """Heights (rows, columns) m of the whole field, with x along the columns."""
        count = round(self.size / self.resolution)
        at = (np.arange(count) + 0.5) * self.resolution - self.size / 2
        x, y = np.meshgrid(at, at)
        edge = self.size / 2 - BORDER
        levels = (np.arange(self.levels) + 1) / self.levels
        return np.block([[KINDS[kind](x, y, edge, level) for level in levels] for kind in self.kinds])

    @functools.cached_property
    def middles(self) -> np.ndarray:
        """(kinds, levels, 3) m, the middles of the platforms."""
        count = round(self.size / self.resolution)
        x, y = ((np.arange(n) - (n - 1) / 2) * self.size for n in (self.levels, len(self.kinds)))
        places = np.stack(np.meshgrid(x, y), axis=-1)
        heights = self.elevation[count // 2 :: count, count // 2 :: count]
        return np.concatenate([places, heights[..., None]], axis=-1)

    def add(self, spec: Spec) -> None:
        """Adds the geom "ground" and the numeric "levels" to a model."""
        heights = self.elevation
        lowest = heights.min()
        rise = np.ptp(heights)
        rows, columns = heights.shape
        # the outermost heights are half a cell inside of their tiles
        half = [0.5 * self.resolution * (number - 1) for number in (columns, rows)]
        # MJCF begins with the row at the largest y
        elevation = (heights[::-1] - lowest) / rise
        spec.asset.add(
            "hfield", name="ground", nrow=rows, ncol=columns, size=[*half, rise, 1.0], elevation=elevation.ravel()
        )
        spec.worldbody.add(
            "geom", name="ground", type="hfield", hfield="ground", pos=[0, 0, lowest], group=GROUP, contype=1,
            conaffinity=0,
        )  # fmt: skip
        spec.custom.add("numeric", name="levels", data=[0, self.levels - 1])

    def draw(self, model: Model, key: Array) -> Array:
        """The middle (3,) m of a random tile between the levels of the model."""
        of_level, of_kind = jax.random.split(key)
        return self._middle(self._random_level(model, of_level), of_kind)

    def draw_next(self, model: Model, key: Array, home: Array, place: Array, commanded: Array) -> Array:
        """The middle (3,) m of the tile of the next episode.

        Args:
          model: its numeric "levels" bounds the level; who masters the highest level gets a random one.
          key: of `jax.random`.
          home, place: (2,) m, where the last episode began and ended.
          commanded: m, the length of the way that was commanded in it.
        """
        of_level, of_kind = jax.random.split(key)
        low, high = model.numeric("levels").data
        level = jnp.clip(jnp.round(home[0] / self.size + 0.5 * (self.levels - 1)), low, high)
        # 0 for a world that went bad
        walked = safe.norm(place - home)
        higher = walked > 0.5 * self.size
        lower = ~higher & (walked < 0.5 * commanded)
        level = jnp.maximum(level + higher - lower, low)
        level = jnp.where(level > high, self._random_level(model, of_level), level)
        return self._middle(level, of_kind)

    def _random_level(self, model: Model, key: Array) -> Array:
        """A whole number between the levels of the model."""
        low, high = model.numeric("levels").data
        return jnp.floor(low + (high + 1 - low) * jax.random.uniform(key, dtype=low.dtype))

    def _middle(self, level: Array, key: Array) -> Array:
        """The middle (3,) m of a tile of this level and a random kind."""
        kind = jax.random.randint(key, (), 0, len(self.kinds))
        row = jnp.clip(level, 0, self.levels - 1).astype(int)
        return jnp.asarray(self.middles, level.dtype)[kind, row]

    def under(self, model: Model, data: Data, points: Array) -> Array:
        """Heights (n,) m of the ground at points (n, 2) m, found by vertical rays; -DEPTH outside the field."""
        origins = jnp.concatenate([points, jnp.full_like(points[:, :1], ABOVE)], axis=1)
        down = jnp.broadcast_to(jnp.array([0.0, 0.0, -1.0], points.dtype), origins.shape)
        groups = [int(group == GROUP) for group in range(6)]
        distance = multi_ray(model, data, origins, down, RayFilter(geomgroup=groups)).distance
        return jnp.where(distance < 0, -DEPTH, ABOVE - distance)

    def scan_points(self, data: Data) -> Array:
        """The points (n, 2) m of the height scan, which turn with the heading of the root."""
        heading = data.xmat[1][:2, 0]
        heading = heading / jnp.maximum(jnp.sqrt(jnp.sum(heading**2)), 1e-6)
        side = jnp.stack([-heading[1], heading[0]])
        scan = jnp.asarray(self.scan, heading.dtype)
        return data.xpos[1][None, :2] + scan[:, :1] * heading[None] + scan[:, 1:] * side[None]


def add_plane(spec: Spec) -> None:
    """Adds a flat "ground"."""
    spec.worldbody.add("geom", name="ground", type="plane", size=[0, 0, 1], group=GROUP, contype=1, conaffinity=0)


def set_levels(model: Model, low: float, high: float) -> Model:
    """A model whose episodes begin at levels from `low` to `high`, counted from 0."""
    return model.replace(numeric_data=jnp.array([low, high], model.numeric_data.dtype))

"""MuJoCo's plugin `mujoco.sensor.touch_grid`: contact forces on a site's body, sorted into a grid of directions.

Seen from the site, whose z axis points backwards, a contact has an azimuth (to the right) and an elevation (upwards).
A cell covers a range of both; with a larger `gamma` the cells in the middle are smaller. Its reading is the sum of the
forces of its contacts in the site's frame: the component along z, the two others, and the torques in the same order.
The first `nchannel` of these six are returned. Forces are differentiated; the choice of the cell is discrete and has no
derivative.
Source: plugin/sensor/touch_grid.cc (3.8.1).
"""

import json
from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.math import safe
from diffsim.math.vector import mul_vec_t, unpack
from diffsim.sensor.readings import Group, Readings
from diffsim.types.hooks import check_settings, instances, plugin_uses
from diffsim.xla.gather import pick

NAME = "mujoco.sensor.touch_grid"
SETTINGS = ("size", "fov", "gamma", "nchannel")
CHANNELS = 6
# cells of a grid, at most
MOST_CELLS = 100_000


class Grid(NamedTuple):
    """Channels, cells across and up, half fields of view (degrees), and how much smaller middle cells are, 0 to 1."""

    channels: int
    size: tuple[int, int]
    fov: tuple[float, float]
    gamma: float

    @property
    def dim(self) -> int:
        """Number of readings: channels times cells."""
        return self.channels * self.size[0] * self.size[1]


def grid_of(settings: Mapping[str, str]) -> Grid:
    """The grid that the settings of a plugin describe.

    Raises:
      ValueError: a setting is unknown, missing, no number, or out of range.
    """
    check_settings(settings, SETTINGS)
    numbers = {name: [float(word) for word in settings.get(name, "").split()] for name in SETTINGS}
    size = [int(number) for number in numbers["size"]]
    fov = numbers["fov"]
    channels = int((numbers["nchannel"] or [1])[0]) or 1
    gamma = (numbers["gamma"] or [0.0])[0]
    wrong = [
        (len(size) != 2 or min(size) <= 0, "size takes two positive numbers, cells across and up"),
        (len(fov) != 2 or not (0 < fov[0] <= 180 and 0 < fov[-1] <= 90), "fov takes degrees in (0, 180] and (0, 90]"),
        (not 0 <= gamma <= 1, "gamma is in [0, 1]"),
        (not 1 <= channels <= CHANNELS, f"nchannel is 1 to {CHANNELS}"),
    ]
    for applies, message in wrong:
        if applies:
            raise ValueError(message)
    if size[0] * size[1] > MOST_CELLS:
        raise ValueError(f"size gives more than {MOST_CELLS} cells")
    return Grid(channels, (size[0], size[1]), (fov[0], fov[1]), gamma)


def touch_grid(readings: Readings, group: Group) -> Array:
    """(n, channels * cells) forces, N, and torques, N m, channel after channel, row of cells after row."""
    topology = readings.topology
    contacts = readings.data.contact
    grid = grid_of(json.loads(topology.plugins[topology.sensor_plugin[group.sensors[0]]])[1])
    matrix, place = (pick(frame, group.objid)[:, None] for frame in (readings.data.site_xmat, readings.data.site_xpos))
    # in the frames of the sites, (n, ncon, 3)
    world = [mul_vec_t(contacts.frame, part) for part in jnp.split(readings.contact_force, 2, axis=1)]
    force, torque = (mul_vec_t(matrix, part[None]) for part in world)
    x, y, z = unpack(mul_vec_t(matrix, contacts.pos[None] - place))
    angles = jax.lax.stop_gradient((safe.arctan2(x, -z), safe.arctan2(y, safe.sqrt(x * x + z * z))))
    columns = _cell(angles[0], grid.size[0], grid.fov[0], grid.gamma)
    rows = _cell(angles[1], grid.size[1], grid.fov[1], grid.gamma)

    body = topology.site_bodyid[group.objid]
    of_geom = jnp.asarray(topology.geom_bodyid)[contacts.geom]
    weld = jnp.asarray(topology.body_weldid)
    body_weld = topology.body_weldid[body]
    touches = jnp.any(weld[of_geom][None] == jnp.asarray(topology.body_weldid[body_weld])[:, None, None], axis=2)
    # forces act on the second geom of a contact, usually the geom of the body with the higher index
    sign = jnp.where(jnp.asarray(body_weld)[:, None] < jnp.max(of_geom, axis=1)[None], -1, 1).astype(force.dtype)
    inside = touches & (columns >= 0) & (rows >= 0)
    values = jnp.stack([part[..., k] for part in (force, torque) for k in (2, 0, 1)][: grid.channels], axis=1)
    values = jnp.where(inside[:, None], sign[:, None] * values, 0)
    cells = grid.size[0] * grid.size[1]
    index = jnp.where(inside, rows * grid.size[0] + columns, cells)
    numbers = jnp.arange(group.size)[:, None, None]
    channels = jnp.arange(grid.channels)[None, :, None]
    image = jnp.zeros((group.size, grid.channels, cells + 1), force.dtype)
    return image.at[numbers, channels, index[:, None]].add(values)[..., :cells].reshape(group.size, -1)


def plugin_sensor(readings: Readings, group: Group) -> Array:
    """(n, dim) the readings of a plugin's sensors.

    Raises:
      ValueError: a user's plugin returned an array of another shape.
    """
    topology = readings.topology
    number = readings.topology.sensor_plugin[group.sensors[0]]
    if instances(topology)[number][0] == NAME:
        return touch_grid(readings, group)
    for plugin, use in plugin_uses(readings.model, readings.state, readings.inputs, readings.data, "sensor", "sensor"):
        if group.sensors[0] in use.ids:
            place = np.searchsorted(use.ids, group.sensors)
            values = jnp.asarray(plugin.sensor(use), readings.state.qpos.dtype)  # type: ignore[misc]
            shape = len(use.ids), group.dim
            if values.shape != shape:
                raise ValueError(f"sensor of a plugin returned shape {values.shape}, expected {shape}")
            return values[place]
    raise AssertionError("a sensor's plugin has no function; the compiler should have refused it")


def _cell(angle: Array, count: int, fov: float, gamma: float) -> Array:
    """The cell, of `count`, that contains each angle (n, ncon), rad; -1 for none; an edge belongs to the cell below."""
    even = -1 + np.arange(count + 1) * (2 / count)
    edges = jnp.asarray((gamma * even**5 + (1 - gamma) * even) * np.radians(fov), angle.dtype)
    above = jnp.sum(angle[..., None] > edges[None, None], axis=-1)
    return jnp.where((above > 0) & (above <= count), above - 1, -1)

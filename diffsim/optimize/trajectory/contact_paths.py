"""Contact paths: what the ends of a robot do to push an object or to carry it, as functions of a few numbers.

A push goes over the object to its far side, down, against the side, and along with the side until the object is at its
goal. A grip goes over the object with open jaws, down, closes, lifts, carries, lowers, and opens, or holds on. Each row
of z has numbers of order one that vary one path: places on the touched side, heights, forces, and times.
"""

from typing import NamedTuple

import numpy as np

from diffsim.optimize.trajectory.contact_modes import (
    Mode,
    Scene,
    extents,
    matrix,
    product,
    support,
)
from diffsim.optimize.trajectory.reach import Wanted

# numbers that vary a path
NUMBERS = 12
# waypoints of a path, equally far apart in time
WAYPOINTS = 40
# m, gaps to objects beside and above which effectors move freely
GAP = 0.02
# m, least gap to what the object stands on
FLOOR_GAP = 0.003
# m, how much end points vary for z = 1
VARIES = 0.01
# share of a side's half size by which a touched point varies for z = 1
ON_SIDE = 0.4
# m per rad, how much the orientation of an end counts compared with its place
TURN = 0.05
# the middle force of a grip, in weights of the object
GRIP = 4.0
# the same of a push
PUSH = 0.5
# the factor of these forces for z = 1
FACTOR = 2.0
# free motions and contacts get time in proportion to their length and to this, m, more
LEAST_LENGTH = 0.05
# a motion in contact takes this many times longer than a free motion of its length
CAREFUL = 2.0
# the share of time for z = 1
HASTE = 1.5
# the end of a motion: a rest with this length, m
REST = 0.05
# m, the length of a part of a push, more
SHORT = 0.01
# sine below which a normal counts as vertical
VERTICAL = 1e-6


class Key(NamedTuple):
    """What should be so at one moment of n paths.

    Attributes:
      length: (n,) the time since the key before, in units that are scaled to the length of the motion.
      point: (n, 2, 3) m, where two points are.
      quat: (n, 4) the orientation of the first point's body.
      force: (n, 2, 3) N.
    """

    length: np.ndarray
    point: np.ndarray
    quat: np.ndarray
    force: np.ndarray


def paths(scene: Scene, mode: Mode, z: np.ndarray) -> Wanted:
    """The paths (n, WAYPOINTS, ...) of a mode for numbers z (n, NUMBERS)."""
    keys = _push(scene, mode, z) if len(mode.effectors) == 1 else _grip(scene, mode, z)
    return _sampled(scene, mode, keys)


def _sampled(scene: Scene, mode: Mode, keys: list[Key]) -> Wanted:
    """Waypoints at equal distances in time, eased in and out between keys that rest."""
    n = len(keys[0].length)
    time = np.cumsum([np.maximum(key.length, 1e-6) for key in keys], axis=0)
    time = (time - time[0]) / (time[-1] - time[0])
    columns = [np.concatenate([key.point.reshape(n, 6), key.quat, key.force.reshape(n, 6)], axis=1) for key in keys]
    table = np.stack(columns)
    grid = np.linspace(0, 1, WAYPOINTS)
    sampled = np.empty((n, WAYPOINTS, 16))
    for path in range(n):
        place = np.interp(grid, time[:, path], np.arange(len(keys)))
        before = np.minimum(place.astype(int), len(keys) - 2)
        part = (place - before)[:, None]
        sampled[path] = (1 - part) * table[before, path] + part * table[before + 1, path]
    quat = sampled[..., 6:10]
    many = (n, WAYPOINTS)
    pair = (mode.effectors * 2)[:2]
    dtype = scene.state.qpos.dtype
    return Wanted(
        body=np.broadcast_to(np.array([jaw.body for jaw in pair]), (*many, 2)),
        local=np.broadcast_to(np.array([jaw.tip for jaw in pair], dtype), (*many, 2, 3)),
        point=sampled[..., :6].reshape(*many, 2, 3).astype(dtype),
        weight=np.broadcast_to(np.array([1, len(mode.effectors) - 1], dtype), (*many, 2)),
        quat=(quat / np.linalg.norm(quat, axis=-1, keepdims=True)).astype(dtype),
        turn=np.full(many, TURN, dtype),
        force=sampled[..., 10:].reshape(*many, 2, 3).astype(dtype),
    )


class _Way(NamedTuple):
    """An object's way: poses (k, n, ...) of the body of the touched geom, at the stations of a motion.

    Attributes:
      pos: (k, n, 3) m; `turn`: (k, n, 4) rotation since the start, in the world.
    """

    pos: np.ndarray
    turn: np.ndarray


def _way(scene: Scene, mode: Mode, lift: np.ndarray | None) -> _Way:
    """The way of the touched body to its goal; `lift` (n,): over this height, m, None for straight."""
    body = scene.task.model.topology.geom_bodyid[mode.geom]
    pos, quat = mode.thing.pos[:, body], mode.thing.quat[:, body]
    back = quat[:1] * np.array([1, -1, -1, -1])
    turn = product(quat, back)
    turn = turn * np.where(turn[:, :1] < 0, -1, 1)
    if lift is None:
        return _Way(pos[:, None], turn[:, None])
    high = np.maximum(pos[0] @ scene.up, pos[-1] @ scene.up) + lift
    up = [(high - pos[end] @ scene.up)[:, None] * scene.up for end in (0, -1)]
    count = len(lift)
    places = [np.broadcast_to(place, (count, 3)) for place in (pos[0], pos[0] + up[0], pos[-1] + up[1], pos[-1])]
    turns = [np.broadcast_to(turn[end], (count, 4)) for end in (0, 0, -1, -1)]
    return _Way(np.stack(places), np.stack(turns))


def _starts(scene: Scene, mode: Mode) -> np.ndarray:
    """(2, 3) m, where the ends of the effectors are at the start; one effector counts twice."""
    pair = (mode.effectors * 2)[:2]
    return np.array([scene.first.xpos[jaw.body] + matrix(scene.first.xquat[jaw.body]) @ jaw.tip for jaw in pair])


def _lifted(scene: Scene, point: np.ndarray, height: np.ndarray) -> np.ndarray:
    """Points (n, ..., 3) raised to a height (n,) m, if they are lower."""
    now = point @ scene.up
    more = np.maximum(height.reshape(-1, *[1] * (now.ndim - 1)) - now, 0)
    return point + more[..., None] * scene.up


class _Keys:
    """Collects keys, whose times follow from the distances of their points."""

    def __init__(self, begin: np.ndarray, quat: np.ndarray, count: int) -> None:
        self.quat = np.broadcast_to(quat, (count, 4))
        point = np.broadcast_to(begin, (count, 2, 3))
        self.list = [Key(np.zeros(count), point, self.quat, np.zeros((count, 2, 3)))]

    def add(
        self,
        point: np.ndarray,
        quat: np.ndarray,
        slow: np.ndarray | float = 1.0,
        least: float = LEAST_LENGTH,
        force: np.ndarray | None = None,
    ) -> None:
        """One more key; `slow` (n,): times longer than a free motion; `least`: m, the length of a motion of none."""
        last = self.list[-1]
        point = np.broadcast_to(point, last.point.shape)
        length = (np.max(np.linalg.norm(point - last.point, axis=-1), axis=1) + least) * slow
        force = np.zeros_like(last.force) if force is None else np.broadcast_to(force, last.force.shape)
        self.list.append(Key(length, point, np.broadcast_to(quat, last.quat.shape), force))


class _Side(NamedTuple):
    """The touched side of an object at the start; world axes.

    Attributes:
      centre: (3,) m, of the geom.
      normal: (3,) of the side, or the line of a grip.
      across: (3,) the horizontal direction along the side.
      depth, wide: m, from the centre to the side, and along `across`.
      low, high: m, the lowest and the highest point of the geom along `up`.
      origin: (3,) m, of the geom's body.
    """

    centre: np.ndarray
    normal: np.ndarray
    across: np.ndarray
    depth: float
    wide: float
    low: float
    high: float
    origin: np.ndarray


def _side(scene: Scene, mode: Mode) -> _Side:
    """The side that a mode touches."""
    centre, turn = scene.first.geom_xpos[mode.geom], scene.first.geom_xmat[mode.geom]
    half = support(scene.task, mode.geom, turn.T @ scene.up)
    height = float(centre @ scene.up)
    normal = turn @ mode.normal
    across = np.cross(scene.up, normal)
    length = float(np.linalg.norm(across))
    across = across / length if length > VERTICAL else turn[:, 0]
    return _Side(
        centre=centre,
        normal=normal,
        across=across,
        depth=support(scene.task, mode.geom, mode.normal),
        wide=float(extents(scene.task, mode.geom) @ np.abs(turn.T @ across)),
        low=height - half,
        high=height + half,
        origin=scene.first.xpos[scene.task.model.topology.geom_bodyid[mode.geom]],
    )


def _turned(turn: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """Vectors (n, ..., 3), turned by rotations (n, 4) or (4,)."""
    rows = matrix(turn)
    return np.einsum("...ij,...j->...i", rows.reshape(*rows.shape[:-2], *[1] * (vector.ndim - 2), 3, 3), vector)


def _push(scene: Scene, mode: Mode, z: np.ndarray) -> list[Key]:
    """The keys of a push.

    The numbers z: 0 the place along the side, 1 the height, 2 how deep and 3 how far along the side the end goes,
    4 haste, 5 force, 6 and 7 gaps beside and above the object, 8 how much the end is inside of the side, 9 the rest.
    """
    (effector,) = mode.effectors
    up, count, side = scene.up, len(z), _side(scene, mode)
    # the end touches between the bottom and the top of the side, above what the object stands on
    least = side.low + effector.ball + FLOOR_GAP
    height = 0.5 * (side.low + side.high) + ON_SIDE * 0.5 * (side.high - side.low) * z[:, 1]
    height = np.clip(height, least, max(side.high, least))
    contact = side.centre + side.depth * side.normal + (ON_SIDE * side.wide * z[:, :1]) * side.across
    contact = contact + (height - contact @ up)[:, None] * up

    # over the object to its far side, and down
    orientation = product(mode.tilt, scene.first.xquat[effector.body])
    begin = _starts(scene, mode)
    haste = HASTE ** z[:, 4]
    beside = contact + (effector.ball + GAP * np.exp(0.5 * z[:, 6:7])) * side.normal
    over = _lifted(scene, beside, side.high + effector.ball + GAP * np.exp(0.5 * z[:, 7]))
    keys = _Keys(begin, scene.first.xquat[effector.body], count)
    keys.add(_lifted(scene, np.broadcast_to(begin, (count, 2, 3)), over @ up), keys.quat, 1 / haste, 0.0)
    keys.add(np.stack([over, over], axis=1), orientation, 1 / haste)
    keys.add(np.stack([beside, beside], axis=1), orientation, 1 / haste)

    # along with the object; a little deeper than its side, since servos give way
    offset = contact + (effector.ball - 0.5 * VARIES * (1 + np.tanh(z[:, 8:9]))) * side.normal - side.origin
    strength = PUSH * FACTOR ** z[:, 5:6] * mode.thing.mass * scene.gravity
    more = VARIES * (z[:, 3:4] * side.across - z[:, 2:3] * side.normal)
    way = _way(scene, mode, None)
    last = len(way.pos) - 1
    for station in range(last + 1):
        share = station / last
        turn = np.broadcast_to(way.turn[station], (count, 4))
        moved = way.pos[station] + _turned(turn, offset) + share * more
        force = -strength * _turned(turn, side.normal[None]) * (station < last)
        # slower at both ends
        slow = CAREFUL * (1 + 4 * (share - 0.5) ** 2) * haste
        points, forces = np.stack([moved, moved], axis=1), np.stack([force, 0 * force], axis=1)
        keys.add(points, product(turn, orientation), slow, SHORT, forces)
    keys.add(keys.list[-1].point, keys.list[-1].quat, HASTE ** z[:, 9], REST)
    return keys.list


def _grip(scene: Scene, mode: Mode, z: np.ndarray) -> list[Key]:
    """The keys of a grip.

    The numbers z: 0 the place along the side, 1 the height, 2 force, 3, 10 and 5 the end's place along the side, along
    the grip and upwards, 4 how high the object is lifted, 6 how wide the jaws open, 7 haste, 8 the time to close,
    9 the gap above the object, 11 whether the jaws open at the end (positive).
    """
    up, count, side = scene.up, len(z), _side(scene, mode)
    ball = max(jaw.ball for jaw in mode.effectors)
    height = 0.5 * (side.low + side.high) + ON_SIDE * 0.5 * (side.high - side.low) * z[:, 1]
    height = np.maximum(height, side.low + ball + FLOOR_GAP)
    middle = side.centre + (0.5 * ON_SIDE * side.wide * z[:, :1]) * side.across
    middle = middle + (height - middle @ up)[:, None] * up
    # from the middle to each jaw
    jaws = np.broadcast_to(np.array([-1.0, 1.0])[:, None] * side.normal, (count, 2, 3))
    closed = (side.depth + ball) * jaws
    opened = closed + GAP * np.exp(0.5 * z[:, 6])[:, None, None] * jaws

    # over the object, down, and close
    orientation = product(mode.tilt, scene.first.xquat[mode.effectors[0].body])
    begin = _starts(scene, mode)
    haste = HASTE ** z[:, 7]
    over = _lifted(scene, middle, side.high + ball + GAP * np.exp(0.5 * z[:, 9]))[:, None] + opened
    keys = _Keys(begin, scene.first.xquat[mode.effectors[0].body], count)
    keys.add(_lifted(scene, np.broadcast_to(begin, (count, 2, 3)), over[:, 0] @ up), keys.quat, 1 / haste, 0.0)
    keys.add(over, orientation, 1 / haste)
    keys.add(middle[:, None] + opened, orientation, 1 / haste)
    squeeze = -(GRIP * FACTOR ** z[:, 2] * mode.thing.mass * scene.gravity)[:, None, None] * jaws
    keys.add(middle[:, None] + closed, orientation, CAREFUL)
    keys.add(middle[:, None] + closed, orientation, HASTE ** z[:, 8], force=squeeze)

    # the object moves with the jaws
    lift = GAP + 2 * GAP * np.exp(0.5 * z[:, 4])
    way = _way(scene, mode, lift if mode.thing.free else None)
    shift = VARIES * (z[:, 3:4] * side.across + z[:, 10:11] * side.normal + z[:, 5:6] * up)
    last = len(way.pos) - 1
    for station in range(1, last + 1):
        turn = np.broadcast_to(way.turn[station], (count, 4))
        at = way.pos[station] + _turned(turn, middle - side.origin) + station / last * shift
        points = at[:, None] + _turned(turn, closed)
        keys.add(points, product(turn, orientation), CAREFUL / haste, force=_turned(turn, squeeze))

    # open and go away if the numbers say so; otherwise hold on
    end = keys.list[-1]
    keys.add(end.point, end.quat, force=end.force)
    opens = (z[:, 11] > 0)[:, None, None]
    away = end.point + GAP * _turned(np.broadcast_to(way.turn[-1], (count, 4)), jaws)
    for point in (away, away + 2 * GAP * up):
        keys.add(np.where(opens, point, end.point), end.quat, force=np.where(opens, 0, end.force))
    return keys.list

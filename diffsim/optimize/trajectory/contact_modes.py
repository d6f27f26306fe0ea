"""Contact modes: which part of a robot can push or hold which object, proposed from geometry.

An object is a tree of bodies that no actuator moves and that the goal depends on. Where it should be follows from the
task's final residuals r: Gauss-Newton steps of the dofs of the object, dq = -(dr/dq)^+ r.

An effector is a geom at the end of an actuated tree. There are two kinds of modes:

    push    an effector touches a side of the object and moves with it; the outward normal points away from the motion
    grip    two effectors close on opposite sides of the object; joints between them open and close

Sides are the six faces of a geom's box and, for round geoms, the side opposite to the motion.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.enums import DisableBit, GeomType
from diffsim.base.joints import dofs_angular, is_scalar
from diffsim.collision.pairs import candidate_pairs
from diffsim.kinematics.joints import integrate_position
from diffsim.optimize.trajectory.reach import Limits, Survey, limits_of, survey
from diffsim.optimize.trajectory.sampling import quick_jit
from diffsim.optimize.trajectory.task import Task
from diffsim.types import State

# Gauss-Newton steps from an object's position to its goal
STEPS_TO_GOAL = 8
# positions on an object's way to its goal at which its pose is computed
STATIONS = 9
# an object should move if its geoms move by more than this, m, or turn by more than this, rad
LEAST_MOVE = 2e-3
LEAST_TURN = 2e-2
# a side is pushed if the cosine between its inward normal and the motion is above this
PUSHED = 0.3
# sine and one minus cosine of an angle that is taken for zero
PLANAR = 1e-6
# a side is the lower side if the cosine between its normal and down is above this
BELOW = 0.5
# cosine above which the end of an effector points down
POINTS_DOWN = 0.9
# effectors of a rigid part: the outermost ones
EFFECTORS = 2


class Object(NamedTuple):
    """A tree of bodies that should move.

    Attributes:
      body: its first body.
      free: whether it can be lifted: its first joint is a free joint.
      geoms: ids of its geoms that effectors can touch.
      pos, quat: (STATIONS, nbody, 3) m and (STATIONS, nbody, 4), poses of all bodies on the way to the goal.
      moves: (3,) m, the motion of its geoms' centre.
      mass: kg.
    """

    body: int
    free: bool
    geoms: tuple[int, ...]
    pos: np.ndarray
    quat: np.ndarray
    moves: np.ndarray
    mass: float


class Effector(NamedTuple):
    """A geom that can touch objects.

    Attributes:
      geom, body: ids.
      tip: (3,) m, the centre of its end, in the frame of the body.
      middle: (3,) m, the centre of the geom, in the frame of the body.
      axis: (3,) the direction from the middle to the end, in the frame of the body.
      ball: m, half of the thickness of the geom.
      length: m, from the middle to the tip.
    """

    geom: int
    body: int
    tip: np.ndarray
    middle: np.ndarray
    axis: np.ndarray
    ball: float
    length: float


class Mode(NamedTuple):
    """A way to move an object.

    Attributes:
      thing: the object.
      geom: the object's geom that is touched.
      normal: (3,) the outward normal of the touched side, or the axis of a grip, in the frame of the geom.
      effectors: one that pushes, or two that grip.
      tilt: (4,) rotation in the world by which the effector turns from its orientation at the start.
    """

    thing: Object
    geom: int
    normal: np.ndarray
    effectors: tuple[Effector, ...]
    tilt: np.ndarray


class Scene(NamedTuple):
    """The robot, the objects and the modes.

    Attributes:
      task: the task.
      state: where motions begin.
      up: (3,) unit vector against gravity.
      gravity: m / s^2.
      first: the survey of the first position, without axes in front.
      limits: which dofs the robot moves.
      modes: the ways to move the objects.
    """

    task: Task
    state: State
    up: np.ndarray
    gravity: float
    first: Survey
    limits: Limits
    modes: tuple[Mode, ...]


_moved = quick_jit(
    lambda model, qpos, change: jax.vmap(lambda dq: integrate_position(model, qpos, dq, jnp.ones((), qpos.dtype)))(
        change
    )
)


def find_modes(task: Task, state: State) -> Scene | None:
    """The ways to move what the goal depends on; None if there are none.

    Without gravity, and where no slide or hinge of the robot moves anything up or down, no way leads over an object,
    and none is proposed. None is proposed either for a robot that is not fixed to the world, or has ball joints.
    """
    model = task.model
    topology = model.topology
    gravity = np.asarray(model.opt.gravity, float)
    strength = float(np.linalg.norm(gravity))
    weightless = strength == 0 or model.opt.disabled(DisableBit.GRAVITY)
    if weightless or task.final is None or len(np.unique(topology.dof_treeid)) < 2:
        return None
    up = -gravity / strength

    def look(change: np.ndarray) -> Survey:
        """The survey at changes (nv,) or (STATIONS, nv) of the first position."""
        rows = np.broadcast_to(change, (STATIONS, model.nv)).astype(state.qpos.dtype)
        found = survey(task, state, _moved(model, state.qpos, rows))
        return jax.tree.map(lambda x: np.asarray(x, float), found)

    first = look(np.zeros(model.nv))
    moment = first.moment[0]
    limits = limits_of(task, moment)
    if not limits.coupling.size or not np.all(np.isfinite(first.slope)):
        return None
    driven = np.unique(topology.dof_treeid[np.any(moment != 0, axis=0)])
    joints = np.isin(topology.body_treeid[topology.jnt_bodyid], driven)
    if not is_scalar(topology.jnt_type[joints]).all() or not _leaves_the_plane(task, up, joints):
        return None
    depends = np.any(first.slope[0] != 0, axis=0)
    trees = np.setdiff1d(np.unique(topology.dof_treeid[depends]), driven)
    if not trees.size:
        return None
    change = _change_to_goal(look, first, np.isin(topology.dof_treeid, trees))
    way = look(np.linspace(0, 1, STATIONS)[:, None] * change)
    here = jax.tree.map(lambda x: x[0], first)
    if not np.isfinite(way.xpos).all():
        return None
    touch = _touching(task, driven)
    objects = [found for tree in trees if (found := _object(task, tree, touch, here, way)) is not None]
    modes = [
        mode
        for thing in objects
        for mode in (*_pushes(task, thing, touch, here, up), *_grips(task, thing, touch, here))
    ]
    if not modes:
        return None
    return Scene(task=task, state=state, up=up, gravity=strength, first=here, limits=limits, modes=tuple(modes))


def _change_to_goal(look: Callable[[np.ndarray], Survey], first: Survey, dofs: np.ndarray) -> np.ndarray:
    """The change (nv,) of these dofs, a mask (nv,), that brings the objects to the goal, while the robot stays.

    `look` surveys a change of the first position.
    """
    change = np.zeros(dofs.size)
    now = first
    for _ in range(STEPS_TO_GOAL):
        # a residual such as a distance has no derivative at the goal
        if not np.isfinite(now.slope[0]).all():
            break
        change[dofs] -= np.linalg.pinv(now.slope[0][:, dofs], rcond=1e-4) @ now.residual[0]
        now = look(change)
    return change


def _leaves_the_plane(task: Task, up: np.ndarray, joints: np.ndarray) -> bool:
    """Whether one of these joints (njnt,), slides and hinges, can move anything up or down.

    A slide does if its axis is not horizontal, a hinge if its axis is not vertical. If none does, then all axes keep
    their direction in every position, so that the position of the joints does not matter.
    """
    topology = task.model.topology
    quat = np.asarray(task.model.body_quat, float)
    world = np.zeros((topology.nbody, 4))
    world[0, 0] = 1
    for body in range(1, topology.nbody):
        world[body] = product(world[topology.body_parentid[body]], quat[body])
    scalar = np.flatnonzero(joints)
    axes = np.asarray(task.model.jnt_axis, float)[scalar]
    rise = np.abs(np.einsum("nij,nj,i->n", matrix(world[topology.jnt_bodyid[scalar]]), axes, up))
    angular = dofs_angular(topology.jnt_type)[topology.jnt_dofadr[scalar]] > 0
    return bool(np.any(np.where(angular, rise < 1 - PLANAR, rise > PLANAR)))


def _touching(task: Task, driven: np.ndarray) -> dict[int, set[int]]:
    """For each geom outside of the driven trees, the effectors' geoms that can touch it."""
    topology = task.model.topology
    pairs = candidate_pairs(topology, int(task.model.opt.disableflags))
    trees = topology.body_treeid[topology.geom_bodyid]
    # rigid parts without moving descendants
    part = topology.body_weldid
    ends = np.ones(topology.nbody, bool)
    for body in range(1, topology.nbody):
        parent = part[topology.body_parentid[body]]
        ends[parent] &= part[body] == parent
    touch: dict[int, set[int]] = {}
    for one, other in zip(pairs.geom1, pairs.geom2, strict=True):
        for geom, effector in ((int(one), int(other)), (int(other), int(one))):
            end = ends[part[topology.geom_bodyid[effector]]]
            if end and trees[effector] in driven and trees[geom] not in driven:
                touch.setdefault(geom, set()).add(effector)
    return touch


def _object(task: Task, tree: int, touch: dict[int, set[int]], here: Survey, way: Survey) -> Object | None:
    """A tree as an object, if it should move and can be touched."""
    topology = task.model.topology
    bodies = np.flatnonzero(topology.body_treeid == tree)
    geoms = [geom for geom in touch if topology.body_treeid[topology.geom_bodyid[geom]] == tree]
    if not geoms:
        return None
    moves = np.mean(way.geom_xpos[-1][geoms] - way.geom_xpos[0][geoms], axis=0)
    turn = np.max(np.abs(way.geom_xmat[-1][geoms] - way.geom_xmat[0][geoms]))
    if np.linalg.norm(moves) < LEAST_MOVE and turn < LEAST_TURN:
        return None
    joint = topology.body_jntadr[bodies[0]]
    return Object(
        body=int(bodies[0]),
        free=bool(joint >= 0 and not is_scalar(topology.jnt_type[[joint]])[0]),
        geoms=tuple(geoms),
        pos=way.xpos,
        quat=way.xquat,
        moves=moves,
        mass=float(np.sum(np.asarray(task.model.body_mass)[bodies])),
    )


def effector_of(task: Task, geom: int, here: Survey) -> Effector:
    """A geom as an effector: its end is on the side that is away from the body that carries it."""
    model = task.model
    topology = model.topology
    body = int(topology.geom_bodyid[geom])
    centre, turn = here.geom_xpos[geom], here.geom_xmat[geom]
    away = (centre - _carrier(task, geom, here)) @ turn
    kind, size = GeomType(topology.geom_type[geom]), np.asarray(model.geom_size[geom], float)
    half = extents(task, geom)
    ball = float(size[0]) if kind == GeomType.CAPSULE else float(np.min(half))
    # the end of a long geom is an end of its longest axis
    along = int(np.argmax(np.abs(away) * half))
    axis = (1.0 if away[along] >= 0 else -1.0) * np.eye(3)[along]
    length = max(float(half[along]) - ball, 0.0)
    frame = matrix(here.xquat[body])
    return Effector(
        geom=geom,
        body=body,
        tip=(centre + length * turn @ axis - here.xpos[body]) @ frame,
        middle=(centre - here.xpos[body]) @ frame,
        axis=(turn @ axis) @ frame,
        ball=ball,
        length=length,
    )


def _carrier(task: Task, geom: int, here: Survey) -> np.ndarray:
    """(3,) m, the origin of the nearest body towards the root that is not at the centre of a geom."""
    topology = task.model.topology
    body = int(topology.geom_bodyid[geom])
    while body and np.linalg.norm(here.xpos[body] - here.geom_xpos[geom]) < LEAST_MOVE:
        body = int(topology.body_parentid[body])
    return here.xpos[body]


def extents(task: Task, geom: int) -> np.ndarray:
    """(3,) m, half sizes of a geom's box, in its frame."""
    return np.asarray(task.model.geom_aabb[geom], float).reshape(-1)[3:6]


def support(task: Task, geom: int, direction: np.ndarray) -> float:
    """m, how far a geom reaches from its centre in a unit direction of its frame."""
    kind, half = GeomType(task.model.topology.geom_type[geom]), extents(task, geom)
    x, y, z = np.abs(direction)
    if kind in (GeomType.SPHERE, GeomType.ELLIPSOID):
        return float(np.linalg.norm(half * direction))
    if kind == GeomType.CAPSULE:
        return float(half[0] + (half[2] - half[0]) * z)
    if kind == GeomType.CYLINDER:
        return float(half[0] * np.hypot(x, y) + half[2] * z)
    return float(half @ np.abs(direction))


# Rotations of many paths by numpy: JAX, whose functions are in math/rotation.py, would compile each of them for each
# number of paths.


def matrix(quat: np.ndarray) -> np.ndarray:
    """(..., 3, 3) rotation matrices of unit quaternions (..., 4)."""
    w, x, y, z = np.moveaxis(quat, -1, 0)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return np.moveaxis(np.array(rows), (0, 1), (-2, -1))


def turn_between(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """(4,) the smallest rotation that turns one unit vector to another one."""
    quat = np.append(1 + one @ other, np.cross(one, other))
    if quat[0] < 1e-6:
        # half a turn about any axis across
        across = np.cross(one, np.eye(3)[np.argmin(np.abs(one))])
        quat = np.append(0.0, across)
    return quat / np.linalg.norm(quat)


def product(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """(..., 4) the product of quaternions."""
    w, v = one[..., :1], one[..., 1:]
    a, b = other[..., :1], other[..., 1:]
    scalar = w * a - np.sum(v * b, axis=-1, keepdims=True)
    return np.concatenate([scalar, w * b + a * v + np.cross(v, b)], axis=-1)


def _sides(task: Task, geom: int, motion: np.ndarray) -> list[np.ndarray]:
    """Outward normals in the frame of a geom: of its box, and opposite to the motion (3,) where the geom is round."""
    kind = GeomType(task.model.topology.geom_type[geom])
    faces = [sign * row for row in np.eye(3) for sign in (1.0, -1.0)]
    if kind in (GeomType.CAPSULE, GeomType.CYLINDER):
        motion = motion * np.array([1.0, 1.0, 0.0])
        faces = faces[4:]
    elif kind == GeomType.SPHERE:
        faces = []
    elif kind != GeomType.ELLIPSOID:
        return faces
    length = np.linalg.norm(motion)
    return [*faces, -motion / length] if length > 0 else faces


def _outermost(task: Task, geoms: set[int], here: Survey) -> list[Effector]:
    """The effectors of each rigid part whose ends are furthest from its origin."""
    topology = task.model.topology
    parts: dict[int, list[tuple[float, Effector]]] = {}
    for geom in sorted(geoms):
        effector = effector_of(task, geom, here)
        part = int(topology.body_weldid[effector.body])
        at = here.xpos[effector.body] + matrix(here.xquat[effector.body]) @ effector.tip
        parts.setdefault(part, []).append((-float(np.linalg.norm(at - here.xpos[part])), effector))
    return [effector for found in parts.values() for _, effector in sorted(found, key=lambda row: row[0])[:EFFECTORS]]


def _pushes(task: Task, thing: Object, touch: dict[int, set[int]], here: Survey, up: np.ndarray) -> list[Mode]:
    """Pushes of sides whose normal points away from the motion: by an end as it is or turned down, or by a flank."""
    modes = []
    for geom in thing.geoms:
        turn = here.geom_xmat[geom]
        body = task.model.topology.geom_bodyid[geom]
        for normal in _sides(task, geom, thing.moves @ turn):
            local = matrix(here.xquat[body]).T @ (
                here.geom_xpos[geom] + turn @ normal * support(task, geom, normal) - here.xpos[body]
            )
            ways = thing.pos[:, body] + matrix(thing.quat[:, body]) @ local
            motion = ways[-1] - ways[0]
            length = np.linalg.norm(motion)
            away = -(turn @ normal) @ motion < PUSHED * length
            # what is free stands on its lower side
            below = thing.free and turn @ normal @ up < -BELOW
            if away or below or length < LEAST_MOVE:
                continue
            for effector in _outermost(task, touch[geom], here):
                axis = matrix(here.xquat[effector.body]) @ effector.axis
                tilts = [np.array([1.0, 0, 0, 0])]
                if axis @ -up < POINTS_DOWN:
                    tilts.append(turn_between(axis, -up))
                modes += [Mode(thing, geom, normal, (effector,), tilt) for tilt in tilts]
                # the flank of a long geom along the side keeps the object from turning
                across = np.cross(up, turn @ normal)
                if effector.length > effector.ball and np.linalg.norm(across) > PUSHED:
                    flank = effector._replace(tip=effector.middle)
                    lines = (across / np.linalg.norm(across), -across / np.linalg.norm(across))
                    modes += [Mode(thing, geom, normal, (flank,), turn_between(axis, line)) for line in lines]
    return modes


def _grips(task: Task, thing: Object, touch: dict[int, set[int]], here: Survey) -> list[Mode]:
    """Grips of an object by two effectors between which joints open and close."""
    modes = []
    topology = task.model.topology
    for geom in thing.geoms:
        turn = here.geom_xmat[geom]
        jaws = _outermost(task, touch[geom], here)
        for number, one in enumerate(jaws):
            for other in jaws[number + 1 :]:
                if topology.body_weldid[one.body] == topology.body_weldid[other.body]:
                    continue
                ends = [here.xpos[jaw.body] + matrix(here.xquat[jaw.body]) @ jaw.tip for jaw in (one, other)]
                axis = (ends[1] - ends[0]) / max(float(np.linalg.norm(ends[1] - ends[0])), 1e-9)
                for normal in np.eye(3):
                    line = turn @ normal
                    line = line * (1.0 if line @ axis >= 0 else -1.0)
                    tilt = turn_between(axis, line)
                    modes.append(Mode(thing, geom, turn.T @ line, (one, other), tilt))
    return modes

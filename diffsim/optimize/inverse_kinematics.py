"""Inverse kinematics: positions of joints at which bodies, sites or geoms have a given pose.

`ik` minimizes over qpos, within the ranges of hinges and slides,

    1/2 sum_i |W_i r_i(q)|^2 + 1/2 posture^2 |q - q0|^2

The residuals r_i are x - x_target (m, world axes) and log(R_target^T R) (rad, axes of the target). Each iteration is a
Levenberg-Marquardt step of the joints that are not held at an end of their range, clipped to the ranges:

    (J^T W^2 J + (posture^2 + mu cost) 1) dq = -(J^T W^2 r + posture^2 (q - q0))

mu falls after a step that lowers the cost, and grows after a step that does not. The damping is proportional to the
cost, so that steps are short far from the targets, and undamped near them. After a search that misses the targets,
another one starts from a random position. If all searches miss, the best one continues to its minimum. Source: Sugihara
2011, "Solvability-unconcerned inverse kinematics by the Levenberg-Marquardt method".

The derivative of the solution follows from the implicit function theorem. The gradient g(q, theta) of the cost is zero
for joints between their limits, so dq = -H^+ (dg / dtheta) dtheta with the Hessian H. The pseudoinverse gives the
shortest motion of a redundant arm.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from diffsim.base.checked import checked
from diffsim.base.enums import ObjType
from diffsim.base.errors import ArgumentError
from diffsim.base.joints import dofs_angular, is_scalar
from diffsim.kinematics.com import compute_com_frame
from diffsim.kinematics.jacobian import point_jacobian
from diffsim.kinematics.joints import integrate_position, position_difference
from diffsim.kinematics.poses import compute_kinematics
from diffsim.math.linalg import solve_spd
from diffsim.math.rotation import quat_mul, quat_normalize, quat_sub, rotvec_rate
from diffsim.math.vector import matmul
from diffsim.sensor.frame import FRAMES
from diffsim.simulate.arguments import check_arguments
from diffsim.types import Inputs, Model, State
from diffsim.types.data import Kinematics
from diffsim.types.record import Record, record, static, whole_number
from diffsim.types.views import View
from diffsim.xla.batched_loops import Loop, last_eighth, run
from diffsim.xla.compiled import compiled
from diffsim.xla.gather import pick
from diffsim.xla.select import where_tree

# kinds of objects that have a frame, by their views
OBJECTS = {"body": ObjType.XBODY, "site": ObjType.SITE, "geom": ObjType.GEOM}

# mu of the first step
FIRST_DAMPING = 1.0
# mu is multiplied by this factor after a step that lowers the cost ...
DAMPING_DOWN = 0.2
# ... and by this factor after a step that does not
DAMPING_UP = 5.0
# a search ends if mu exceeds this number, because no step lowers the cost any more
MOST_DAMPING = 1e6
# a search that has not reached the targets ends if a step lowers the cost by less than this fraction
LEAST_DECREASE = 1e-3
# a search is at a minimum if a step lowers the cost by less than this number of machine epsilons, as a fraction
EXACT = 10
# longest step of a joint, rad or m: for longer steps the linear model of rotations is not valid
LONGEST = 1.0
# damping that keeps the matrix of a redundant arm positive definite, as a multiple of the largest diagonal entry of
# J^T W^2 J times the square root of the machine epsilon
FLOOR = 1e-2
# seed of the random positions
SEED = 0


class Target(NamedTuple):
    """Where a frame should be.

    Attributes:
      frame: a view: `model.site("tip")`, or a body or geom.
      pos: (3,) m, where its origin should be in the world; None for anywhere.
      quat: (4,) its orientation in the world; None for any.
      pos_weight: weight of the position, per m; a number, or (3,) for each world axis.
      rot_weight: weight of the orientation, per rad; a number, or (3,) for rotations about each axis of the target:
        (1, 1, 0) lets it turn about its z axis.
    """

    frame: View
    pos: ArrayLike | None = None
    quat: ArrayLike | None = None
    pos_weight: ArrayLike = 1.0
    rot_weight: ArrayLike = 1.0


@record
class Ik(Record):
    """Settings of `ik`.

    Attributes:
      tolerance: m and rad, largest error of each target at which a search ends.
      iterations: largest number of iterations of one search.
      attempts: largest number of searches of a world. The first begins at the given state, the others at random
        positions within the ranges. Use 1 if targets contradict one another, or if the solution should be near the
        state.
    """

    tolerance: float = static(default=1e-5)
    iterations: int = static(whole_number, default=40)
    attempts: int = static(whole_number, default=20)


class IkResult(NamedTuple):
    """The result of `ik`.

    Attributes:
      qpos: (nq,) the position; `state.replace(qpos=qpos)`.
      position_error: (targets,) m, distance from each target; 0 for targets without a position.
      rotation_error: (targets,) rad, angle from each target; 0 for targets without an orientation.
      reached: () bool, whether all errors are within the tolerance.
      iterations: () int, of all searches.
    """

    qpos: Array
    position_error: Array
    rotation_error: Array
    reached: Array
    iterations: Array


@checked
def ik(
    model: Model,
    state: State,
    targets: Sequence[Target],
    inputs: Inputs | None = None,
    *,
    joints: Sequence[str] | None = None,
    posture: ArrayLike = 0.0,
    settings: Ik | None = None,
) -> IkResult:
    """Inverse kinematics: the position of the joints at which frames have given poses.

    Batch it with `jax.vmap` over positions, orientations or states. The solution can be differentiated once, in forward
    and reverse mode, with respect to targets, model and posture. Contacts, equality constraints and the ranges of ball
    joints are not considered.

    Args:
      model: the compiled model.
      state: where the search begins; its position is also the preferred one (`posture`).
      targets: the poses, at least one.
      inputs: the inputs, for poses of mocap bodies; None for `make_inputs(model)`.
      joints: names of the joints that may move; None for all.
      posture: weight, per rad or m, of the distance from the position of the state. It decides among the solutions of a
        redundant arm. 1e-3 changes errors of the targets by about 1e-6.
      settings: None for `Ik()`.

    Returns:
      The position, and how far the frames are from their targets.

    Raises:
      ArgumentError: a target has no pose, or is not of a view of a body, site or geom.
    """
    which = range(model.njnt) if joints is None else [model.topology.id("joint", name) for name in joints]
    moving = np.isin(model.topology.dof_jntid, list(which))
    return _ik(model, state, inputs, _goals(model, targets, posture), _Search(settings or Ik(), tuple(moving.tolist())))


@functools.partial(jax.tree_util.register_dataclass, data_fields=[], meta_fields=["settings", "moving"])
@dataclasses.dataclass(frozen=True)
class _Search:
    """The settings, and which dofs move (nv,)."""

    settings: Ik
    moving: tuple[bool, ...]


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["pos", "quat", "pos_weight", "rot_weight", "posture"],
    meta_fields=["count", "placed", "turned"],
)
@dataclasses.dataclass(frozen=True)
class _Goals:
    """The targets; their positions and orientations are separate, since a target may have only one of the two.

    Attributes:
      pos, quat: (p, 3) m and (r, 4).
      pos_weight, rot_weight: (p, 3) per m and (r, 3) per rad.
      posture: () weight of the distance from the first position.
      count: number of targets.
      placed, turned: for each row of `pos` and `quat`, the number of the target, and the type and index of its object.
    """

    pos: Array
    quat: Array
    pos_weight: Array
    rot_weight: Array
    posture: Array
    count: int
    placed: tuple[tuple[int, ObjType, int], ...]
    turned: tuple[tuple[int, ObjType, int], ...]


def _goals(model: Model, targets: Sequence[Target], posture: ArrayLike) -> _Goals:
    """Checks the targets.

    Raises:
      ArgumentError: as `ik`.
    """
    dtype = model.qpos0.dtype
    lists = {"pos": 3, "quat": 4}
    rows: dict[str, list[Array]] = {name: [] for name in (*lists, "pos_weight", "rot_weight")}
    where: dict[str, list[tuple[int, ObjType, int]]] = {name: [] for name in lists}
    for number, target in enumerate(targets):
        kind = getattr(target.frame, "kind", None)
        if kind not in OBJECTS:
            what = f"a view of a {kind}" if kind else f"a {type(target.frame).__name__}"
            raise ArgumentError(f"ik: target {number} is of {what}; expected a body, site or geom: model.site(name)")
        if target.pos is None and target.quat is None:
            raise ArgumentError(f"ik: target {number} has neither pos nor quat")
        for name, weight in (("pos", "pos_weight"), ("quat", "rot_weight")):
            value = getattr(target, name)
            if value is None:
                continue
            value = jnp.asarray(value, dtype)
            if value.shape != (lists[name],):
                advice = "batch with jax.vmap" if value.ndim > 1 else f"expected ({lists[name]},)"
                raise ArgumentError(f"ik: {name} of target {number} has shape {value.shape}; {advice}")
            rows[name].append(value)
            rows[weight].append(jnp.broadcast_to(jnp.asarray(getattr(target, weight), dtype), (3,)))
            where[name].append((number, OBJECTS[kind], target.frame.id))
    if not targets:
        raise ArgumentError("ik: there are no targets")

    def stacked(name: str, size: int) -> Array:
        return jnp.stack(rows[name]) if rows[name] else jnp.zeros((0, size), dtype)

    return _Goals(
        pos=stacked("pos", 3),
        quat=stacked("quat", 4),
        pos_weight=stacked("pos_weight", 3),
        rot_weight=stacked("rot_weight", 3),
        posture=jnp.asarray(posture, dtype),
        count=len(targets),
        placed=tuple(where["pos"]),
        turned=tuple(where["quat"]),
    )


class _Problem(NamedTuple):
    """The arrays that all iterations read: the model, poses of mocap bodies, goals, the search, and first positions.

    Attributes:
      begin: (nq,) the position of the given state.
      starts: (attempts, nq) the first position of each search.
    """

    model: Model
    mocap: tuple[Array, Array]
    goals: _Goals
    search: _Search
    begin: Array
    starts: Array


class _Errors(NamedTuple):
    """How far the frames are from their targets: positions (p, 3) m, rotation vectors (r, 3) rad, unweighted."""

    pos: Array
    rot: Array

    def weighted(self, goals: _Goals) -> Array:
        """(3 p + 3 r,) the residuals."""
        parts = goals.pos_weight * self.pos, goals.rot_weight * self.rot
        return jnp.concatenate([part.reshape(-1) for part in parts])

    def sizes(self, goals: _Goals) -> tuple[Array, Array]:
        """(targets,) m and rad; directions without weight do not count."""
        sizes = []
        for errors, weight, rows in zip(
            self, (goals.pos_weight, goals.rot_weight), (goals.placed, goals.turned), strict=True
        ):
            size = jnp.sqrt(jnp.sum(jnp.where(weight > 0, errors, 0) ** 2, axis=1))
            sizes.append(jnp.zeros(goals.count, size.dtype).at[np.array([row[0] for row in rows], int)].set(size))
        return sizes[0], sizes[1]


class _State(NamedTuple):
    """The state of the searches of a world.

    Attributes:
      qpos: (nq,) the current position of the search; not used if `fresh`.
      residual, slopes: the weighted residuals (m,) there, and their derivatives (m, nv).
      cost: () there.
      damping: () mu.
      number, total: () number of iterations of this search, and of all searches.
      attempt: () index of the search.
      fresh: () whether the next iteration begins a search. Such an iteration only evaluates the first position.
      best, least: (nq,) the position with the least cost among the searches that have ended, and () its cost.
      done: () whether the targets are reached.
    """

    qpos: Array
    residual: Array
    slopes: Array
    cost: Array
    damping: Array
    number: Array
    total: Array
    attempt: Array
    fresh: Array
    best: Array
    least: Array
    done: Array


@compiled
def _ik(model: Model, state: State, inputs: Inputs | None, goals: _Goals, search: _Search) -> IkResult:
    """The search as one program, and the derivative of its result."""
    inputs = check_arguments(model, state, inputs)
    problem = _Problem(
        model=model,
        mocap=(inputs.mocap_pos, inputs.mocap_quat),
        goals=goals,
        search=search,
        begin=state.qpos,
        starts=_starts(model, state.qpos, search),
    )
    fixed = jax.lax.stop_gradient(problem)
    rows = 3 * (len(goals.placed) + len(goals.turned))
    zero = jnp.zeros((), state.qpos.dtype)
    count = jnp.zeros((), jnp.int32)
    infinite = jnp.full((), jnp.inf, zero.dtype)
    start = _State(
        qpos=fixed.begin,
        residual=jnp.zeros(rows, zero.dtype),
        slopes=jnp.zeros((rows, model.nv), zero.dtype),
        cost=infinite,
        damping=zero + FIRST_DAMPING,
        number=count,
        total=count,
        attempt=count,
        fresh=jnp.ones((), bool),
        best=fixed.starts[0],
        least=infinite,
        done=jnp.zeros((), bool),
    )
    attempts = search.settings.attempts
    loop = Loop(unfinished=lambda now: ~now.done & (now.attempt <= attempts), advance=_advance)
    last = run(loop, fixed, start, cpu=last_eighth, gpu=last_eighth)
    qpos = _differentiable(problem, jax.lax.stop_gradient(last.best))
    pos, rot = _errors(problem, qpos)[0].sizes(goals)
    return IkResult(qpos=qpos, position_error=pos, rotation_error=rot, reached=last.done, iterations=last.total)


def _starts(model: Model, qpos: Array, search: _Search) -> Array:
    """(attempts, nq) the first positions of the searches: the given one, then random ones within the ranges.

    Hinges without a range and rotations of ball and free joints are displaced by up to half a turn; other translations
    are not.
    """
    topology = model.topology
    lower, upper = _bounds(model, search)
    draws = np.random.default_rng(SEED).uniform(-1, 1, (max(search.settings.attempts - 1, 0), model.nv))
    reach = np.pi * dofs_angular(topology.jnt_type)
    changes = draws * np.where(search.moving, reach, 0)
    ranged = jnp.isfinite(lower) & jnp.isfinite(upper)

    def displaced(draw: Array, change: Array) -> Array:
        # joints with a range move from their position to a random one within the range
        change = jnp.where(ranged, lower + 0.5 * (draw + 1) * (upper - lower) - _values(model, qpos), change)
        return integrate_position(model, qpos, change, jnp.ones((), qpos.dtype))

    others = jax.vmap(displaced)(jnp.asarray(draws, qpos.dtype), jnp.asarray(changes, qpos.dtype))
    return jnp.concatenate([_within(model, search, qpos)[None], others])


def _bounds(model: Model, search: _Search) -> tuple[Array, Array]:
    """(nv,) ranges of the hinges and slides that move, infinite for other dofs."""
    topology = model.topology
    joint = topology.dof_jntid
    scalar = is_scalar(topology.jnt_type)
    ranged = (np.asarray(topology.jnt_limited, bool) & scalar)[joint] & np.array(search.moving, bool)
    lower, upper = pick(model.jnt_range, joint).T
    return jnp.where(ranged, lower, -jnp.inf), jnp.where(ranged, upper, jnp.inf)


def _values(model: Model, qpos: Array) -> Array:
    """(nv,) the positions of hinges and slides; the values of other dofs have no meaning."""
    topology = model.topology
    return pick(qpos, topology.jnt_qposadr[topology.dof_jntid])


def _within(model: Model, search: _Search, qpos: Array) -> Array:
    """qpos with hinges and slides moved into their ranges."""
    values = _values(model, qpos)
    lower, upper = _bounds(model, search)
    # other dofs have infinite bounds and do not move
    change = jnp.clip(jnp.zeros_like(values), lower - values, upper - values)
    return integrate_position(model, qpos, change, jnp.ones((), qpos.dtype))


def _errors(problem: _Problem, qpos: Array) -> tuple[_Errors, Kinematics]:
    """Errors of the targets at a position, and the poses there."""
    model, goals = problem.model, problem.goals
    poses = compute_kinematics(model, qpos, *problem.mocap)

    def quaternion(kind: ObjType, index: int) -> Array:
        frame = FRAMES[kind]
        if frame.body is None or frame.quaternion is None:
            return poses.xquat[index]
        body = getattr(model.topology, frame.body)[index]
        return quat_mul(poses.xquat[body], quat_normalize(getattr(model, frame.quaternion)[index]))

    pos = [getattr(poses, FRAMES[kind].position)[index] for _, kind, index in goals.placed]
    quat = [quaternion(kind, index) for _, kind, index in goals.turned]
    return _Errors(
        pos=jnp.stack(pos) - goals.pos if pos else goals.pos,
        rot=quat_sub(jnp.stack(quat), quat_normalize(goals.quat)) if quat else goals.quat[:, :3],
    ), poses


def _slopes(problem: _Problem, errors: _Errors, poses: Kinematics) -> Array:
    """Derivatives (m, nv) of the weighted residuals with respect to changes of position."""
    model, goals = problem.model, problem.goals
    com = compute_com_frame(model, poses)

    def body_of(kind: ObjType, index: int) -> int:
        owner = FRAMES[kind].body
        return index if owner is None else int(getattr(model.topology, owner)[index])

    parts = []
    for row, (_, kind, index) in enumerate(goals.placed):
        point = getattr(poses, FRAMES[kind].position)[index]
        linear, _ = point_jacobian(model, com, point, np.array(body_of(kind, index)))
        parts.append(goals.pos_weight[row][:, None] * linear)
    for row, (_, kind, index) in enumerate(goals.turned):
        _, angular = point_jacobian(model, com, poses.xpos[0], np.array(body_of(kind, index)))
        # the angular velocity of the frame, in its own axes
        local = matmul(getattr(poses, FRAMES[kind].orientation)[index].T, angular)
        rates = rotvec_rate(jnp.broadcast_to(errors.rot[row], local.T.shape), local.T)
        parts.append(goals.rot_weight[row][:, None] * rates.T)
    return jnp.concatenate(parts)


def _advance(problem: _Problem, now: _State) -> _State:
    """One iteration: a step, its acceptance, and the end of a search."""
    model = problem.model
    goals = problem.goals
    settings = problem.search.settings
    stiffness = goals.posture**2
    step = _step(problem, now)
    stepped = integrate_position(model, now.qpos, step, jnp.ones((), step.dtype))
    # after the last search, the best one continues
    last = now.attempt >= settings.attempts
    begin = jnp.where(last, now.best, problem.starts[now.attempt])
    tried = jnp.where(now.fresh, begin, stepped)
    errors, poses = _errors(problem, tried)
    residual = errors.weighted(goals)
    cost = _cost(problem, tried, residual)
    better = now.fresh | (cost < now.cost)
    moved = _State(
        qpos=tried,
        residual=residual,
        slopes=_slopes(problem, errors, poses),
        cost=cost,
        damping=jnp.where(now.fresh, FIRST_DAMPING, DAMPING_DOWN * now.damping),
        number=now.number,
        total=now.total,
        attempt=now.attempt,
        fresh=jnp.zeros((), bool),
        best=now.best,
        least=now.least,
        done=now.done,
    )
    after = where_tree(better, moved, now._replace(damping=DAMPING_UP * now.damping))
    # a search ends if the targets are reached, or if the cost no longer falls
    near = jnp.all(jnp.concatenate(errors.sizes(goals)) <= settings.tolerance)
    enough = jnp.where(near | last, EXACT * jnp.finfo(cost.dtype).eps, LEAST_DECREASE)
    little = better & ~now.fresh & (now.cost - cost <= enough * now.cost)
    still = little | (after.damping > MOST_DAMPING) | (now.number + 1 >= settings.iterations)
    reached = better & near & (still | (stiffness == 0))
    ended = reached | still
    lowest = after.cost < now.least
    return after._replace(
        number=jnp.where(ended, 0, now.number + 1),
        total=now.total + 1,
        attempt=now.attempt + ended,
        fresh=ended,
        best=jnp.where(ended & (reached | lowest), after.qpos, now.best),
        least=jnp.where(ended & lowest, after.cost, now.least),
        done=reached,
    )


def _cost(problem: _Problem, qpos: Array, residual: Array) -> Array:
    """1/2 |W r|^2 + 1/2 posture^2 |q - q0|^2, for the weighted residuals at a position."""
    away = position_difference(problem.model, qpos, problem.begin)
    return 0.5 * jnp.sum(residual**2) + 0.5 * problem.goals.posture**2 * jnp.sum(away**2)


def _step(problem: _Problem, now: _State) -> Array:
    """(nv,) the damped Gauss-Newton step of the joints that may move, within the ranges."""
    model = problem.model
    stiffness = problem.goals.posture**2
    away = position_difference(model, now.qpos, problem.begin)
    slope = matmul(now.slopes.T, now.residual) + stiffness * away
    values = _values(model, now.qpos)
    lower, upper = _bounds(model, problem.search)
    free = _free(problem, now.qpos, slope)
    matrix = jnp.where(free[:, None] & free[None], matmul(now.slopes.T, now.slopes), 0)
    diagonal = jnp.diagonal(matrix)
    floor = FLOOR * math.sqrt(jnp.finfo(slope.dtype).eps) * jnp.max(diagonal)
    cost = jnp.where(now.fresh, 0, now.cost)
    damping = jnp.where(free, stiffness + now.damping * cost + floor, 1)
    # the step is zero where no joint moves anything: keep the matrix positive definite
    damping = jnp.where(diagonal + damping > 0, damping, 1)
    step = solve_spd(matrix + jnp.diag(damping), jnp.where(free, -slope, 0))
    step = jnp.clip(step, -LONGEST, LONGEST)
    return jnp.clip(step, lower - values, upper - values)


def _free(problem: _Problem, qpos: Array, slope: Array) -> Array:
    """(nv,) bool, the dofs that may move, and that no range stops on the way down the slope (nv,) of the cost."""
    lower, upper = _bounds(problem.model, problem.search)
    values = _values(problem.model, qpos)
    held = ((values <= lower) & (slope > 0)) | ((values >= upper) & (slope < 0))
    return jnp.array(problem.search.moving, bool) & ~held


def _differentiable(problem: _Problem, qpos: Array) -> Array:
    """The solution, with its implicit derivative."""
    one = jnp.ones((), qpos.dtype)

    def slope(problem: _Problem, change: Array) -> Array:
        def cost(change: Array) -> Array:
            moved = integrate_position(problem.model, qpos, change, one)
            return _cost(problem, moved, _errors(problem, moved)[0].weighted(problem.goals))

        return jax.grad(cost)(change)

    fixed = jax.lax.stop_gradient(problem)
    zero = jnp.zeros(problem.model.nv, qpos.dtype)
    free = _free(fixed, qpos, slope(fixed, zero))

    def root(problem: _Problem, change: Array) -> Array:
        """Zero at the solution: the slope for free dofs, and the distance from the held position for the others."""
        values = _values(problem.model, qpos)
        lower, upper = _bounds(problem.model, problem.search)
        bound = jnp.where(values >= upper, upper, jnp.where(values <= lower, lower, values))
        bound = bound - jax.lax.stop_gradient(bound)
        given = position_difference(problem.model, problem.begin, jax.lax.stop_gradient(problem.begin))
        held = jnp.where(np.array(problem.search.moving, bool), bound, given)
        return jnp.where(free, slope(problem, change), change - held)

    matrix = jax.jacfwd(lambda change: root(fixed, change))(zero)
    return integrate_position(problem.model, qpos, _moves(matrix, root(problem, zero)), one)


@jax.custom_jvp
def _moves(matrix: Array, root: Array) -> Array:
    """Zero, with the derivative -matrix^+ d root."""
    return jnp.zeros_like(root)


@_moves.defjvp
def _moves_jvp(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    """The derivative that `_moves` promises."""
    matrix, root = primals
    return jnp.zeros_like(root), -matmul(jnp.linalg.pinv(matrix), tangents[1])

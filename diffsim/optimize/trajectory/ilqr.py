"""iLQR: trajectory optimization by Gauss-Newton steps on the controls, with feedback.

Each iteration linearizes the motion (all steps at once), solves the linear-quadratic problem backwards in time, and
tries step sizes, two side by side, until one lowers the cost, with feedback:

    u_t = clip(u^_t + alpha k_t + K_t (x_t - x^_t)),    alpha = 1, 1/2, 1/4, ...

where x - x^ is in tangent coordinates. Controls stay within their bounds: k_t minimizes the quadratic model within
them, and K_t has zero rows for controls at a bound (`box_qp`). The regularization mu/2 |u_t - u^_t|^2 is added to the
model's cost: mu falls after a whole step, and grows after a step of a quarter or less (Levenberg and Marquardt).

Under `jax.vmap`, some problems of a batch run side by side, and when one has ended, the next one begins
(batched_loops.py). At the end, small noise on the controls is tried: where contacts begin or end, the cost jumps, and a
gradient of zero does not prove that the motion is a minimum.

Sources: Li and Todorov 2004; Tassa, Erez and Todorov 2012; Tassa, Mansard and Todorov 2014 (control limits); Bertsekas
1982 (projected Newton).
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.checked import checked
from diffsim.math import safe
from diffsim.math.linalg import cho_solve, cholesky
from diffsim.math.vector import inner, matmul
from diffsim.optimize.linearize import refuse_delays
from diffsim.optimize.tangent import difference, tangent_size
from diffsim.optimize.trajectory.task import (
    LinearQuadratic,
    Task,
    Trajectory,
    controls_of,
    expand,
    follow,
    simulate_step,
    split_step,
)
from diffsim.types import State
from diffsim.types.record import Record, leaf, record, static, whole_number
from diffsim.xla.batched_loops import Explicit, Loop, run, slots, together
from diffsim.xla.batched_searches import in_groups
from diffsim.xla.compiled import by_hand, jit
from diffsim.xla.loops import cond
from diffsim.xla.reverse_mode import SplitFunction
from diffsim.xla.select import where_tree

# the least regularization mu, in units of cost per squared control: a smaller one has no effect
LEAST_MU = 1e-8
# the largest mu: with a larger one, controls do not change at all
LARGEST_MU = 1e8
# mu changes by this factor in an iteration
MU_FACTOR = 4.0
# mu falls after steps of at least this size ...
WHOLE_STEP = 1.0
# ... and grows after steps of at most this size
SMALL_STEP = 0.25
# number of problems of a batch that run side by side on a CPU; more of them do not fit into the cache
SLOTS = 32
# number of problems of a batch that search for a step size side by side; when one has found it, the next one begins
SEARCHES = 16
# number of problems of a batch that are linearized side by side on a CPU; more of them do not fit into the cache
LINEARIZED = 4
# number of step sizes that are tried side by side
SIZES_AT_ONCE = 2
# the motion is not a minimum if derivatives predict that a step lowers the cost by more than this share, but it does
# not
PROMISED = 1e-2
# it is not a minimum if more than this share of the cost does not depend on any control
UNREACHED = 1e-2
# it is not a minimum if small noise changes the cost by more than derivatives predict plus this share
LEAPS = 3e-3
# how often noise is tried, each time with both signs
PROBES = 2
# standard deviation of this noise, as a fraction of half the range of a control
PROBE_NOISE = 3e-3
# box_qp tries these fractions of a Newton step
LENGTHS = (1.0, 0.5, 0.1)
# a change below this number of machine epsilons is rounding
ROUNDING = 16.0


@record
class Ilqr(Record):
    """Settings of `ilqr`.

    Attributes:
      iterations: largest number of iterations.
      step_sizes: largest number of step sizes 1, 1/2, 1/4 ... that are tried.
      tolerance: the search ends when an iteration lowers the cost by less than this share.
      regularization: the first mu.
      slots: number of problems of a batch that run side by side; 0 for 32 on a CPU, and for all elsewhere.
      quick_compile: whether to compile in half of the time, to a program that takes three times as long; None for True
        if `ilqr` is called outside of `jax.jit`. Within your own jitted program, which has its own compiler options,
        True only computes the derivatives with respect to all coordinates in one pass.
    """

    iterations: int = static(whole_number, default=100)
    step_sizes: int = static(whole_number, default=10)
    tolerance: float = static(default=1e-7)
    regularization: float = static(default=1e-6)
    slots: int = static(whole_number, default=0)
    quick_compile: bool | None = static(default=None)


@record
class Plan(Trajectory):
    """A motion with its feedback: u = ctrl[t] + gains[t] difference(model, state, states[t]).

    Attributes:
      gains: (T, nu, 2 nv + na), of the last iteration.
      iterations: number of iterations.
      converged: whether this is a local minimum as far as derivatives tell: the last iteration reduced the cost by next
        to nothing, and the three shares below are small.
      promised: share of the cost by which derivatives promised a reduction that no step reached.
      unreached: share of the cost that does not depend on any control, such as the pose of a body that nothing touches.
      leaps: share of the cost by which its change under small noise on the controls exceeds the prediction by
        derivatives.

    `advice` says this in a sentence.
    """

    gains: Array = leaf("T", "nu", "nx")
    iterations: Array = leaf(dtype=int)
    converged: Array = leaf(dtype=bool)
    promised: Array = leaf()
    unreached: Array = leaf()
    leaps: Array = leaf()

    @property
    def advice(self) -> str:
        """How far to trust one plan, in a sentence; not for a batch."""
        if not np.isfinite(float(self.cost)):
            return "Do not use it: the motion diverged; see diffsim.check."
        if not np.isfinite(np.asarray(self.gains)).all():
            return "Not a minimum, and no feedback: derivatives along the motion are not finite."
        shares = (self.unreached, self.promised, self.leaps)
        unreached, promised, leaps = (f"{float(share):.0%} of the cost" for share in shares)
        if float(self.unreached) > UNREACHED:
            return f"Not a minimum: no derivative reaches {unreached}; search first with optimize.plan."
        if float(self.promised) > PROMISED:
            return f"Not a minimum: derivatives promise {promised}, but no step gains it; search with optimize.plan."
        if float(self.leaps) > LEAPS:
            return f"Not a minimum: small noise changes the cost by a jump ({leaps}); search with optimize.plan."
        if not bool(self.converged):
            return "Not a minimum yet: the cost was still falling when the iterations were used up."
        return "A local minimum, as far as derivatives tell; a search (optimize.plan) may find a lower one."


# for one time step: step (nu,), gains (nu, nx), and the first-order decrease of the cost by the step
Policy = tuple[Array, Array, Array]
# the best of some step sizes: its motion, the arrays that derivatives need, the step size, and the largest cost of all
Trial = tuple[Trajectory, Any, Array, Array]


class _Iterate(NamedTuple):
    """The state of the iteration: the best motion so far, and the step that is tried next.

    Before the first motion, `iterations` is -1, the step is zero and the cost is infinite, so that the same part of the
    program simulates the first motion and all later ones.

    Attributes:
      path: the best motion.
      needed: arrays of its simulation that derivatives along it need (`split_function`).
      step: (T, nu) the next step.
      gains: (T, nu, nx) the feedback of this step.
      expected: the decrease of the cost by the step that derivatives predict; while noise is tried, its predicted
        change.
      promised: the largest `expected` since the motion last changed. (While steps fail, mu grows, and later steps are
        shorter and promise less.)
      unreached: the part of the cost that does not depend on any control.
      leaps: the largest change of the cost under noise, minus the predicted change.
      probes: how often noise will still be tried as a step; 0 while the cost falls.
      mu: the regularization.
      iterations: number of iterations.
      done: whether the iteration has ended.
      converged: whether it ended at a minimum.
    """

    path: Trajectory
    needed: Any
    step: Array
    gains: Array
    expected: Array
    promised: Array
    unreached: Array
    leaps: Array
    probes: Array
    mu: Array
    iterations: Array
    done: Array
    converged: Array


class _LineSearch(NamedTuple):
    """The state of a line search.

    Attributes:
      turn: number of groups of step sizes that were tried.
      most: largest number of groups to try.
      trial: the best motion of the last group.
      cost: the search ends at a motion with a lower cost.
    """

    turn: Array
    most: Array
    trial: Trial
    cost: Array


@checked
def ilqr(task: Task, state: State, ctrl: Array, settings: Ilqr | None = None) -> Plan:
    """Finds a local minimum of the cost by iLQR, from a guess. Batch it with `jax.vmap` over states and controls.

    Args:
      task: costs and bounds.
      state: where the motion begins.
      ctrl: (T, nu) initial guess.
      settings: None for `Ilqr()`.

    Returns:
      The plan, without derivatives with respect to the arguments (use `shooting` or `evaluate` for these).

    Raises:
      UnsupportedError: a model with delays.
      ValueError: controls of the wrong shape.
    """
    settings = Ilqr() if settings is None else settings
    if settings.quick_compile is None:
        settings = settings.replace(quick_compile=by_hand(task, state, ctrl))
    return (_descend_soon if settings.quick_compile else _descend)(task, state, ctrl, settings)


def _solve(task: Task, state: State, ctrl: Array, settings: Ilqr) -> Plan:
    """The iteration: prepare a step, search for its size, accept or reject."""
    ctrl = controls_of(task, ctrl)
    refuse_delays(task.model)
    split = split_step(task, state, ctrl[0])

    def advance(task: Task, iterate: _Iterate) -> _Iterate:
        prepared = _prepare(task, iterate, split, bool(settings.quick_compile))
        return _accept(prepared, *_line_search(task, prepared, split, settings.step_sizes), settings)

    def unfinished(iterate: _Iterate) -> Array:
        return ~iterate.done & ((iterate.iterations < settings.iterations) | (iterate.probes != 0))

    start = _start(task, state, ctrl, split, settings)
    cpu, gpu = slots(settings.slots or SLOTS), slots(settings.slots or 0)
    end = run(Loop(unfinished, advance), task, start, cpu=cpu, gpu=gpu)
    best = end.path
    return Plan(
        states=best.states,
        ctrl=best.ctrl,
        cost=best.cost,
        status=best.status,
        gains=end.gains,
        iterations=end.iterations,
        converged=end.converged,
        promised=safe.divide(end.promised, best.cost),
        unreached=safe.divide(end.unreached, best.cost),
        leaps=safe.divide(end.leaps, best.cost),
    )


_descend = jit(_solve)
_descend_soon = jit(_solve, quick=True)


def _line_search(task: Task, iterate: _Iterate, split: SplitFunction, count: int) -> Trial:
    """The motion of least cost in the first group of step sizes that lowers the cost; the last one if none does."""
    exponents = np.minimum(np.arange(-(-count // SIZES_AT_ONCE) * SIZES_AT_ONCE), count - 1).reshape(-1, SIZES_AT_ONCE)
    sizes = jnp.asarray(0.5**exponents, iterate.path.ctrl.dtype)

    def further(given: tuple[Task, _Iterate], search: _LineSearch) -> _LineSearch:
        task, iterate = given
        # noise with both signs instead of step sizes
        lengths = jnp.where(iterate.probes > 0, sizes[0, 0] * (-1) ** np.arange(SIZES_AT_ONCE), sizes[search.turn])
        return search._replace(turn=search.turn + 1, trial=_try_sizes(task, iterate, split, lengths))

    def unfinished(search: _LineSearch) -> Array:
        return (search.turn < search.most) & ~(search.trial[0].cost < search.cost)

    # the first motion, and motions with noise, are simulated once, without a search
    once = (iterate.iterations < 0) | (iterate.probes > 0)
    cost = iterate.path.cost
    start = _LineSearch(
        turn=jnp.asarray(0),
        most=jnp.where(once, 1, len(sizes)),
        trial=(iterate.path, iterate.needed, sizes[0, 0], cost),
        cost=cost,
    )
    return run(Loop(unfinished, further), (task, iterate), start, cpu=slots(SEARCHES), gpu=together).trial


def _start(task: Task, state: State, ctrl: Array, split: SplitFunction, settings: Ilqr) -> _Iterate:
    """The guess, not yet simulated, with a step of zero and no feedback."""
    zero = jnp.zeros((), ctrl.dtype)
    count = jnp.zeros((), jnp.int32)
    no = jnp.zeros((), bool)
    states = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (len(ctrl) + 1, *leaf.shape)), state)
    shapes = jax.eval_shape(functools.partial(simulate_step, split), task, state, ctrl[0], jnp.asarray(False))[1]
    return _Iterate(
        path=Trajectory(states=states, ctrl=ctrl, cost=zero + jnp.inf, status=count),
        needed=jax.tree.map(lambda x: jnp.zeros((len(ctrl) + 1, *x.shape), x.dtype), shapes),
        step=jnp.zeros_like(ctrl),
        gains=jnp.zeros((*ctrl.shape, tangent_size(task.model)), ctrl.dtype),
        expected=zero,
        promised=zero,
        unreached=zero,
        leaps=zero,
        probes=count,
        mu=zero + settings.regularization,
        iterations=count - 1,
        done=no,
        converged=no,
    )


def _try_sizes(task: Task, iterate: _Iterate, split: SplitFunction, sizes: Array) -> Trial:
    """The motion with the lowest cost among those of some step sizes, with feedback."""
    path = iterate.path
    state = jax.tree.map(lambda leaf: leaf[0], path.states)
    before = jax.tree.map(lambda leaf: leaf[:-1], path.states)
    rows = (before, path.ctrl, iterate.step, iterate.gains)

    def motion(size: Array) -> tuple[Trajectory, Any]:
        def law(now: State, row: tuple[State, Array, Array, Array]) -> Array:
            planned, ctrl, step, gain = row
            return ctrl + size * step + matmul(gain, difference(task.model, now, planned))

        return follow(task, state, law, rows, path.ctrl.shape[0], functools.partial(simulate_step, split))

    tried, needed = jax.vmap(motion)(sizes)
    costs = jnp.where(jnp.isfinite(tried.cost), tried.cost, jnp.inf)
    return *jax.tree.map(lambda leaf: leaf[jnp.argmin(costs)], (tried, needed, sizes)), jnp.max(costs)


def _accept(iterate: _Iterate, tried: Trajectory, needed: Any, size: Array, worst: Array, settings: Ilqr) -> _Iterate:
    """The next iterate: the new motion if it is better, a new mu, and whether to go on, to try noise, or to stop."""
    old = iterate.path
    first = iterate.iterations < 0
    probing = iterate.probes > 0
    gain = old.cost - tried.cost
    # while noise is tried, only a jump of the cost counts as better: small gains by chance do not lead to a minimum
    better = first | jnp.where(probing, gain > LEAPS * old.cost, gain > 0)
    least = settings.tolerance * jnp.abs(old.cost)
    # after a failed step, more regularization is tried, unless nothing was to be gained or mu is at its limit
    over = better | (iterate.expected <= least) | (iterate.mu >= LARGEST_MU)
    settled = ~probing & ~(gain > least) & jnp.isfinite(old.cost) & over
    # derivatives say that it is a minimum; then noise decides
    believed = settled & (iterate.promised <= PROMISED * old.cost) & (iterate.unreached <= UNREACHED * old.cost)
    change = jnp.where(
        better & (size >= WHOLE_STEP), 1 / MU_FACTOR, jnp.where(better & (size > SMALL_STEP), 1.0, MU_FACTOR)
    )
    mu = jnp.clip(iterate.mu * jnp.where(first | probing, 1.0, change), LEAST_MU, LARGEST_MU)
    path, needed = where_tree(better, (tried, needed), (old, iterate.needed))
    # a change up to twice the predicted one does not count as a jump
    leap = jnp.maximum(worst - old.cost, gain) - 2 * iterate.expected
    leaps = jnp.where(probing & ~better, jnp.maximum(iterate.leaps, leap), 0)
    believed &= jnp.isfinite(iterate.expected)
    probes = jnp.where(believed, PROBES, jnp.where(better, 0, jnp.maximum(iterate.probes - 1, 0)))
    tested = probing & ~better & (probes == 0)
    return iterate._replace(
        path=path,
        needed=needed,
        promised=jnp.where(better & (gain > least), 0, iterate.promised),
        leaps=leaps,
        probes=probes,
        mu=mu,
        iterations=iterate.iterations + jnp.where(probing, 0, 1),
        done=(settled & ~believed) | tested | ~jnp.isfinite(path.cost),
        converged=tested & (leaps <= LEAPS * old.cost),
    )


def _prepare(task: Task, iterate: _Iterate, split: SplitFunction, at_once: bool) -> _Iterate:
    """The iterate with its next step and gains; or, while noise is tried, with noise and its predicted change."""
    has_moved = iterate.iterations >= 0
    path = iterate.path
    given = task, path.states, path.ctrl, iterate.needed
    expansion = Explicit.of(functools.partial(expand, together=at_once, step=split), *given)
    system = in_groups(
        lambda moved, held_and_given: cond(moved, lambda: expansion.call(*held_and_given), expansion.zeros),
        has_moved,
        (expansion.held, *given),
        at_once=LINEARIZED,
    )
    step, gains, gain = backward(task, system, path.ctrl, iterate.mu)
    # `gain` is NaN if the quadratic model has no minimum because of rounding; with more regularization it has one
    expected = jnp.where(jnp.isfinite(jnp.sum(gain)), jnp.sum(gain), jnp.inf)
    promised = jnp.maximum(iterate.promised, jnp.where(jnp.isfinite(expected), expected, 0))
    usual = iterate._replace(step=step, gains=gains, expected=expected, promised=promised, unreached=system.unreached())
    # the same noise in every call, scaled by the ranges of the controls, or by the controls where there is no range
    drawn = np.random.default_rng(0).normal(size=(PROBES, *step.shape))
    half = 0.5 * (task.upper - task.lower)
    size = PROBE_NOISE * jnp.where(jnp.isfinite(half), half, jnp.max(jnp.abs(path.ctrl), axis=0))
    size, lower, upper = (jnp.broadcast_to(x, step.shape) for x in (size, task.lower, task.upper))
    noise = size * jnp.asarray(drawn, step.dtype)[iterate.probes - 1]
    sides = jnp.clip(jnp.stack([path.ctrl + noise, path.ctrl - noise]), lower[None], upper[None]) - path.ctrl[None]
    predicted = jnp.max(jax.vmap(system.change, (0, None))(sides, iterate.gains))
    probe = iterate._replace(step=noise, expected=predicted)
    return jax.tree.map(lambda a, b: jnp.where(iterate.probes > 0, a, b), probe, usual)


def backward(task: Task, system: LinearQuadratic, ctrl: Array, mu: Array) -> Policy:
    """The backward pass: the policy that minimizes the linear-quadratic model of the cost.

    V(dx) = s^T dx + 1/2 dx^T V_xx dx is the least cost-to-go from the next state. The cost-to-go from this state is
    Q(dx, du) = 1/2 |r + r_x dx + r_u du|^2 + V(A dx + B du) + mu/2 |du|^2. Its derivatives at zero are

        Q_x  = r_x^T r + A^T s              Q_uu = r_u^T r_u + B^T V_xx B + mu I
        Q_u  = r_u^T r + B^T s              Q_ux = r_u^T r_x + B^T V_xx A

    and du = k + K dx minimizes it within the bounds (`box_qp`). The minimum is the cost-to-go V of this state.

    Args:
      task: its bounds.
      system: the linear-quadratic model, T + 1 rows.
      ctrl: (T, nu) controls of the motion.
      mu: () regularization.

    Returns:
      Steps k (T, nu), gains K (T, nu, nx), and the first-order decrease of the cost by each step (T,).
    """
    *_, r, r_x, _ = (leaf[-1] for leaf in system)
    end = (matmul(r_x.T, r), matmul(r_x.T, r_x))

    def stage(value: tuple[Array, Array], row: tuple[LinearQuadratic, Array]) -> tuple[tuple[Array, Array], Policy]:
        (A, B, r, r_x, r_u), now = row
        slope, curvature = value
        Q_x = matmul(r_x.T, r) + matmul(A.T, slope)
        Q_u = matmul(r_u.T, r) + matmul(B.T, slope)
        ahead = matmul(curvature, B)
        Q_uu = matmul(r_u.T, r_u) + matmul(B.T, ahead) + mu * jnp.eye(now.size, dtype=now.dtype)
        Q_ux = matmul(r_u.T, r_x) + matmul(ahead.T, A)
        step, gain = box_qp(Quadratic(Q_uu, Q_u, Q_ux), task.lower - now, task.upper - now)
        slope = Q_x + matmul(gain.T, Q_u) + matmul((matmul(Q_uu, gain) + Q_ux).T, step)
        # V_xx as a sum of squares along the closed loop A + B K, which rounding cannot make indefinite; it could make
        # Q_xx - Q_xu Q_uu^-1 Q_ux indefinite
        closed = A + matmul(B, gain)
        left = r_x + matmul(r_u, gain)
        curvature = matmul(left.T, left) + matmul(closed.T, matmul(curvature, closed)) + mu * matmul(gain.T, gain)
        return (slope, 0.5 * (curvature + curvature.T)), (step, gain, -inner(Q_u, step))

    stages = jax.tree.map(lambda leaf: leaf[:-1], system)
    return jax.lax.scan(stage, end, (stages, ctrl), reverse=True)[1]


class Quadratic(NamedTuple):
    """The quadratic program of `box_qp`: H (n, n), positive definite; g (n,); G (n, m)."""

    hessian: Array
    gradient: Array
    mixed: Array


def box_qp(quadratic: Quadratic, lower: Array, upper: Array) -> tuple[Array, Array]:
    """Solves a small quadratic program in a box, with the derivative of its solution with respect to a parameter.

        minimize 1/2 u^T H u + (g + G x)^T u,  lower <= u <= upper,  at x = 0

    It uses projected Newton steps (Bertsekas 1982): variables that press against a bound are held, and the others take
    the Newton step of the remaining problem. Several lengths of the step are tried, clipped to the box; one of them
    ends where the first variable meets its bound. Newton's step of each variable alone is tried too: even where
    clipping spoils the common step, one of these lowers the cost, unless u is the solution. du/dx is -H_ff^-1 G_f for
    the free variables f, and 0 for the held ones.

    Args:
      quadratic: H, g and G.
      lower, upper: (n,) bounds, which may be infinite.

    Returns:
      The solution (n,) and its derivative (n, m).
    """
    hessian, gradient, mixed = quadratic

    def cost(u: Array) -> Array:
        return inner(u, gradient + 0.5 * matmul(hessian, u))

    def improve(point: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        u, _, steps = point
        slope = gradient + matmul(hessian, u)
        step = -_solve_free(hessian, _free(u, slope, lower, upper), slope)
        room = jnp.where(step > 0, upper - u, u - lower)
        share = jnp.where((step != 0) & (room > 0), safe.divide(room, jnp.abs(step), 1.0), 1.0)
        # to the first bound and a rounding error beyond it, so that clipping puts the variable exactly at the bound
        rounding = ROUNDING * float(jnp.finfo(u.dtype).eps)
        lengths = jnp.append(jnp.asarray(LENGTHS, u.dtype), jnp.minimum((1 + rounding) * jnp.min(share), 1.0))
        moves = jnp.concatenate([jax.vmap(lambda length: length * step)(lengths), jnp.diag(-slope / jnp.diag(hessian))])
        trials = jax.vmap(lambda move: jnp.clip(u + move, lower, upper))(moves)
        best = trials[jnp.argmin(jax.vmap(cost)(trials))]
        return best, jnp.all(jnp.abs(best - u) <= rounding * (1e-10 + jnp.abs(u))), steps + 1

    def unfinished(point: tuple[Array, Array, Array]) -> Array:
        return ~point[1] & (point[2] < 4 + 4 * gradient.size)

    target = -cho_solve(cholesky(hessian), gradient)
    u = jnp.clip(target, lower, upper)
    # there is nothing more to do if the minimum is within the box, or for a single variable, which clipping solves
    if gradient.size > 1:
        u = jax.lax.while_loop(unfinished, improve, (u, jnp.all(u == target), jnp.zeros((), jnp.int32)))[0]
    free = _free(u, gradient + matmul(hessian, u), lower, upper)
    return u, -_solve_free(hessian, free, mixed)


def _free(u: Array, slope: Array, lower: Array, upper: Array) -> Array:
    """(n,) bool: the variables that do not press against a bound."""
    return ~((u <= lower) & (slope > 0)) & ~((u >= upper) & (slope < 0))


def _solve_free(hessian: Array, free: Array, b: Array) -> Array:
    """H_ff^-1 b_f for the free variables, zero for the others; b is (n,) or (n, m)."""
    both = free[:, None] & free[None, :]
    factor = cholesky(jnp.where(both, hessian, jnp.eye(free.size, dtype=hessian.dtype)))
    mask = free if b.ndim == 1 else free[:, None]
    return jnp.where(mask, cho_solve(factor, jnp.where(mask, b, 0)), 0)

"""iLQR: trajectories by Gauss-Newton steps on the controls, with feedback.

Each iteration linearizes the motion (all steps at once), solves the linear-quadratic problem backwards in time, and
tries step sizes, two side by side, until one lowers the cost, with feedback:

    u_t = clip(u^_t + alpha k_t + K_t (x_t - x^_t)),    alpha = 1, 1/2, 1/4, ...

(x - x^ in tangent coordinates). Controls stay in their bounds: k_t is the minimum of the quadratic model inside of
them, and K_t has no rows of controls that are held (`box_qp`). The model's cost has mu/2 |u_t - u^_t|^2 more: mu falls
where a whole step was taken, and grows where a quarter of it or less was (Levenberg and Marquardt). Of a batch under
`jax.vmap` some problems run side by side, and the next begins where one has ended (batched_loops.py). Where it ends
small noise on the controls is tried: where contacts come and go the cost leaps, and a slope of zero says nothing.
Sources: Li, Todorov 2004; Tassa, Erez, Todorov 2012; Tassa, Mansard, Todorov 2014; Bertsekas 1982 (projected Newton).
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
    record_of,
    simulated,
)
from diffsim.types import State
from diffsim.types.record import Record, leaf, record, static, whole_number
from diffsim.xla.batched_loops import Explicit, Loop, in_groups, run, slots, together
from diffsim.xla.compiled import by_hand, jit
from diffsim.xla.reverse_mode import Recorded
from diffsim.xla.select import where_tree

# bounds and factor of the regularization mu
SMALLEST, LARGEST, FACTOR = 1e-8, 1e8, 4.0
# step sizes from which mu falls, and down from which it grows
WHOLE, SMALL = 1.0, 0.25
# problems of a batch that run side by side on a CPU; how many of them search for a step size at once, those that need
# more tries in turn; and how many are linearized at once: what more of them need leaves the cache
SLOTS, SEARCHES, LINEARIZED = 32, 16, 4
# step sizes that are tried side by side
TOGETHER = 2
# no minimum: shares of the cost that are promised but not gained, that no derivative reaches, that noise changes
PROMISED, UNREACHED, LEAPS = 1e-2, 1e-2, 3e-3
# how often noise is tried, to both sides, and its deviation in half ranges of the controls
PROBES, PROBED = 2, 3e-3
# of box_qp: parts of a Newton step; what is left of one is rounding below this many machine epsilons
LENGTHS, ROUNDING = (1.0, 0.5, 0.1), 16.0


@record
class Ilqr(Record):
    """Settings: when to stop, how many step sizes 1, 1/2, 1/4 ... are tried at most, and the first mu.

    It ends when an iteration gains less than `tolerance` times the cost. `slots` is how many problems of a batch run
    side by side; 0 for 32 on a CPU, and for all of them elsewhere. With `quick_compile` the program compiles in half of
    the time and runs three times as long; None for this where `ilqr` is called by hand. Within a program of yours,
    whose options are yours, it means that derivatives by all coordinates are one pass.
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

    `gains` are (T, nu, 2 nv + na), of the last iteration. `converged` tells that this is a minimum, as far as
    derivatives tell: the last iteration gained next to nothing, and little of the cost is `promised` by a step, and not
    gained; `unreached` by derivatives, as the pose of what is not touched; or `leaps` where small noise on controls
    changes it by more than derivatives say. These are shares of the cost; `advice` says it.
    """

    gains: Array = leaf("T", "nu", "nx")
    iterations: Array = leaf(dtype=int)
    converged: Array = leaf(dtype=bool)
    promised: Array = leaf()
    unreached: Array = leaf()
    leaps: Array = leaf()

    @property
    def advice(self) -> str:
        """What to make of it, in a sentence; of one plan, not of a batch."""
        if not np.isfinite(float(self.cost)):
            return "Do not use it: the motion diverged; see diffsim.check."
        if not np.isfinite(np.asarray(self.gains)).all():
            return "No minimum of the task, and no feedback: derivatives along the motion are not finite."
        shares = (self.unreached, self.promised, self.leaps)
        unreached, promised, leaps = (f"{float(share):.0%} of the cost" for share in shares)
        if float(self.unreached) > UNREACHED:
            return f"No minimum of the task: no derivative reaches {unreached}: search first, optimize.plan."
        if float(self.promised) > PROMISED:
            return f"No minimum of the task: derivatives promise {promised}, no step gains it: search, optimize.plan."
        if float(self.leaps) > LEAPS:
            return f"No minimum that derivatives tell: small noise changes {leaps} at once: search, optimize.plan."
        if not bool(self.converged):
            return "Not at a minimum yet: it still gained when the iterations were used up."
        return "A minimum of the task as far as derivatives see; a search (optimize.plan) may find a lower one."


# step (nu,), gains (nu, nx), and the cost that the step would save to first order
Stage = tuple[Array, Array, Array]
# a motion that was tried, what its derivatives need, its step size, and the most that one tried beside it costs
Trial = tuple[Trajectory, Any, Array, Array]


class _Progress(NamedTuple):
    """The best motion so far, the next step (T, nu) and gains to try from it, mu, and how it goes.

    `needed` is what derivatives along the path need of its steps (`recorded`).
    Before the first motion, `iterations` is -1 and the step is nothing, from one that costs more than any: all motions
    are simulated by the same part of the program.
    `expected` is what the step would gain if the model were exact to first order, `promised` the most of it since the
    motion last changed: mu makes steps small that lead nowhere. `unreached` is the cost that no control has a part in.
    `probes` is how often noise is still to be tried as a step, of which `expected` is what derivatives say that it
    changes, and `leaps` what it changed beside that; 0 while it descends.
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


class _Search(NamedTuple):
    """How many pairs of step sizes were tried, and may be; the best of the last; and the cost that is to be lowered."""

    turn: Array
    most: Array
    trial: Trial
    cost: Array


@checked
def ilqr(task: Task, state: State, ctrl: Array, settings: Ilqr | None = None) -> Plan:
    """The motion of least cost near given controls. Batch it with `jax.vmap` over states and controls.

    Args:
      task: costs and bounds.
      state: where the motion begins.
      ctrl: (T, nu) the first guess.
      settings: None for `Ilqr()`.

    Returns:
      The plan; its derivatives with respect to the arguments are not defined (use `shooting` or `evaluate`).

    Raises:
      UnsupportedError: a model with delays. ValueError: controls of a wrong shape.
    """
    settings = Ilqr() if settings is None else settings
    if settings.quick_compile is None:
        settings = settings.replace(quick_compile=by_hand(task, state, ctrl))
    return (_descend_soon if settings.quick_compile else _descend)(task, state, ctrl, settings)


def _solve(task: Task, state: State, ctrl: Array, settings: Ilqr) -> Plan:
    """The plan."""
    ctrl = controls_of(task, ctrl)
    refuse_delays(task.model)
    record = record_of(task, state, ctrl[0])

    def advance(task: Task, progress: _Progress) -> _Progress:
        ready = _prepare(task, progress, record, bool(settings.quick_compile))
        return _accept(ready, *_search(task, ready, record, settings.step_sizes), settings)

    def unfinished(progress: _Progress) -> Array:
        return ~progress.done & ((progress.iterations < settings.iterations) | (progress.probes != 0))

    start = _start(task, state, ctrl, record, settings)
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


_descend, _descend_soon = jit(_solve), jit(_solve, quick=True)


def _search(task: Task, progress: _Progress, record: Recorded, count: int) -> Trial:
    """The motion of least cost among the first few step sizes of which one lowers it; any where none of all does."""
    exponents = np.minimum(np.arange(-(-count // TOGETHER) * TOGETHER), count - 1).reshape(-1, TOGETHER)
    sizes = jnp.asarray(0.5**exponents, progress.path.ctrl.dtype)

    def further(given: tuple[Task, _Progress], search: _Search) -> _Search:
        task, progress = given
        lengths = jnp.where(progress.probes > 0, sizes[0, 0] * (-1) ** np.arange(TOGETHER), sizes[search.turn])
        return search._replace(turn=search.turn + 1, trial=_try(task, progress, record, lengths))

    def unfinished(search: _Search) -> Array:
        return (search.turn < search.most) & ~(search.trial[0].cost < search.cost)

    once, cost = (progress.iterations < 0) | (progress.probes > 0), progress.path.cost
    first = (progress.path, progress.needed, sizes[0, 0], cost)
    start = _Search(jnp.asarray(0), jnp.where(once, 1, len(sizes)), first, cost)
    return run(Loop(unfinished, further), (task, progress), start, cpu=slots(SEARCHES), gpu=together).trial


def _start(task: Task, state: State, ctrl: Array, record: Recorded, settings: Ilqr) -> _Progress:
    """The guess, not yet simulated, with no step and no feedback."""
    zero, count = jnp.zeros((), ctrl.dtype), jnp.zeros((), jnp.int32)
    states = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (len(ctrl) + 1, *leaf.shape)), state)
    path = Trajectory(states=states, ctrl=ctrl, cost=zero + jnp.inf, status=count)
    shapes = jax.eval_shape(functools.partial(simulated, record), task, state, ctrl[0], jnp.asarray(False))[1]
    needed = jax.tree.map(lambda x: jnp.zeros((len(ctrl) + 1, *x.shape), x.dtype), shapes)
    gains, no = jnp.zeros((*ctrl.shape, tangent_size(task.model)), ctrl.dtype), jnp.zeros((), bool)
    mu = zero + settings.regularization
    return _Progress(path, needed, jnp.zeros_like(ctrl), gains, zero, zero, zero, zero, count, mu, count - 1, no, no)


def _try(task: Task, progress: _Progress, record: Recorded, sizes: Array) -> Trial:
    """The motion of least cost among the step sizes."""
    path = progress.path
    state = jax.tree.map(lambda leaf: leaf[0], path.states)
    before = jax.tree.map(lambda leaf: leaf[:-1], path.states)
    rows = (before, path.ctrl, progress.step, progress.gains)

    def motion(size: Array) -> tuple[Trajectory, Any]:
        def law(now: State, row: tuple[State, Array, Array, Array]) -> Array:
            planned, ctrl, step, gain = row
            return ctrl + size * step + matmul(gain, difference(task.model, now, planned))

        return follow(task, state, law, rows, path.ctrl.shape[0], functools.partial(simulated, record))

    tried, needed = jax.vmap(motion)(sizes)
    costs = jnp.where(jnp.isfinite(tried.cost), tried.cost, jnp.inf)
    return *jax.tree.map(lambda leaf: leaf[jnp.argmin(costs)], (tried, needed, sizes)), jnp.max(costs)


def _accept(
    progress: _Progress, tried: Trajectory, needed: Any, size: Array, worst: Array, settings: Ilqr
) -> _Progress:
    """The new motion if it is better; mu by the size of the step that was taken, if any. Noise is tried at the end."""
    old, first, probing = progress.path, progress.iterations < 0, progress.probes > 0
    gain = old.cost - tried.cost
    # what noise gains by chance is no step to a minimum
    better = first | jnp.where(probing, gain > LEAPS * old.cost, gain > 0)
    least = settings.tolerance * jnp.abs(old.cost)
    # a failed step is tried again with more regularization, unless nothing was to be gained
    over = better | (progress.expected <= least) | (progress.mu >= LARGEST)
    settled = ~probing & ~(gain > least) & jnp.isfinite(old.cost) & over
    believed = settled & (progress.promised <= PROMISED * old.cost) & (progress.unreached <= UNREACHED * old.cost)
    change = jnp.where(better & (size >= WHOLE), 1 / FACTOR, jnp.where(better & (size > SMALL), 1.0, FACTOR))
    mu = jnp.clip(progress.mu * jnp.where(first | probing, 1.0, change), SMALLEST, LARGEST)
    path, needed = where_tree(better, (tried, needed), (old, progress.needed))
    # noise may change the cost twice as much as derivatives say
    leap = jnp.maximum(worst - old.cost, gain) - 2 * progress.expected
    leaps = jnp.where(probing & ~better, jnp.maximum(progress.leaps, leap), 0)
    believed &= jnp.isfinite(progress.expected)
    probes = jnp.where(believed, PROBES, jnp.where(better, 0, jnp.maximum(progress.probes - 1, 0)))
    tested = probing & ~better & (probes == 0)
    return progress._replace(
        path=path,
        needed=needed,
        promised=jnp.where(better & (gain > least), 0, progress.promised),
        leaps=leaps,
        probes=probes,
        mu=mu,
        iterations=progress.iterations + jnp.where(probing, 0, 1),
        done=(settled & ~believed) | tested | ~jnp.isfinite(path.cost),
        converged=tested & (leaps <= LEAPS * old.cost),
    )


def _prepare(task: Task, progress: _Progress, record: Recorded, at_once: bool) -> _Progress:
    """The next step and gains, from the linear-quadratic model about the motion; or noise, and what it says of that."""
    has_moved, path = progress.iterations >= 0, progress.path
    given = task, path.states, path.ctrl, progress.needed
    along = Explicit.of(functools.partial(expand, together=at_once, record=record), *given)
    system = in_groups(
        lambda moved, held_and_given: jax.lax.cond(moved, lambda: along.call(*held_and_given), along.zeros),
        has_moved,
        (along.held, *given),
        at_once=LINEARIZED,
    )
    step, gains, gain = backward(task, system, path.ctrl, progress.mu)
    # not a number where rounding left no minimum to step to: more regularization makes one
    expected = jnp.where(jnp.isfinite(jnp.sum(gain)), jnp.sum(gain), jnp.inf)
    promised = jnp.maximum(progress.promised, jnp.where(jnp.isfinite(expected), expected, 0))
    ready = progress._replace(
        step=step, gains=gains, expected=expected, promised=promised, unreached=system.unreached()
    )
    drawn, half = np.random.default_rng(0).normal(size=(PROBES, *step.shape)), 0.5 * (task.upper - task.lower)
    size = PROBED * jnp.where(jnp.isfinite(half), half, jnp.max(jnp.abs(path.ctrl), axis=0))
    size, lower, upper = (jnp.broadcast_to(x, step.shape) for x in (size, task.lower, task.upper))
    noise = size * jnp.asarray(drawn, step.dtype)[progress.probes - 1]
    sides = jnp.clip(jnp.stack([path.ctrl + noise, path.ctrl - noise]), lower[None], upper[None]) - path.ctrl[None]
    probe = progress._replace(step=noise, expected=jnp.max(jax.vmap(system.change, (0, None))(sides, progress.gains)))
    return jax.tree.map(lambda a, b: jnp.where(progress.probes > 0, a, b), probe, ready)


def backward(task: Task, system: LinearQuadratic, ctrl: Array, mu: Array) -> Stage:
    """The minimum of the quadratic model of the cost to go, backwards in time: all stages, stacked."""
    *_, r, r_x, _ = (leaf[-1] for leaf in system)
    end = (matmul(r_x.T, r), matmul(r_x.T, r_x))

    def stage(value: tuple[Array, Array], row: tuple[LinearQuadratic, Array]) -> tuple[tuple[Array, Array], Stage]:
        (A, B, r, r_x, r_u), now = row
        slope, curvature = value
        Q_x, Q_u = matmul(r_x.T, r) + matmul(A.T, slope), matmul(r_u.T, r) + matmul(B.T, slope)
        ahead = matmul(curvature, B)
        Q_uu = matmul(r_u.T, r_u) + matmul(B.T, ahead) + mu * jnp.eye(now.size, dtype=now.dtype)
        Q_ux = matmul(r_u.T, r_x) + matmul(ahead.T, A)
        step, gain = box_qp(Quadratic(Q_uu, Q_u, Q_ux), task.lower - now, task.upper - now)
        slope = Q_x + matmul(gain.T, Q_u) + matmul((matmul(Q_uu, gain) + Q_ux).T, step)
        # a sum of squares, which rounding does not make negative as it does Q_xx - Q_xu Q_uu^-1 Q_ux
        led, left = A + matmul(B, gain), r_x + matmul(r_u, gain)
        curvature = matmul(left.T, left) + matmul(led.T, matmul(curvature, led)) + mu * matmul(gain.T, gain)
        return (slope, 0.5 * (curvature + curvature.T)), (step, gain, -inner(Q_u, step))

    stages = jax.tree.map(lambda leaf: leaf[:-1], system)
    return jax.lax.scan(stage, end, (stages, ctrl), reverse=True)[1]


class Quadratic(NamedTuple):
    """H (n, n), positive definite; g (n,); G (n, m)."""

    hessian: Array
    gradient: Array
    mixed: Array


def box_qp(problem: Quadratic, lower: Array, upper: Array) -> tuple[Array, Array]:
    """A small quadratic program in a box, and how its solution depends on a linear parameter.

        minimize 1/2 u^T H u + (g + G x)^T u,  lower <= u <= upper,  at x = 0

    By projected Newton steps: variables that press against a bound are held, and the others take the Newton step of the
    rest. Several lengths of it are tried, clipped to the box; one ends where the first variable meets its bound. Beside
    them stands the best position of each variable alone, which is lower unless u is the solution: clipping may spoil a
    Newton step. du/dx = -H_ff^-1 G_f on the free variables, 0 on the held ones.

    Returns:
      The solution (n,) and its derivative (n, m); bounds (n,) may be infinite.
    """
    hessian, gradient, mixed = problem

    def cost(u: Array) -> Array:
        return inner(u, gradient + 0.5 * matmul(hessian, u))

    def improve(point: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        u, _, steps = point
        slope = gradient + matmul(hessian, u)
        step = -_solve_free(hessian, _free(u, slope, lower, upper), slope)
        room = jnp.where(step > 0, upper - u, u - lower)
        share = jnp.where((step != 0) & (room > 0), safe.divide(room, jnp.abs(step), 1.0), 1.0)
        # a rounding beyond the first bound
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
    # within the box nothing is left to do, nor is there where one variable was clipped and there is no other
    if gradient.size > 1:
        u = jax.lax.while_loop(unfinished, improve, (u, jnp.all(u == target), jnp.zeros((), jnp.int32)))[0]
    free = _free(u, gradient + matmul(hessian, u), lower, upper)
    return u, -_solve_free(hessian, free, mixed)


def _free(u: Array, slope: Array, lower: Array, upper: Array) -> Array:
    """(n,) bool: variables that do not press against a bound."""
    return ~((u <= lower) & (slope > 0)) & ~((u >= upper) & (slope < 0))


def _solve_free(hessian: Array, free: Array, b: Array) -> Array:
    """H_ff^-1 b_f on the free variables, zero on the others; b is (n,) or (n, m)."""
    both = free[:, None] & free[None, :]
    factor = cholesky(jnp.where(both, hessian, jnp.eye(free.size, dtype=hessian.dtype)))
    mask = free if b.ndim == 1 else free[:, None]
    return jnp.where(mask, cho_solve(factor, jnp.where(mask, b, 0)), 0)

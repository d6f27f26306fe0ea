"""sleep: kinematic trees that have come to rest stop until something wakes them; the flag `sleep` switches it on.

A tree is ready to sleep if it may sleep (`tree_sleep_policy`), has no applied force, and has been slower than
`opt.sleep_tolerance` for MINAWAKE steps. An island falls asleep when all its trees are ready: from then on its
velocities are zero, and its positions stay exactly the same. For an awake tree `tree_asleep` counts up from AWAKE to
-1, ready. For a sleeping tree it is the index of the next tree in a cycle of trees that fell asleep together, and that
wake together.

A step begins with waking, in this order. A tree wakes if it was pushed or moved, or carried by a mocap body; if a taut
tendon ties it to an awake tree; if an awake tree touches it; if an active equality ties it to an awake tree. Sleeping
trees have contacts and constraints only with awake trees, have no acceleration, and take no part in the solve. All of
this is done by masks, so that each world of a batch can sleep on its own. Sensors of sleeping trees show what they read
when the trees fell asleep. `State.frozen` remembers these readings, and the positions from which "moved" is measured.

What sleeps is a constant: the derivatives of its velocity and acceleration are zero, and the derivative of its position
is the identity. Falling asleep and waking have no derivative. Source: MuJoCo documentation, "Computation", sleeping
islands; engine_sleep.c of 3.8.1.
"""

import dataclasses
from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import DisableBit, SleepPolicy
from diffsim.base.errors import Problem, UnsupportedError
from diffsim.collision import collide
from diffsim.collision.layout import layout_of
from diffsim.collision.narrowphase import FAR
from diffsim.constraint.contact import slot_body_ids
from diffsim.constraint.views import tree_partition
from diffsim.geometry.buckets import Poses
from diffsim.simulate.sleep_layout import SLEEPLESS, membership, sleepless_equalities, sleeps
from diffsim.types import Data, Inputs, Model, State
from diffsim.types.data import Actuation, Contacts, Sleep, Tendons
from diffsim.types.state import make_inputs, make_state
from diffsim.types.topology import Topology
from diffsim.xla.loops import cond
from diffsim.xla.select import anywhere

T = TypeVar("T")

# steps below tolerance before a tree sleeps: mjMINAWAKE
MINAWAKE = 10
# `tree_asleep` of a tree that has just moved
AWAKE = -(1 + MINAWAKE)
# larger than any sort key and any value of tree_asleep
NEVER = np.iinfo(np.int32).max


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rest:
    """What sleeps in a state. This class is for models in which nothing can sleep: values pass through unchanged.

    Attributes:
      sleep: which trees sleep, a record of Data.
      asleep: (nv,) which dofs sleep; None where no dof ever does.
    """

    sleep: Sleep
    asleep: Array | None

    def dofs(self, values: Array) -> Array:
        """Velocities, accelerations or forces (nv,), zero for dofs that sleep."""
        return values

    def actuators(self, actuation: Actuation) -> Actuation:
        """Actuation without the actuators of sleeping trees: these have no force, and their activations stay."""
        return actuation

    def readings(self, now: Array) -> Array:
        """Sensor readings (nsensordata,); sensors of sleeping trees show what they read when the trees fell asleep."""
        return now


@dataclasses.dataclass(frozen=True, kw_only=True)
class SleepingTrees(Rest):
    """What sleeps in a state of a model with the flag `sleep`, once every tree is awake that has a reason to wake.

    Attributes:
      idle_actuators: (nu,) which actuators sleep.
      idle_activations: (na,) which activations belong to these actuators.
      idle_readings: (nsensordata,) which sensor readings sleep.
      remembered: (nsensordata,) what these readings show.
    """

    asleep: Array
    idle_actuators: Array
    idle_activations: Array
    idle_readings: Array
    remembered: Array

    def dofs(self, values: Array) -> Array:
        """As in `Rest`."""
        return jnp.where(self.asleep, 0, values)

    def actuators(self, actuation: Actuation) -> Actuation:
        """As in `Rest`."""
        return actuation.replace(
            act_dot=jnp.where(self.idle_activations, 0, actuation.act_dot),
            actuator_force=jnp.where(self.idle_actuators, 0, actuation.actuator_force),
            qfrc_actuator=self.dofs(actuation.qfrc_actuator),
        )

    def readings(self, now: Array) -> Array:
        """As in `Rest`."""
        return jnp.where(self.idle_readings, self.remembered, now)


# ------------------------------------------------------------------------------------------------------------- waking


def wake_and_collide(
    model: Model, state: State, inputs: Inputs, tendons: Tendons, poses: Poses
) -> tuple[Contacts, Rest]:
    """Wakes the trees that have a reason to wake, and finds the contacts of all awake trees.

    Args:
      model, state, inputs: where the step begins.
      tendons: their lengths; a taut tendon wakes trees.
      poses: `colliding_frames`.

    Returns:
      The contacts, and what sleeps: without the flag `sleep` all contacts, and a `Rest` in which nothing does.

    Raises:
      UnsupportedError: the model has an equality that MuJoCo does not allow together with the flag `sleep`.
    """
    if not sleeps(model):
        return collide(model, poses), Rest(sleep=Sleep(tree_sleep=state.tree_sleep), asleep=None)
    if refused := sleepless_equalities(model):
        raise UnsupportedError(Problem("", 0, "", reason, SLEEPLESS, unsupported=True) for _, reason in refused)
    topology = model.topology
    trees = membership(model.topology)
    tree_asleep = _disturbed(model, state, inputs)
    # a tendon near one of its limits ties its two trees together
    if len(trees.tendon):
        length, limits = tendons.ten_length[trees.tendon], model.tendon_range[trees.tendon]
        margin = model.tendon_margin[trees.tendon]
        order = jnp.arange(len(trees.tendon), dtype=jnp.int32)
        taut = (length - limits[:, 0] < margin) | (limits[:, 1] - length < margin)
        tree_asleep = _wake_by_others(tree_asleep, jnp.asarray(trees.tendon_trees), taut, order)
    contacts, tree_asleep = _wake_by_contacts(model, poses, tree_asleep)
    tree_asleep = _wake_by_equalities(model, inputs, tree_asleep)
    asleep = tree_asleep >= 0

    # an actuator or sensor sleeps if it belongs to trees and all of these sleep, and only while something sleeps
    def resting(owners: np.ndarray) -> Array:
        moved = jnp.any(jnp.asarray(owners) & ~asleep[None], axis=1)
        return jnp.any(asleep) & ~moved & jnp.asarray(np.any(owners, axis=1))

    idle = resting(trees.actuators)
    rest = SleepingTrees(
        sleep=Sleep(tree_sleep=tree_asleep.astype(state.qvel.dtype)),
        asleep=asleep[topology.dof_treeid],
        idle_actuators=idle,
        idle_activations=idle[trees.activations],
        idle_readings=resting(trees.readings),
        remembered=_remembered(topology, state.frozen)[2],
    )
    return contacts, rest


def all_asleep(model: Model, state: State, inputs: Inputs) -> Array:
    """Whether every tree sleeps and goes on sleeping: what wakes others is awake itself."""
    tree_asleep = _wake_by_equalities(model, inputs, _disturbed(model, state, inputs))
    return jnp.all(tree_asleep >= 0)


def _disturbed(model: Model, state: State, inputs: Inputs) -> Array:
    """`tree_asleep` (ntree,) after waking the trees that move, are pushed, or are not where they fell asleep."""
    topology = model.topology
    trees = membership(model.topology)
    tree_asleep = state.tree_asleep
    qpos, mocap, _ = _remembered(topology, state.frozen)
    now = _mocap_poses(inputs)
    carried = jnp.append(jnp.any(now != mocap, axis=1), False)[trees.mocap]
    pushed = jnp.any(inputs.xfrc_applied != 0, axis=1)
    hit = _of_trees(topology, topology.dof_treeid, (state.qvel != 0) | (inputs.qfrc_applied != 0))
    hit = hit | _of_trees(topology, trees.qpos, state.qpos != qpos) | _of_trees(topology, topology.body_treeid, pushed)
    return _wake(tree_asleep, hit | carried | ~jnp.asarray(trees.allowed))


def _of_trees(topology: Topology, tree: np.ndarray, flag: Array) -> Array:
    """(ntree,) whether a flag (n,) is set on any part of a tree, by the tree (n,) of each part, -1 for none."""
    return jnp.zeros((topology.ntree + 1,), bool).at[tree].max(flag)[: topology.ntree]


def _cycles(tree_asleep: Array) -> Array:
    """(ntree,) the first tree of each sleeping tree's cycle; for an awake tree the tree itself."""
    itself = jnp.arange(len(tree_asleep), dtype=jnp.int32)
    following = jnp.where(tree_asleep >= 0, tree_asleep, itself)
    first = itself
    # pointer jumping: after k rounds `first` is the least of 2^k trees along the cycle, and `following` 2^k steps ahead
    for _ in range(int(np.ceil(np.log2(max(len(tree_asleep), 2))))):
        first = jnp.minimum(first, first[following])
        following = following[following]
    return first


def _wake(tree_asleep: Array, hit: Array) -> Array:
    """`tree_asleep` after waking the cycles of some trees (ntree,)."""
    cycle = _cycles(tree_asleep)
    woken = jnp.zeros(hit.shape, bool).at[cycle].max(hit & (tree_asleep >= 0))[cycle]
    return jnp.where(woken, AWAKE, tree_asleep)


def _wake_by_others(tree_asleep: Array, trees: Array, tied: Array, order: Array) -> Array:
    """`tree_asleep` after waking the trees that are tied to an awake tree.

    MuJoCo goes through the ties one after another. The first tie to an awake tree wakes the whole cycle, which takes
    over the waker's count; a tree that has several awake neighbours takes the least of their counts. Here all ties are
    looked at together.

    Args:
      trees: (n, 2) the two trees of each tie, -1 for none.
      tied: (n,) whether the tie holds.
      order: (n,) MuJoCo's order of the ties.
    """
    count = len(tree_asleep)
    value = jnp.append(tree_asleep, AWAKE)[trees]
    asleep = value >= 0
    wakes = tied & jnp.all(trees >= 0, axis=1) & (asleep[:, 0] != asleep[:, 1])
    sleeper, waker = (
        jnp.where(asleep[:, 0], trees[:, 0], trees[:, 1]),
        jnp.where(asleep[:, 0], value[:, 1], value[:, 0]),
    )
    # the tie that comes first for each cycle (row `count` collects ties that wake nothing), and the count of its waker
    cycle = _cycles(tree_asleep)
    rank = jnp.where(wakes, cycle[sleeper], count)
    none = jnp.full((count + 1,), NEVER, jnp.int32)
    first = none.at[rank].min(order)
    begins = wakes & (order == first[rank])
    of_first = none.at[jnp.where(begins, rank, count)].min(jnp.where(begins, waker, NEVER))
    # for each tree the least count among its own wakers
    direct = none.at[jnp.where(wakes, sleeper, count)].min(jnp.where(wakes, waker, NEVER))
    woken = (tree_asleep >= 0) & (first[cycle] < NEVER)
    return jnp.where(woken, jnp.minimum(of_first[cycle], direct[:count]), tree_asleep)


def _wake_by_contacts(model: Model, poses: Poses, tree_asleep: Array) -> tuple[Contacts, Array]:
    """The contacts of awake trees, and `tree_asleep` after waking the trees that they touch."""

    def of_awake(values: Array) -> Array:
        return jnp.append(values < 0, False)[model.topology.body_treeid]

    def woken(contacts: Contacts) -> tuple[Array, Array]:
        tree = jnp.asarray(np.append(model.topology.body_treeid, -1))
        trees = jnp.stack([tree[body] for body in slot_body_ids(model, contacts)], axis=1)
        near = (contacts.geom[:, 0] >= 0) & (contacts.dist < contacts.margin)
        return _wake_by_others(tree_asleep, trees, near, contacts.sort_key), trees

    if layout_of(model).static:
        # every pair has slots of its own, so that all contacts are in the buffer already: hide those between trees that
        # still sleep
        contacts = collide(model, poses)
        values, trees = woken(contacts)
        kept = jnp.any(jnp.append(values < 0, False)[trees], axis=1)
        dist = jnp.where(kept, contacts.dist, FAR)
        geom = jnp.where(kept[:, None], contacts.geom, -1)
        return contacts.replace(dist=dist, geom=geom), values
    # the buffer has room for the nearest pairs only: look for pairs with an awake body, and once more if trees woke
    first = collide(model, poses, of_awake(tree_asleep))
    values, _ = woken(first)
    again = anywhere(jnp.any(values != tree_asleep))
    return cond(again, lambda: collide(model, poses, of_awake(values)), lambda: first), values


def _wake_by_equalities(model: Model, inputs: Inputs, tree_asleep: Array) -> Array:
    """`tree_asleep` after waking the trees that an active equality ties to an awake tree or to another cycle."""
    trees = membership(model.topology).equality
    if not len(trees):
        return tree_asleep
    asleep = jnp.append(tree_asleep >= 0, False)[trees]
    cycle = jnp.append(_cycles(tree_asleep), -1)[trees]
    between = inputs.eq_active & np.all(trees >= 0, axis=1)
    apart = between & jnp.any(asleep, axis=1) & (jnp.all(asleep, axis=1) <= (cycle[:, 0] != cycle[:, 1]))
    return _wake(tree_asleep, _of_trees(model.topology, trees.reshape(-1), jnp.repeat(apart, 2)))


def _remembered(topology: Topology, frozen: Array) -> tuple[Array, Array, Array]:
    """Positions (nq,), mocap poses (nmocap, 7) and readings (nsensordata,) in `State.frozen`."""
    qpos, mocap, readings = jnp.split(frozen, np.cumsum([topology.nq, 7 * topology.nmocap]))
    return qpos, mocap.reshape(topology.nmocap, 7), readings


def _remember(topology: Topology, qpos: Array, inputs: Inputs, readings: Array) -> Array:
    """The inverse of `_remembered`, without derivatives; zeros stand for sensors that never sleep."""
    kept = jnp.where(np.any(membership(topology).readings, axis=1), readings, 0)
    return jax.lax.stop_gradient(jnp.concatenate([qpos, _mocap_poses(inputs).reshape(-1), kept]))


def _mocap_poses(inputs: Inputs) -> Array:
    return jnp.concatenate([inputs.mocap_pos, inputs.mocap_quat], axis=1)


# ----------------------------------------------------------------------------------------------------- falling asleep


def fall_asleep(
    model: Model, state: State, inputs: Inputs, data: Data, later: State, reread: Callable[[State], Array]
) -> State:
    """The state after a step, in which sleeping trees, and trees that fall asleep in this step, have not moved.

    Args:
      model, state, inputs, data: where the step began.
      later: the state after it, as if nothing slept.
      reread: a state -> sensor readings (nsensordata,). Sensors of a tree that falls asleep keep showing what they read
        at rest.
    """
    topology = model.topology
    dtype = state.qvel.dtype
    tree_asleep, slept = _tired(model, state, inputs, data)
    asleep = tree_asleep >= 0
    dofs = asleep[topology.dof_treeid]
    qpos = jnp.where(asleep[membership(topology).qpos], state.qpos, later.qpos)
    readings = data.sensor_now
    if topology.nsensor:
        at_rest = state.replace(qvel=jnp.where(dofs, 0, state.qvel))
        readings = cond(anywhere(jnp.any(slept)), lambda: reread(at_rest), lambda: readings)
    return later.replace(
        qpos=qpos,
        qvel=jnp.where(dofs, 0, later.qvel),
        qacc_warmstart=jnp.where(dofs, 0, later.qacc_warmstart),
        tree_sleep=tree_asleep.astype(dtype),
        frozen=_remember(topology, qpos, inputs, readings),
    )


def _tired(model: Model, state: State, inputs: Inputs, data: Data) -> tuple[Array, Array]:
    """`tree_asleep` (ntree,) after a step, and which trees fall asleep in it."""
    # count: a tree that moves faster than the tolerance, is pushed, or may not sleep starts again
    topology = model.topology
    trees = membership(model.topology)
    before = data.tree_asleep
    tolerance = model.opt.sleep_tolerance
    speed = model.dof_length * jnp.abs(state.qvel)
    fast = jnp.where(tolerance > 0, ~(speed < tolerance), state.qvel != 0)
    moving = _of_trees(topology, topology.dof_treeid, fast | (inputs.qfrc_applied != 0))
    moving = moving | _of_trees(topology, topology.body_treeid, jnp.any(inputs.xfrc_applied != 0, axis=1))
    counted = jnp.where(moving | ~jnp.asarray(trees.allowed), AWAKE, before + (before < -1))
    counted = jnp.where(before < 0, counted, before)

    # an island falls asleep as a whole, and a tree without constraints on its own
    parts = tree_partition(model, data.contact, data.efc)
    itself = jnp.arange(topology.ntree, dtype=jnp.int32)
    group = jnp.where(parts.touched, parts.first, itself)
    ready = counted == -1
    slept = ready & ~jnp.zeros(ready.shape, bool).at[group].max(~ready)[group]
    # the cycle: each tree names the next tree of its island, the last one names the first
    with_it = group[:, None] == group[None]
    after = jnp.where(with_it & (itself[:, None] < itself[None]), itself[None], NEVER)
    following = jnp.min(after, axis=1)
    tree_asleep = jnp.where(slept, jnp.where(following < NEVER, following, group), counted)
    if model.opt.disabled(DisableBit.ISLAND):
        # without islands nothing says which trees belong together: nothing falls asleep while there is a constraint
        some = jnp.any(parts.touched)
        return jnp.where(some, before, tree_asleep), slept & ~some
    return tree_asleep, slept


def asleep_at_first(model: Model, forward: Callable[[Model, State], Data]) -> tuple[Array, Array]:
    """`tree_asleep` (ntree,) of a new state, in which trees of policy `init` sleep, and all sensor readings in it."""
    awake = jnp.full(model.topology.ntree, AWAKE, jnp.int32)
    state = make_state(model).replace(tree_asleep=awake)
    data = forward(model, state)
    wanted = model.topology.tree_sleep_policy == SleepPolicy.INIT
    ready = data.replace(tree_sleep=jnp.where(wanted, -1, awake))
    return _tired(model, state, make_inputs(model), ready)[0], data.sensor_now


def can_skip(model: Model) -> bool:
    """Whether only time goes on while all trees sleep: no activation is awake, and there are no delays."""
    activations = np.any(membership(model.topology).actuators, axis=1)[membership(model.topology).activations]
    return model.topology.nhistory + model.topology.npluginstate == 0 and bool(np.all(activations))


def sleep_on(model: Model, state: State, inputs: Inputs) -> State:
    """The state one timestep later if all trees sleep."""
    qpos, _, readings = _remembered(model.topology, state.frozen)
    return state.replace(
        time=state.time + model.opt.timestep,
        qacc_warmstart=jnp.zeros_like(state.qacc_warmstart),
        frozen=_remember(model.topology, qpos, inputs, readings),
    )

"""Contacts that act: the few slots of a large contact buffer in which bodies touch.

A robot has hundreds of slots and stands on four contacts. Rows of constraints cost as much for an empty slot as for a
contact. So the contacts that act are moved to a short buffer, and the rows are built from it. A contact that does not
act has no force and no derivative, and its row adds nothing to the solver's objective.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import Solver
from diffsim.constraint.families import make_constraints
from diffsim.constraint.rows import Sources
from diffsim.types.constraints import Constraints
from diffsim.types.data import Contacts, Solution
from diffsim.types.slots import ContactSlots, Slots
from diffsim.xla.barriers import for_cpu
from diffsim.xla.gather import pick_existing
from diffsim.xla.largest import above
from diffsim.xla.select import count, if_everywhere

# from this many slots of one contact dimension on, a second program for a short buffer is worth its compilation
MANY = 64
# a short buffer has one place for every SHARE slots of a contact dimension: 40 G1 that fell made 25 contacts at most in
# 240 slots, and an OP3 makes 16 in 168
SHARE = 6
# but at least this many places: a Go2 that lies on the floor makes 13 contacts in 73 slots
LEAST = 16
# m, the distance in a place without a contact
FAR = 1e10


class Run(NamedTuple):
    """The places of one contact dimension in a short buffer.

    Attributes:
      slots: the slots of the whole buffer.
      place: (n,) the slot of each place, as an index among these slots.
      exists: (n,) whether a place holds a contact.
    """

    slots: Slots
    place: Array | np.ndarray
    exists: Array | np.ndarray


class ActingContacts(NamedTuple):
    """A short contact buffer.

    Attributes:
      contacts: the contacts.
      slots: its layout.
      runs: where they come from, one entry for each contact dimension.
      fits: () whether it holds all contacts that act.
    """

    contacts: Contacts
    slots: ContactSlots
    runs: tuple[Run, ...]
    fits: Array


def solve_acting(sources: Sources, constraints: Constraints, solved: Callable[[Constraints], Solution]) -> Solution:
    """`solved(constraints)`; on a CPU with fewer rows, if in all worlds of a batch few contacts act.

    The whole rows are then never built, unless something else reads them, as integrators do that treat free bodies
    apart. Values and derivatives are the same.

    Args:
      sources: from which the rows are made.
      constraints: the rows of all slots.
      solved: solves with some rows.
    """
    opt = sources.model.opt
    # sweeps by rows, and rows that only derivatives or a fixed active set have, are for the whole buffer
    by_rows = opt.solver == Solver.PGS or opt.noslip_iterations or opt.contact_reach or sources.active_set is not None
    if not for_cpu() or by_rows or sources.slots.flexes or not constraints.contacts or not is_large(sources.slots):
        return solved(constraints)
    acting = acting_contacts(sources.contacts, sources.slots)

    def quick() -> Solution:
        rows = make_constraints(sources._replace(contacts=acting.contacts, slots=acting.slots))
        solution = solved(rows)
        return dataclasses.replace(solution, row_force=force_of_all_rows(acting, rows, solution.row_force))

    return if_everywhere(acting.fits, quick, lambda: solved(make_constraints(sources)))


def places_for(slots: int) -> int:
    """The number of places for the contacts of this many slots of one contact dimension."""
    return min(slots, max(LEAST, -(-slots // SHARE)))


def is_large(slots: ContactSlots) -> bool:
    """Whether a buffer has so many slots of one contact dimension that most are empty in most states."""
    return any(run.stop - run.start >= MANY for run in slots.geoms)


def acting_contacts(contacts: Contacts, slots: ContactSlots) -> ActingContacts:
    """The short buffer of the contacts of geoms that act; flexes have no slots.

    Slots for which contacts compete hold the deepest contact first, so that the first slots are taken.
    """
    acts = contacts.dist < contacts.includemargin
    runs = list[Run]()
    short = list[Slots]()
    fits = jnp.asarray(True)
    start = 0
    for run in slots.geoms:
        size = run.stop - run.start
        most = places_for(size)
        of_run = acts[run.start : run.stop]
        if run.deepest_first or most == size:
            place, exists = np.arange(most), np.ones(most, bool)
            fits = fits & ~jnp.any(of_run[most:])
        else:
            # the slots that act, in their order
            order = np.arange(size, 0, -1, dtype=contacts.dist.dtype)
            place, exists = above(jnp.where(of_run, order, -1), 0.0, most)
            fits = fits & (count(of_run) <= most)
        runs.append(Run(run, place, exists))
        short.append(Slots(run.dim, start, start + most, run.deepest_first))
        start += most

    def taken(column: Array) -> Array:
        if not column.ndim or not len(column):
            return column
        return jnp.concatenate([pick_existing(column[run.slots.start : run.slots.stop], run.place) for run in runs])

    picked = jax.tree.map(taken, contacts)
    exists = jnp.concatenate([jnp.asarray(run.exists) for run in runs])
    picked = picked.replace(dist=jnp.where(exists, picked.dist, FAR), geom=jnp.where(exists[:, None], picked.geom, -1))
    return ActingContacts(picked, ContactSlots(tuple(short), None, ()), tuple(runs), fits)


def force_of_all_rows(acting: ActingContacts, constraints: Constraints, row_force: Array) -> Array:
    """The forces of the rows of the whole buffer, from those of the rows of the short one (`constraints`)."""
    runs = {slots.start: run for slots, run in zip(acting.slots.geoms, acting.runs, strict=True)}
    forces = []
    for rows, force in zip(constraints.groups, constraints.split(row_force), strict=True):
        if rows.slot is not None:
            run = runs[rows.slot]
            size = run.slots.stop - run.slots.start
            # places without a contact have no force
            force = jnp.zeros((len(force), size), force.dtype).at[:, run.place].add(force)
        forces.append(force.reshape(-1))
    return jnp.concatenate([jnp.zeros((0,), row_force.dtype), *forces])

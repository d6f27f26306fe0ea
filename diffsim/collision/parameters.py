"""Contact parameters of every candidate pair: margins, friction and solver parameters, mixed from the two geoms.

Which geom has priority is static; the numbers are traced and differentiable. They do not depend on the state, so
under `vmap` over states they are computed once. Source: MuJoCo, "Modeling", contact parameters; 3.8.1 adds margins and
gaps of the two geoms.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.enums import EnableBit
from diffsim.collision.pairs import Pairs
from diffsim.math import safe
from diffsim.types.model import Model
from diffsim.xla.gather import pick
from diffsim.xla.select import where

Array = jax.Array

MIN_FRICTION = 1e-5  # mjMINMU
MIN_MIX = 1e-15  # mjMINVAL


class PairParameters(NamedTuple):
    """Columns of the table of candidate pairs, n rows each, named as in mjContact; `margin` (n,) in metres."""

    margin: Array
    includemargin: Array
    friction: Array
    solref: Array
    solreffriction: Array
    solimp: Array


class Side(NamedTuple):
    """What geoms or flexes (n,) bring to contacts; priorities are static."""

    gap: Array
    margin: Array
    solmix: Array
    friction: Array
    solref: Array
    solimp: Array
    priority: np.ndarray


def side_of(model: Model, kind: str, ids: np.ndarray) -> Side:
    """Of the geoms or flexes with these ids."""
    columns = {name: getattr(model, f"{kind}_{name}")[ids] for name in Side._fields[:-1]}
    return Side(**columns, priority=getattr(model.topology, f"{kind}_priority")[ids])


def pair_parameters(model: Model, pairs: Pairs) -> PairParameters:
    """Parameters of all candidate pairs: explicit ones have their own, dynamic ones mix their geoms'."""
    dynamic, explicit = np.flatnonzero(pairs.pair < 0), np.flatnonzero(pairs.pair >= 0)
    sides = [side_of(model, "geom", geoms[dynamic]) for geoms in (pairs.geom1, pairs.geom2)]
    own = _explicit(model, pairs.pair[explicit])
    # back to the order of the table
    order = np.argsort(np.concatenate([dynamic, explicit]))
    both = zip(mixed(*sides), own, strict=True)
    columns = [jnp.concatenate(column) for column in both]
    if not np.array_equal(order, np.arange(len(order))):
        columns = [column[order] for column in columns]
    return completed(model, tuple(columns))


def completed(model: Model, columns: tuple[Array, ...]) -> PairParameters:
    """The table of (gap, margin, friction, solref, solreffriction, solimp), which options may override."""
    gap, margin, friction, solref, solreffriction, solimp = columns
    count = len(margin)
    if model.opt.enabled(EnableBit.OVERRIDE):
        margin = jnp.full_like(margin, model.opt.o_margin)
        friction = _rows(model.opt.o_friction, count)
        solref = solreffriction = _rows(model.opt.o_solref, count)
        solimp = _rows(model.opt.o_solimp, count)
    return PairParameters(margin, margin - gap, safe.maximum(friction, MIN_FRICTION), solref, solreffriction, solimp)


def _rows(value: Array, count: int) -> Array:
    return jnp.broadcast_to(value, (count, *value.shape))


def _explicit(model: Model, index: np.ndarray) -> tuple[Array, ...]:
    """(gap, margin, friction, solref, solreffriction, solimp) of explicit pairs."""
    columns = (
        model.pair_gap,
        model.pair_margin,
        model.pair_friction,
        model.pair_solref,
        model.pair_solreffriction,
        model.pair_solimp,
    )
    return tuple(pick(column, index) for column in columns)


def mixed(first: Side, second: Side) -> tuple[Array, ...]:
    """(gap, margin, friction, solref, solreffriction, solimp) of what both bring."""
    weight = _weight(first.solmix, second.solmix)[:, None]
    # reference in time constant and damping ratio mixes; in direct format (not positive) the smaller value wins
    standard = (first.solref[:, :1] > 0) & (second.solref[:, :1] > 0)
    solref = weight * first.solref + (1 - weight) * second.solref
    solref = where(standard, solref, safe.lesser(first.solref, second.solref))
    solimp = weight * first.solimp + (1 - weight) * second.solimp
    friction = safe.greater(first.friction, second.friction)
    # who has a higher priority imposes its own
    columns = zip((friction, solref, solimp), first[3:6], second[3:6], strict=True)
    friction, solref, solimp = (_prevail(first.priority, second.priority, *each) for each in columns)
    # sliding twice, torsion, rolling twice
    friction = friction[:, np.array([0, 0, 1, 2, 2])]
    return first.gap + second.gap, first.margin + second.margin, friction, solref, jnp.zeros_like(solref), solimp


def _weight(mix1: Array, mix2: Array) -> Array:
    """Share of the first: solmix1 / (solmix1 + solmix2), and 1/2 if both are zero."""
    mix1, mix2 = where(mix1 < MIN_MIX, 0, mix1), where(mix2 < MIN_MIX, 0, mix2)
    return safe.divide(mix1, mix1 + mix2, 0.5)


def _prevail(priority1: np.ndarray, priority2: np.ndarray, mix: Array, first: Array, second: Array) -> Array:
    """`mix`, replaced by the values of the one with the higher priority."""
    if np.array_equal(priority1, priority2):
        return mix
    winner = where((priority1 > priority2)[:, None], first, second)
    return where((priority1 == priority2)[:, None], mix, winner)

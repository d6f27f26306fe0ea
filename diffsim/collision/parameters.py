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


def pair_parameters(model: Model, pairs: Pairs) -> PairParameters:
    """Parameters of all candidate pairs: explicit ones have their own, dynamic ones mix their geoms'."""
    dynamic, explicit = np.flatnonzero(pairs.pair < 0), np.flatnonzero(pairs.pair >= 0)
    mixed, own = _mixed(model, pairs.take(dynamic)), _explicit(model, pairs.pair[explicit])
    # back to the order of the table
    order = np.argsort(np.concatenate([dynamic, explicit]))
    gap, *rest = (_reorder(jnp.concatenate(columns), order) for columns in zip(mixed, own, strict=True))
    margin, friction, solref, solreffriction, solimp = rest
    if model.opt.enabled(EnableBit.OVERRIDE):
        margin = jnp.full_like(margin, model.opt.o_margin)
        friction = _rows(model.opt.o_friction, len(order))
        solref = solreffriction = _rows(model.opt.o_solref, len(order))
        solimp = _rows(model.opt.o_solimp, len(order))
    return PairParameters(margin, margin - gap, safe.maximum(friction, MIN_FRICTION), solref, solreffriction, solimp)


def _reorder(column: Array, order: np.ndarray) -> Array:
    return column if np.array_equal(order, np.arange(len(order))) else column[order]


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


def _mixed(model: Model, pairs: Pairs) -> tuple[Array, ...]:
    """(gap, margin, friction, solref, solreffriction, solimp) of dynamic pairs."""
    geom1, geom2 = pairs.geom1, pairs.geom2
    gap = model.geom_gap[geom1] + model.geom_gap[geom2]
    margin = model.geom_margin[geom1] + model.geom_margin[geom2]
    weight = _weight(model, geom1, geom2)[:, None]
    solref1, solref2 = model.geom_solref[geom1], model.geom_solref[geom2]
    # reference in time constant and damping ratio mixes; in direct format (not positive) the smaller value wins
    standard = (solref1[:, :1] > 0) & (solref2[:, :1] > 0)
    mixed = weight * solref1 + (1 - weight) * solref2
    solref = where(standard, mixed, safe.lesser(solref1, solref2))
    solimp = weight * model.geom_solimp[geom1] + (1 - weight) * model.geom_solimp[geom2]
    friction = safe.greater(model.geom_friction[geom1], model.geom_friction[geom2])
    # geoms of higher priority impose their own
    solref = _prevail(model, pairs, model.geom_solref, solref)
    solimp = _prevail(model, pairs, model.geom_solimp, solimp)
    friction = _prevail(model, pairs, model.geom_friction, friction)
    # sliding twice, torsion, rolling twice
    friction = friction[:, np.array([0, 0, 1, 2, 2])]
    return gap, margin, friction, solref, jnp.zeros_like(solref), solimp


def _weight(model: Model, geom1: np.ndarray, geom2: np.ndarray) -> Array:
    """Share of the first geom: solmix1 / (solmix1 + solmix2), and 1/2 if both are zero."""
    mix1, mix2 = model.geom_solmix[geom1], model.geom_solmix[geom2]
    mix1, mix2 = where(mix1 < MIN_MIX, 0, mix1), where(mix2 < MIN_MIX, 0, mix2)
    return safe.divide(mix1, mix1 + mix2, 0.5)


def _prevail(model: Model, pairs: Pairs, column: Array, mixed: Array) -> Array:
    """`mixed`, replaced by the values of the geom with the higher priority."""
    priority = model.topology.geom_priority
    first, second = priority[pairs.geom1], priority[pairs.geom2]
    if np.array_equal(first, second):
        return mixed
    winner = column[np.where(first > second, pairs.geom1, pairs.geom2)]
    return where((first == second)[:, None], mixed, winner)

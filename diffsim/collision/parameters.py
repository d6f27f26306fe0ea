"""Contact parameters of pairs: margins, friction and solver parameters, mixed from the two geoms.

The priority of geoms is static; the numbers are traced and differentiable. They do not depend on the state, so under
`vmap` over states they are computed once.
Source: MuJoCo documentation, "Modeling", contact parameters; 3.8.1 adds margins and gaps of the two geoms.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import MINVAL, EnableBit
from diffsim.collision.pairs import Pairs
from diffsim.math import safe
from diffsim.types.model import Model
from diffsim.xla.gather import pick

# MuJoCo's mjMINMU
MIN_FRICTION = 1e-5


class PairParameters(NamedTuple):
    """Columns of the table of candidate pairs, n rows each, named as in mjContact; `margin` (n,) in metres."""

    margin: Array
    includemargin: Array
    friction: Array
    solref: Array
    solreffriction: Array
    solimp: Array


class Side(NamedTuple):
    """The parameters that geoms or flexes (n,) bring to contacts; priorities are static."""

    gap: Array
    margin: Array
    solmix: Array
    friction: Array
    solref: Array
    solimp: Array
    priority: np.ndarray


def side_of(model: Model, kind: str, ids: np.ndarray) -> Side:
    """The side of the geoms or flexes with these ids."""
    columns = {name: getattr(model, f"{kind}_{name}")[ids] for name in Side._fields[:-1]}
    return Side(**columns, priority=getattr(model.topology, f"{kind}_priority")[ids])


def pair_parameters(model: Model, pairs: Pairs) -> PairParameters:
    """Parameters of all candidate pairs: explicit ones have their own, dynamic ones mix their geoms'."""
    dynamic = np.flatnonzero(pairs.pair < 0)
    explicit = np.flatnonzero(pairs.pair >= 0)
    sides = [side_of(model, "geom", geoms[dynamic]) for geoms in (pairs.geom1, pairs.geom2)]
    names = ("gap", "margin", "friction", "solref", "solreffriction", "solimp")
    parameters = [pick(getattr(model, f"pair_{name}"), pairs.pair[explicit]) for name in names]
    # back to the order of the table
    order = np.argsort(np.concatenate([dynamic, explicit]))
    both = zip(mixed(*sides), parameters, strict=True)
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
        friction = _repeated(model.opt.o_friction, count)
        solref = solreffriction = _repeated(model.opt.o_solref, count)
        solimp = _repeated(model.opt.o_solimp, count)
    if model.opt.follows("margin_gap"):
        margin = margin + gap
    return PairParameters(margin, margin - gap, safe.maximum(friction, MIN_FRICTION), solref, solreffriction, solimp)


def _repeated(value: Array, count: int) -> Array:
    return jnp.broadcast_to(value, (count, *value.shape))


def mixed(first: Side, second: Side) -> tuple[Array, ...]:
    """(gap, margin, friction, solref, solreffriction, solimp), mixed from both sides."""
    # the share of the first side, 1/2 if both are zero
    mix1, mix2 = (jnp.where(side.solmix < MINVAL, 0, side.solmix) for side in (first, second))
    weight = safe.divide(mix1, mix1 + mix2, 0.5)[:, None]
    # reference in time constant and damping ratio mixes; in direct format (not positive) the smaller value wins
    standard = (first.solref[:, :1] > 0) & (second.solref[:, :1] > 0)
    solref = weight * first.solref + (1 - weight) * second.solref
    solref = jnp.where(standard, solref, safe.lesser(first.solref, second.solref))
    solimp = weight * first.solimp + (1 - weight) * second.solimp
    friction = safe.greater(first.friction, second.friction)
    if not np.array_equal(first.priority, second.priority):
        # the side with the higher priority determines the parameters
        equal = (first.priority == second.priority)[:, None]
        higher = (first.priority > second.priority)[:, None]
        mixes = {"friction": friction, "solref": solref, "solimp": solimp}
        friction, solref, solimp = (
            jnp.where(equal, mix, jnp.where(higher, getattr(first, name), getattr(second, name)))
            for name, mix in mixes.items()
        )
    # sliding twice, torsion, rolling twice
    friction = friction[:, np.array([0, 0, 1, 2, 2])]
    return first.gap + second.gap, first.margin + second.margin, friction, solref, jnp.zeros_like(solref), solimp

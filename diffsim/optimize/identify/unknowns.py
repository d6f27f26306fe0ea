"""Unknown numbers of a model: which entries of which leaves, between which bounds, as one vector theta.

    unknowns = [
        optimize.Unknown("body_mass", "forearm", lower=0.01, log=True),
        optimize.Unknown("dof_damping", ["shoulder", "elbow"], lower=0, upper=5),
        optimize.UnknownInertia("hand"),
    ]

A model is a function of theta; `set_const` follows each change, so that what the model derives from these numbers
agrees with them. With `log`, theta holds logarithms: numbers stay positive and steps are relative.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from diffsim.optimize.coordinates.log_cholesky import INERTIAL, Inertial, check_physical, to_log_cholesky
from diffsim.optimize.identify.parameters import Entries, Inertia, Place, with_numbers
from diffsim.simulate.arguments import declared_ranks
from diffsim.simulate.randomize import leaf
from diffsim.types import Model
from diffsim.types.kinds import KINDS
from diffsim.types.record import near
from diffsim.types.views import View, fields_of

Array = jax.Array

LOG_CHOLESKY = ("alpha", "d1", "d2", "d3", "s12", "s13", "s23", "x", "y", "z")


class Unknown(NamedTuple):
    """Entries of one leaf of a Model, each an unknown of its own.

    A body whose mass is unknown keeps its shape, as in `diffsim.randomize`: its inertia goes with its mass, unless
    "body_inertia" is unknown too.

    Attributes:
      field: mjModel's name, such as "dof_damping", or "opt.gravity".
      rows: names or indices of the objects that the entries belong to, one or several; None for all entries.
      column: which column of a leaf with several, such as 0 for the sliding friction of `geom_friction`; None for all.
      lower, upper: bounds of each entry, in its unit.
      log: whether theta holds logarithms; the entries and the lower bound must then be positive (or no bound given).
      shared: all entries are one unknown, which multiplies the values that the model has.
    """

    field: str
    rows: Any = None
    column: int | None = None
    lower: float = -np.inf
    upper: float = np.inf
    log: bool = False
    shared: bool = False


class UnknownInertia(NamedTuple):
    """All ten inertial numbers of a body: mass, center of mass and inertia, in log-Cholesky coordinates.

    Attributes:
      body: name or index.
      spread: bounds of theta about the model's own: 2 lets the mass grow or shrink by e^4.
    """

    body: str | int
    spread: float = 2.0


class Block(NamedTuple):
    """What an unknown is in theta: start, bounds and labels of its numbers, and where they go in a model."""

    start: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    labels: tuple[str, ...]
    place: Place


class Unknowns:
    """theta (n,) of several unknowns: where it starts, its bounds, labels, and the model that it stands for.

    Attributes:
      start, lower, upper: (n,).
      labels: n names, such as "dof_damping[elbow]".
      log: (n,) bool, which numbers are logarithms.
    """

    def __init__(self, model: Model, unknowns: Sequence[Unknown | UnknownInertia]) -> None:
        if not unknowns:
            raise ValueError("there are no unknowns")
        self.model = model
        self.blocks = [_inertia(model, u) if isinstance(u, UnknownInertia) else _entries(model, u) for u in unknowns]
        self.start, self.lower, self.upper = (
            np.concatenate([getattr(block, name) for block in self.blocks]) for name in ("start", "lower", "upper")
        )
        self.labels = [label for block in self.blocks for label in block.labels]
        self.log = np.concatenate([np.full(block.start.size, block.place.log) for block in self.blocks])
        self.places = tuple(block.place for block in self.blocks)
        double = sorted({label for label in self.labels if self.labels.count(label) > 1})
        if double:
            raise ValueError(f"{double[0]} is unknown twice")
        outside = np.flatnonzero((self.start < self.lower) | (self.start > self.upper))
        if outside.size:
            raise ValueError(f"{self.labels[outside[0]]} of the model is not within its bounds")

    def model_of(self, theta: Array) -> Model:
        """The model with these numbers, its derived fields included; differentiable."""
        return with_numbers(self.model, self.places, theta)

    def values(self, theta: np.ndarray) -> np.ndarray:
        """(n,) in the units of the model, from theta: logarithms undone."""
        return np.where(self.log, np.exp(np.where(self.log, theta, 0)), theta)


def _entries(model: Model, unknown: Unknown) -> Block:
    """Some entries of one leaf."""
    field, log = unknown.field, unknown.log
    known = declared_ranks(model)
    if field not in known:
        raise ValueError(f"the model has no leaf {field!r}{near(field, known)}")
    value = np.asarray(leaf(model, field), float)
    index, names = _places(model, unknown, value)
    now = value.reshape(-1)[index]
    lower, upper = np.full(index.size, unknown.lower), np.full(index.size, unknown.upper)
    if unknown.shared:
        now, lower, upper = np.ones(1), lower[:1], upper[:1]
        names = [f"{field} (factor)"]
    if log:
        if np.any(now <= 0) or (np.isfinite(unknown.lower) and unknown.lower <= 0):
            raise ValueError(f"{field}: log needs positive numbers, and a positive lower bound")
        now, lower, upper = np.log(now), np.log(np.maximum(lower, 1e-300)), np.log(upper)
        lower = np.where(np.isfinite(unknown.lower), lower, -np.inf)

    place = Entries(field, tuple(int(i) for i in index), log, unknown.shared)
    return Block(now, lower, upper, tuple(names), place)


def _places(model: Model, unknown: Unknown, value: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Indices into the flattened leaf, and labels."""
    field, columns = unknown.field, value.reshape(value.shape[0], -1).shape[1] if value.ndim > 1 else 1
    grid = np.arange(value.size).reshape(-1, columns)
    kind = next((kind for kind in KINDS if field in fields_of(kind)), None)
    if unknown.rows is None:
        rows, names = np.arange(len(grid)), _row_names(model, kind, field, len(grid))
    else:
        if kind is None:
            raise ValueError(f"{field} has no named objects; leave out 'rows'")
        chosen = (unknown.rows,) if isinstance(unknown.rows, str | int) else tuple(unknown.rows)
        found = [np.atleast_1d(np.arange(len(grid))[View(model, kind, which).rows(field)]) for which in chosen]
        rows = np.concatenate(found)
        names = [str(which) for which, own in zip(chosen, found, strict=True) for _ in own]
    picked = range(columns) if unknown.column is None else (unknown.column,)
    labels = [
        f"{field}[{name}{f',{column}' if columns > 1 else ''}]" if value.ndim else field
        for name in names
        for column in picked
    ]
    return grid[rows][:, list(picked)].reshape(-1), labels


def _row_names(model: Model, kind: str | None, field: str, count: int) -> list[str]:
    """Names of the objects whose rows a leaf has, else indices."""
    names = [str(i) for i in range(count)]
    for which in range(getattr(model.topology, KINDS[kind].size) if kind else 0):
        view = View(model, kind, which)  # type: ignore[arg-type]
        for row in np.atleast_1d(np.arange(count)[view.rows(field)]):
            names[row] = view.name or names[row]
    return names


def _inertia(model: Model, unknown: UnknownInertia) -> Block:
    """The ten numbers of one body."""
    view = View(model, "body", unknown.body)
    leaves = {name: leaf(model, name) for name in INERTIAL}
    check_physical(leaves, np.asarray([view.id]))
    start = np.asarray(to_log_cholesky(Inertial(*(leaves[name][view.id] for name in INERTIAL))), float)
    labels = tuple(f"inertia[{view.name or view.id}].{name}" for name in LOG_CHOLESKY)
    return Block(start, start - unknown.spread, start + unknown.spread, labels, Inertia(view.id))

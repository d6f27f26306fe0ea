"""Unknown parameters of a model and its sensors: their names, the vector theta (n,), and the Model for a theta."""

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jax import Array

from diffsim.base.motor_layout import MotorBias, MotorDynamics, MotorGain
from diffsim.optimize.coordinates.log_cholesky import INERTIAL, Inertial, check_physical, to_log_cholesky
from diffsim.optimize.identify.places import Entries, Inertia, Payload, Place, Tied, Tilt, numbers
from diffsim.optimize.identify.residuals import SENSED, Sensing
from diffsim.simulate.arguments import declared_ranks
from diffsim.simulate.randomize import leaf, with_leaves
from diffsim.types import Model
from diffsim.types.kinds import KINDS
from diffsim.types.record import near
from diffsim.types.views import View, kind_of, named_rows
from diffsim.xla.compiled import jit

# names of the ten log-Cholesky coordinates, in their order
LOG_CHOLESKY = ("alpha", "d1", "d2", "d3", "s12", "s13", "s23", "x", "y", "z")
# parameters of actuators by the names that users know, with the entries of leaves that they set: (leaf, column, factor)
# where entry = factor * parameter
PARAMETERS: dict[str, tuple[tuple[str, int, float], ...]] = {
    "motor.gear": (("actuator_gear", 0, 1.0),),
    "position.kp": (("actuator_gainprm", 0, 1.0), ("actuator_biasprm", 1, -1.0)),
    "position.kv": (("actuator_biasprm", 2, -1.0),),
    "velocity.kv": (("actuator_gainprm", 0, 1.0), ("actuator_biasprm", 2, -1.0)),
    "dcmotor.resistance": (("actuator_gainprm", MotorGain.RESISTANCE, 1.0),),
    "dcmotor.constant": (("actuator_gainprm", MotorGain.CONSTANT, 1.0),),
    "dcmotor.lag": (("actuator_dynprm", MotorDynamics.LAG, 1.0),),
    "dcmotor.cogging": (("actuator_biasprm", MotorBias.COGGING, 1.0),),
    "dcmotor.lugre.sigma0": (("actuator_dynprm", MotorDynamics.BRISTLE_STIFFNESS, 1.0),),
    "dcmotor.lugre.sigma1": (("actuator_dynprm", MotorDynamics.BRISTLE_DAMPING, 1.0),),
    "dcmotor.lugre.coulomb": (("actuator_biasprm", MotorBias.COULOMB_FRICTION, 1.0),),
    "dcmotor.lugre.static": (("actuator_biasprm", MotorBias.STATIC_FRICTION, 1.0),),
    "dcmotor.lugre.stribeck": (("actuator_biasprm", MotorBias.STRIBECK_VELOCITY, 1.0),),
}
# leaves whose terms are left out of the program at zero, or have no derivative there: the search begins above zero
OFF_ZERO = ("dof_frictionloss", "tendon_frictionloss")
# how far above zero it begins, as a fraction of the parameter's size
START_ABOVE_ZERO = 1e-3
# parameters that cannot be negative, by the last word of the field: bounds that no user has to give
POSITIVE = (
    "damping",
    "frictionloss",
    "armature",
    "stiffness",
    "friction",
    "mass",
    "kp",
    "kv",
    "resistance",
    "lag",
    "sigma0",
    "sigma1",
    "coulomb",
    "static",
    "stribeck",
)
# a mass is at least this fraction of the model's: without mass there is no motion
LEAST_MASS = 1e-3
# the values of a field tell the width of its prior if they are at least this part of a tenth of the range
LEAST_WIDTH = 0.03
# the longest delay of a sensor that is searched for if the user gives no bound, s: what a bus and a filter take
LONGEST_DELAY = 0.03
# the same in timesteps; the longer of the two counts
LONGEST_DELAY_STEPS = 3
# a search begins with a load of this fraction of the body's mass plus LEAST_LOAD: at a mass of zero, its place would
# have no effect
FIRST_LOAD = 0.05
# kg
LEAST_LOAD = 1e-6
# a prior about no load has this width, as a fraction of the body's mass
USUAL_LOAD = 1.0
# a prior about the place of a load has this width, as a fraction of its reach
USUAL_REACH = 0.5


class Unknown(NamedTuple):
    """Unknown entries of one leaf of a Model, or named parameters; each is a parameter of theta of its own.

    A body whose mass is unknown keeps its shape, as in `diffsim.randomize`: its inertia is proportional to its mass,
    unless "body_inertia" is unknown too.

    Attributes:
      field: mjModel's name, such as "dof_damping", or "opt.gravity"; or a name of `PARAMETERS`, such as
        "position.kp" and "dcmotor.lugre.sigma0", by actuator; "sensor.gain", "sensor.bias" and "sensor.delay" (s), by
        sensor; "gravity.tilt", the tangents of the two angles by which the true gravity is tilted from the model's.
      rows: names or indices of the objects that the entries belong to, one or several; None for all entries.
      column: column of a leaf with several, such as 0 for the sliding friction of `geom_friction`; None for all.
      lower: lower bound of each entry, in its unit.
      upper: upper bound.
      log: whether theta holds logarithms; the entries, and the lower bound if one is given, must then be positive.
      shared: all entries are one unknown, a factor that multiplies the values of the model.
      equal: all entries are one unknown, and have the same value.
      prior: standard deviation of a normal prior about the model's value, in the unit of theta (relative with `log`);
        None to let `fit` choose it.
    """

    field: str
    rows: Any = None
    column: int | None = None
    lower: float = -np.inf
    upper: float = np.inf
    log: bool = False
    shared: bool = False
    equal: bool = False
    prior: float | None = None

    def block(self, model: Model) -> "Block":
        """Its parameters in theta."""
        if self.field in SENSED:
            return _sensors(model, self)
        if self.field == "gravity.tilt":
            down = np.asarray(model.opt.gravity, float)
            axes = np.linalg.svd(down[None])[2][1:]
            place = Tilt(tuple(tuple(map(float, axis)) for axis in axes))  # type: ignore[arg-type]
            labels = tuple(f"gravity.tilt[{k}]" for k in range(2))
            lower, upper = (np.full(2, np.clip(bound, -1.0, 1.0)) for bound in (self.lower, self.upper))
            return Block(start=np.zeros(2), lower=lower, upper=upper, labels=labels, place=place, prior=self.prior)
        return _parameters(model, self) if self.field in PARAMETERS else _entries(model, self)


class UnknownInertia(NamedTuple):
    """The whole unknown inertia of a body: ten log-Cholesky coordinates for mass, center of mass and inertia.

    Attributes:
      body: name or index.
      spread: theta stays within this distance of the model's: 2 lets the mass grow or shrink by a factor of e^4.
      prior: standard deviation of a normal prior about the model's theta; None to let `fit` choose it.
    """

    body: str | int
    spread: float = 2.0
    prior: float | None = None

    def block(self, model: Model) -> "Block":
        """The ten parameters of one body."""
        view = View(model, "body", self.body)
        leaves = {name: leaf(model, name) for name in INERTIAL}
        check_physical(leaves, np.asarray([view.id]))
        start = np.asarray(jit(to_log_cholesky)(Inertial(*(leaves[name][view.id] for name in INERTIAL))), float)
        labels = tuple(f"inertia[{view.name or view.id}].{name}" for name in LOG_CHOLESKY)
        return Block(
            start=start,
            lower=start - self.spread,
            upper=start + self.spread,
            labels=labels,
            place=Inertia(view.id),
            prior=self.prior,
        )


class UnknownPayload(NamedTuple):
    """An unknown point mass fixed to a body, such as the load of a gripper: mass (kg) and place (3,) m in its frame.

    Attributes:
      body: name or index.
      upper: the largest mass, kg.
      reach: largest distance from the origin of the body's frame along each axis, m.
    """

    body: str | int
    upper: float = np.inf
    reach: float = 0.5

    def block(self, model: Model) -> "Block":
        """The mass and its place; the model has no load, and the search begins with a small one."""
        view = View(model, "body", self.body)
        body = float(model.body_mass[view.id])
        first = min(FIRST_LOAD * body + LEAST_LOAD, 0.5 * self.upper)
        center = np.asarray(model.body_ipos[view.id], float)
        start = np.concatenate([[0.0], center])
        reach = np.full(3, self.reach)
        # the bounds are widened where the model's center of mass is out of reach
        return Block(
            start=start,
            lower=np.minimum(np.concatenate([[0.0], -reach]), start),
            upper=np.maximum(np.concatenate([[self.upper], reach]), start),
            labels=tuple(f"payload[{view.name or view.id}].{word}" for word in ("mass", "x", "y", "z")),
            place=Payload(view.id),
            first=np.concatenate([[first], center]),
            width=np.concatenate([[USUAL_LOAD * body + LEAST_LOAD], USUAL_REACH * reach]),
        )


class Block(NamedTuple):
    """The parameters of one unknown: start, bounds and labels, and where they are written in the model or sensors.

    `first` is where a search begins, and `width` that of the prior that `fit` begins with; None for the usual ones.
    """

    start: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    labels: tuple[str, ...]
    place: Place | Sensing
    log: bool = False
    prior: float | None = None
    first: np.ndarray | None = None
    width: np.ndarray | None = None


class Unknowns:
    """The vector theta (n,) of several unknowns, and the model that it stands for.

    Attributes:
      start: (n,) theta of the model.
      lower: (n,) lower bounds.
      upper: (n,) upper bounds.
      prior: (n,) standard deviations of the prior that the user gave; infinite without one.
      width: (n,) standard deviations of the prior that `fit` begins with where the user gave none (prior.py).
      group: (n,) the number of the unknown in the list that each parameter belongs to.
      first: (n,) where a search begins: the start, except for zeros that have no derivative, or hide others.
      labels: n names, such as "dof_damping[elbow]".
      log: (n,) bool, which parameters are logarithms.
      places: where parameters are written in the model.
      in_model: (m,) the indices of these in theta.
      sensing: the parameters of sensors.
    """

    def __init__(self, model: Model, unknowns: Sequence[Unknown | UnknownInertia | UnknownPayload]) -> None:
        if not unknowns:
            raise ValueError("there are no unknowns")
        self.model = model
        blocks = [unknown.block(model) for unknown in unknowns]
        self.start = np.concatenate([block.start for block in blocks])
        self.lower = np.concatenate([block.lower for block in blocks])
        self.upper = np.concatenate([block.upper for block in blocks])
        self.labels = [label for block in blocks for label in block.labels]
        counts = [block.start.size for block in blocks]
        self.log = np.repeat([block.log for block in blocks], counts)
        self.prior = np.repeat([np.inf if block.prior is None else block.prior for block in blocks], counts)
        self.group = np.repeat(np.arange(len(blocks)), counts)
        double = sorted({label for label in self.labels if self.labels.count(label) > 1})
        if double:
            raise ValueError(f"{double[0]} is unknown twice")
        outside = np.flatnonzero((self.start < self.lower) | (self.start > self.upper))
        if outside.size:
            raise ValueError(f"{self.labels[outside[0]]} of the model is not within its bounds")
        index = np.split(np.arange(self.start.size), np.cumsum(counts)[:-1])
        parts = list(zip(blocks, index, strict=True))
        self.places = tuple(block.place for block, _ in parts if not isinstance(block.place, Sensing))
        in_model = [indices for block, indices in parts if not isinstance(block.place, Sensing)]
        self.in_model = np.concatenate([np.zeros(0, int), *in_model])
        self.sensing = [
            block.place._replace(theta_index=tuple(indices))
            for block, indices in parts
            if isinstance(block.place, Sensing)
        ]
        flat = [not isinstance(b.place, Sensing) and any(path in OFF_ZERO for path in b.place.paths) for b in blocks]
        above = START_ABOVE_ZERO * self.sizes(self.start)
        # the values of one field are of one size, such as the armatures of an arm; next to zero they tell no size
        usual = np.repeat([np.sqrt(np.mean(block.start**2)) for block in blocks], counts)
        entries = np.repeat([isinstance(block.place, Entries | Tied) for block in blocks], counts)
        sizes = self.sizes(self.start)
        width = np.where(entries & ~self.log & (usual > LEAST_WIDTH * sizes), usual, sizes)
        first = np.where(np.repeat(flat, counts) & ~self.log & (self.start < above), above, self.start)
        for block, indices in parts:
            width[indices] = width[indices] if block.width is None else block.width
            first[indices] = first[indices] if block.first is None else block.first
        self.width = width
        self.first = first

    @property
    def written(self) -> set[tuple[str, int]]:
        """What the unknowns change: (path of a leaf, row), and (field, reading) for unknowns of sensors."""
        flat: set[tuple[str, int]] = set()
        rows = {(part.kind, column) for part in self.sensing for columns in part.columns for column in columns}
        for place in self.places:
            if isinstance(place, Inertia | Payload):
                rows |= {(path, place.body) for path in place.paths}
            elif isinstance(place, Tilt):
                rows |= {(path, 0) for path in place.paths}
            elif isinstance(place, Entries):
                flat |= {(place.field, i) for i in place.index}
            else:
                flat |= {(path, i) for entries in place.targets for path, i, _ in entries}
        columns = {path: np.atleast_1d(np.asarray(leaf(self.model, path)))[:1].size for path, _ in flat}
        return rows | {(path, i // max(columns[path], 1)) for path, i in flat}

    def model_of(self, theta: Array) -> Model:
        """The model with these parameters, and its derived fields; differentiable."""
        return with_leaves(self.model, numbers(self.places, self.model, theta[self.in_model])[0])

    def with_prior_about(self, theta: np.ndarray) -> "Unknowns":
        """These unknowns with another start, and a prior about it as wide as the parameters' sizes."""
        other = copy.copy(self)
        other.start = theta
        other.prior = np.minimum(self.prior, self.sizes(theta))
        return other

    def with_prior(self, prior: np.ndarray) -> "Unknowns":
        """These unknowns with a prior of these standard deviations (n,) about the model's values."""
        other = copy.copy(self)
        other.prior = prior
        return other

    def with_fixed(self, i: int, value: float) -> "Unknowns":
        """These unknowns with one parameter fixed at a value."""
        other = copy.copy(self)
        chosen = np.arange(self.lower.size) == i
        other.lower = np.where(chosen, value, self.lower)
        other.upper = np.where(chosen, value, self.upper)
        return other

    def values(self, theta: np.ndarray) -> np.ndarray:
        """(n,) values in the units of the model: exp(theta) for logarithms, theta for the others."""
        return np.where(self.log, np.exp(np.where(self.log, theta, 0)), theta)

    def sizes(self, theta: np.ndarray) -> np.ndarray:
        """(n,) typical sizes: 1 for logarithms; else the value, or a tenth of the range if that is more."""
        span = self.upper - self.lower
        span = np.where(np.isfinite(span) & (span > 0), span, 1.0)
        return np.where(self.log, 1.0, np.maximum(np.abs(theta), 0.1 * span))


def _chosen(rows: Any, count: int) -> list[Any]:
    """Names or indices as a list; all indices for None."""
    if rows is None:
        return list(range(count))
    return [rows] if isinstance(rows, str | int) else list(rows)


def _sensors(model: Model, unknown: Unknown) -> Block:
    """A gain, bias or delay for each sensor, or one for all."""
    views = [View(model, "sensor", which) for which in _chosen(unknown.rows, model.nsensor)]
    columns = [
        tuple(range(int(model.sensor_adr[view.id]), int(model.sensor_adr[view.id] + model.sensor_dim[view.id])))
        for view in views
    ]
    labels = [f"{unknown.field}[{view.name or view.id}]" for view in views]
    if unknown.shared or unknown.equal:
        columns = [tuple(column for part in columns for column in part)]
        labels = [unknown.field]
    lower = unknown.lower
    upper = unknown.upper
    count = len(labels)
    if unknown.field == "sensor.delay":
        lower = lower if np.isfinite(lower) else 0.0
        upper = upper if np.isfinite(upper) else max(LONGEST_DELAY, LONGEST_DELAY_STEPS * float(model.opt.timestep))
    return Block(
        start=np.full(count, 1.0 if unknown.field == "sensor.gain" else 0.0),
        lower=np.full(count, lower),
        upper=np.full(count, upper),
        labels=tuple(labels),
        # `Unknowns` fills in the indices in theta
        place=Sensing(kind=unknown.field, theta_index=(), columns=tuple(columns)),
        prior=unknown.prior,
    )


def _parameters(model: Model, unknown: Unknown) -> Block:
    """A named parameter for each actuator, or one for all."""
    views = [View(model, "actuator", which) for which in _chosen(unknown.rows, model.nu)]
    entries = [(path, leaf(model, path).shape[1], int(col), factor) for path, col, factor in PARAMETERS[unknown.field]]
    targets = [tuple((path, view.id * width + col, factor) for path, width, col, factor in entries) for view in views]
    labels = [f"{unknown.field}[{view.name or view.id}]" for view in views]
    return _tied(model, unknown, targets, labels)


def _tied(
    model: Model, unknown: Unknown, targets: list[tuple[tuple[str, int, float], ...]], labels: list[str]
) -> Block:
    """Parameters that are each written to several entries; with `equal` or `shared`, one parameter for all."""
    firsts = [entries[0] for entries in targets]
    now = np.asarray([np.asarray(leaf(model, path), float).reshape(-1)[i] / factor for path, i, factor in firsts])
    if unknown.equal or unknown.shared:
        targets, labels, now = [sum(targets, ())], [unknown.field], now[:1]
    now, lower, upper = _in_logs(unknown, now)
    return Block(
        start=now,
        lower=lower,
        upper=upper,
        labels=tuple(labels),
        place=Tied(tuple(targets), unknown.log),
        log=unknown.log,
        prior=unknown.prior,
    )


def _in_logs(unknown: Unknown, now: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Start and bounds of theta, from values; logarithms if the unknown says so."""
    lower = np.full(now.size, unknown.lower)
    upper = np.full(now.size, unknown.upper)
    if not unknown.log:
        word = unknown.field.replace(".", "_").rpartition("_")[2]
        natural = word in POSITIVE and np.all(now >= 0) and not np.isfinite(unknown.lower)
        least = LEAST_MASS * now if unknown.field == "body_mass" else 0.0
        return now, np.where(natural, least, lower), upper
    if np.any(now <= 0) or (np.isfinite(unknown.lower) and unknown.lower <= 0):
        raise ValueError(f"{unknown.field}: log needs positive numbers, and a positive lower bound")
    lower = np.where(np.isfinite(unknown.lower), np.log(np.maximum(lower, 1e-300)), -np.inf)
    return np.log(now), lower, np.log(upper)


def _entries(model: Model, unknown: Unknown) -> Block:
    """Some entries of one leaf."""
    field = unknown.field
    known = declared_ranks(model)
    if field not in known:
        raise ValueError(f"the model has no leaf {field!r}{near(field, [*known, *PARAMETERS, *SENSED])}")
    value = np.asarray(leaf(model, field), float)
    index, names = _entries_of(model, unknown, value)
    if unknown.equal:
        return _tied(model, unknown, [((field, int(i), 1.0),) for i in index], names)
    now = value.reshape(-1)[index]
    if unknown.shared:
        now = np.ones(1)
        names = [f"{field} (factor)"]
    now, lower, upper = _in_logs(unknown, now)
    return Block(
        start=now,
        lower=lower,
        upper=upper,
        labels=tuple(names),
        place=Entries(field=field, index=tuple(int(i) for i in index), log=unknown.log, shared=unknown.shared),
        log=unknown.log,
        prior=unknown.prior,
    )


def _entries_of(model: Model, unknown: Unknown, value: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Indices into the flattened leaf, and labels."""
    field = unknown.field
    columns = value.reshape(value.shape[0], -1).shape[1] if value.ndim > 1 else 1
    grid = np.arange(value.size).reshape(-1, columns)
    if unknown.rows is None:
        rows = np.arange(len(grid))
        names = [str(i) for i in range(len(grid))]
        if kind := kind_of(field):
            objects = range(getattr(model.topology, KINDS[kind].size))
            for which, part in zip(objects, named_rows(model, field, len(grid), objects, "rows"), strict=True):
                for row in part:
                    names[row] = model.topology.name(kind, which) or names[row]
    else:
        chosen = _chosen(unknown.rows, 0)
        parts = named_rows(model, field, len(grid), unknown.rows, "rows")
        rows = np.concatenate(parts)
        names = [str(which) for which, part in zip(chosen, parts, strict=True) for _ in part]
    picked = range(columns) if unknown.column is None else (unknown.column,)
    labels = [
        f"{field}[{name}{f',{column}' if columns > 1 else ''}]" if value.ndim else field
        for name in names
        for column in picked
    ]
    return grid[rows][:, list(picked)].reshape(-1), labels

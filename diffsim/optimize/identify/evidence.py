"""Intervals of the estimated parameters, and evidence whether the model explains the data.

Intervals. At the solution, the Jacobian of the residuals is J = [J_theta, J_x]. The part of J_theta that initial states
explain is projected out: P = (1 - Q Q^T) J_theta, where Q is an orthonormal basis of the columns of J_x. S contains the
typical sizes of the parameters, and P S = U s V^T is a singular value decomposition. The covariance of theta is then
sigma^2 S V s^-2 V^T S. Columns of V with tiny s are combinations of parameters that could have any value.

Evidence. The covariance is right only if the model explains the data, that is, if the residuals r are noise. Three
properties of r are tested for each reading. First, its size is compared with the noise. Second, r must be white: this
is tested by the sums of r_t r_{t+k}, whose means for white noise are -sigma^2 sum_t q_t q_{t+k}, where q_t are the rows
of [Q, U]. Third, r must not contain signals of what a model may lack: their scores are c r / |c|, with c orthogonal to
the columns of J. If a test fails, intervals come from a sandwich estimate, or are withheld.

A prior of width w that moved the estimates counts as data: with H the inverse of the covariance above, zero along what
the data do not show, the covariance of the posterior is (H + diag(w)^-2)^-1.

Sources: Ljung and Box 1978 (whiteness); Godfrey 1978 (score tests); Newey and West 1987 (sandwich estimate).
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.stats

from diffsim.optimize.identify.least_squares import Blocks, projected
from diffsim.optimize.identify.unknowns import Unknowns

# singular values below this fraction of the largest count as zero
NULL = 1e-7
# a direction is not identified if its standard deviation is above this fraction of the parameters' sizes
LOOSE = 1.0
# a direction in words names the parameters whose parts are above this
NAMED = 0.1
# probability of the intervals
CONFIDENCE = 0.95
# chance of a false alarm over all tests of a fit
ALARM = 1e-3
# the longest lag that is tested for whiteness, rows
LAGS = 20
# intervals are withheld if residuals are larger than the noise by this factor
WITHHELD = 3.0
# residuals below this fraction of the noise are not a misfit, whatever their shape
QUIET = 0.5
# the noise counts as larger than the user says only beyond this factor
LOUDER = 1.05
# a window with a burst of errors exceeds its chi-square limit by this factor
BURST = 1.1
# a cause is named if it explains this share of the squared residuals
SHARE = 0.2
# the largest number of causes that are named
CAUSES = 4
# a signal is not tested if the fit can adjust all but this fraction of its square
LEAST_SIGNAL = 1e-6
# a parameter is at a bound if it is this near, relative to 1 + |theta|
AT_BOUND = 1e-6
# the residuals count as at least this size next to a prior: without any, the data decide
LEAST_SCALE = 1e-100
# a parameter is known by the prior if its variance is below this part of what the data alone leave
BY_PRIOR = 0.5
# stands in for zero in denominators
TINY = 1e-300


class Identified(NamedTuple):
    """Estimates of n parameters and how well they are known, in units of the model.

    Attributes:
      labels: their names.
      values: the estimates.
      start: the values in the model before the fit.
      std: standard deviations of theta, relative ones for logarithms; of the posterior, if a prior moved the estimates.
        Infinite if the data do not show a parameter and there is no prior, or if they do not agree with the model.
      lower: lower ends of the 95% intervals of the values, without regard to bounds.
      upper: upper ends.
      at_bound: bool, whether the search ended at a bound; the interval then means little.
      covariance: (n, n) covariance of theta along the directions that are identified; if a prior moved the estimates,
        of the posterior.
      null_directions: combinations of parameters that the data do not show, in words.
      by_prior: bool, whether the prior says more about a parameter than the data do; None if no prior moved anything.
      withheld: whether intervals are withheld, since the model does not explain the data.
    """

    labels: list[str]
    values: np.ndarray
    start: np.ndarray
    std: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    at_bound: np.ndarray
    covariance: np.ndarray
    null_directions: list[str]
    by_prior: np.ndarray | None = None
    withheld: bool = False

    def __str__(self) -> str:
        width = max(len(label) for label in self.labels) + 2
        lines = [f"{'parameter':<{width}}{'before':>12}{'found':>12}   95% interval"]
        rows = zip(self.labels, self.start, self.values, *self.in_words("[{:.6g}, {:.6g}]"), strict=True)
        for label, start, value, interval, remark in rows:
            lines.append(f"{label:<{width}}{start:>12.5g}{value:>12.5g}   {interval}{'  ' if remark else ''}{remark}")
        lines += [f"not identified: {direction}" for direction in self.null_directions]
        return "\n".join(lines)

    def in_words(self, interval: str) -> tuple[list[str], list[str]]:
        """Intervals, by a format of two numbers, and a remark on each."""
        by_prior = np.zeros(len(self.labels), bool) if self.by_prior is None else self.by_prior
        intervals = [
            interval.format(lower, upper) if np.isfinite(upper - lower) else "not identified"
            for lower, upper in zip(self.lower, self.upper, strict=True)
        ]
        remarks = [
            "by the prior" if held else "at a bound" if bound else ""
            for held, bound in zip(by_prior, self.at_bound, strict=True)
        ]
        return ["withheld"] * len(intervals) if self.withheld else intervals, remarks


class FittedWindows(NamedTuple):
    """Windows at the solution of a fit.

    Attributes:
      errors: (windows, T, ny) readings minus measurements, divided by the noise; NaN where nothing was measured.
      blocks: derivatives of the residuals; the rows of `errors` come first.
      readings: (windows, T, ny) simulated.
      measured: (windows, T, ny) recorded.
      noise: (ny,) standard deviations.
      known: whether the user gave the noise.
      ctrl: (windows, T, nu) controls.
      contacts: (windows, T) number of contacts.
      timestep: s.
      names: (ny,) names of the readings.
      order: (ny,) how many times a force is integrated before the reading shows it, 0 to 2.
    """

    errors: np.ndarray
    blocks: Blocks
    readings: np.ndarray
    measured: np.ndarray
    noise: np.ndarray
    known: bool
    ctrl: np.ndarray
    contacts: np.ndarray
    timestep: float
    names: list[str]
    order: np.ndarray


class Evidence(NamedTuple):
    """Whether the model explains the data; `print` it.

    Attributes:
      explained: whether the residuals are noise, as far as the tests tell.
      size: (ny,) root mean square residual of each reading divided by its noise; NaN if nothing was measured.
      by_window: (windows, ny) the same for each window.
      white: (ny,) probability that white residuals have correlations in time as large as these.
      widened: the factor by which the residuals widen the intervals, at least 1; infinite if these are withheld.
      sentence: the verdict.
      causes: what the residuals look like, in words; the likeliest comes first.
      freedom: degrees of freedom: the number of measurements less what the fit can adjust.
    """

    explained: bool
    size: np.ndarray
    by_window: np.ndarray
    white: np.ndarray
    widened: float
    sentence: str
    causes: list[str]
    freedom: float

    def __str__(self) -> str:
        return "\n".join([self.sentence, *(f"  looks like {cause}" for cause in self.causes)])


class Residuals:
    """The residuals of windows at a solution, and the tests of whether they are noise.

    Attributes:
      errors: (windows, T, ny) errors divided by the noise, zero where nothing was measured.
      seen: (windows, T, ny) bool, where something was measured.
      basis: (windows, T, ny, p) rows of an orthonormal basis of what the fit can explain: first states, then theta.
      freedom: (windows, T, ny) the part of each error that the fit cannot adjust, 1 - |row of the basis|^2; their sum
        is the number of degrees of freedom.
      size: (ny,) root mean square over the degrees of freedom.
      by_window: (windows, ny) the same for each window.
      variance: (ny,) the square of the size.
    """

    def __init__(self, sample: FittedWindows) -> None:
        self.sample = sample
        self.errors = np.nan_to_num(sample.errors)
        self.seen = np.isfinite(sample.errors)
        self.basis = self._basis()
        self.freedom = np.where(self.seen, 1 - np.sum(self.basis**2, axis=-1), 0)
        self.size = _root(np.sum(self.errors**2, axis=(0, 1)), self.freedom.sum(axis=(0, 1)))
        self.by_window = _root(np.sum(self.errors**2, axis=1), self.freedom.sum(axis=1))
        self.variance = np.maximum(np.nan_to_num(self.size) ** 2, 1e-100)

    def _basis(self) -> np.ndarray:
        """The basis: first states explain the rows of their own window (in a chain, all rows), theta explains all."""
        blocks = self.sample.blocks
        shape = self.seen.shape
        windows, k, n = blocks.by_theta.shape
        width = blocks.by_x.shape[-1]
        rows = int(np.prod(shape[1:]))
        parts = []
        if blocks.by_next is not None:
            dense = np.zeros((windows, k, windows, width))
            for w in range(windows):
                dense[w, :, w] = blocks.by_x[w]
                dense[w, :, (w + 1) % windows] += blocks.by_next[w]
            parts = [np.linalg.qr(dense.reshape(windows * k, -1))[0].reshape(windows, k, -1)]
        elif width:
            parts = [np.linalg.qr(blocks.by_x)[0]]
        if n:
            basis, values, _ = np.linalg.svd(projected(blocks).reshape(windows * k, n), full_matrices=False)
            parts.append((basis * (values > NULL * max(values[0], TINY))).reshape(windows, k, n))
        whole = np.concatenate([part[:, :rows] for part in parts], axis=-1) if parts else np.zeros((windows, rows, 0))
        return whole.reshape(*shape, whole.shape[-1])

    def lagged(self, lag: int) -> tuple[np.ndarray, np.ndarray]:
        """(ny,) sums of r_t r_{t+lag} minus the mean that white residuals have, and the number of products."""
        both = self.seen[:, lag:] & self.seen[:, :-lag]
        products = np.sum(self.errors[:, lag:] * self.errors[:, :-lag], axis=(0, 1))
        shared = np.where(both, np.sum(self.basis[:, lag:] * self.basis[:, :-lag], axis=-1), 0)
        return products + self.variance * np.sum(shared, axis=(0, 1)), np.sum(both, axis=(0, 1))

    def whiteness(self) -> np.ndarray:
        """(ny,) probability that white residuals have correlations as large as these (Ljung-Box test over lags)."""
        lags = min(LAGS, self.errors.shape[1] // 3)
        total = np.zeros(self.errors.shape[-1])
        for lag in range(1, lags + 1):
            products, count = self.lagged(lag)
            total += products**2 / (self.variance**2 * np.maximum(count, 1))
        return scipy.stats.chi2.sf(total, max(lags, 1)) if lags else np.ones(len(total))

    def memory(self) -> np.ndarray:
        """(ny,) how many correlated rows count as one: 1 + 2 sum of the correlations before the first negative one."""
        total = np.ones(self.errors.shape[-1])
        positive = np.ones(self.errors.shape[-1], bool)
        for lag in range(1, self.errors.shape[1]):
            products, count = self.lagged(lag)
            correlation = products / (self.variance * np.maximum(count, 1))
            positive &= correlation > 0
            total += 2 * np.where(positive, correlation, 0)
            if not positive.any():
                break
        return total

    def outside(self, column: np.ndarray) -> np.ndarray:
        """The part of a signal (windows, T, ny) that the fit cannot produce: orthogonal to the basis."""
        windows = len(column)
        blocks = self.sample.blocks
        flat = self.basis.reshape(windows, -1, self.basis.shape[-1])
        inside = flat.transpose(0, 2, 1) @ column.reshape(windows, -1, 1)
        # the first states of windows that stand alone explain only the rows of their own window; all else explains all
        own = blocks.by_x.shape[-1] if blocks.by_next is None else 0
        inside[:, own:] = inside[:, own:].sum(axis=0)
        return column - (flat @ inside).reshape(column.shape)

    def signals(self, i: int) -> dict[str, np.ndarray]:
        """Signals (windows, T) that a reading would show if the model lacked something, by what it lacks.

        A missing force reaches a reading after it is integrated `order` times.
        """
        sample = self.sample
        h = sample.timestep
        reading = sample.readings[..., i]
        order = int(sample.order[i])
        rate = np.gradient(reading, h, axis=1) if reading.shape[1] > 1 else 0 * reading
        speed = reading if order == 1 else rate
        constant = np.ones(reading.shape)

        def summed(signal: np.ndarray) -> np.ndarray:
            """The reading that a force with this course would add, by integrating it `order` times."""
            for _ in range(order):
                signal = h * np.cumsum(signal, axis=1)
            return signal

        signals = {
            "an offset of {:.2g}": -constant,
            "a gain of 1 {:+.2g}": -(reading - np.mean(reading)),
            "a delay of {:.2g} s": rate,
            "more friction than the model has": summed(np.sign(speed)),
            "more damping than the model has": summed(speed),
            "a constant force that the model lacks (gravity, tilt, spring)": summed(constant),
        }
        for k in range(sample.ctrl.shape[-1]):
            signals[f"another strength of actuator {k}"] = summed(sample.ctrl[..., k])
        touching = sample.contacts > 0
        if touching.any() and not touching.all():
            signals["contacts that act differently"] = summed(np.where(touching, 1.0, 0.0))
        return signals

    def causes(self, exact: np.ndarray) -> tuple[list[str], float]:
        """What the residuals look like, by score tests.

        Args:
          exact: (ny,) bool, readings that fit exactly and are not tested.

        Returns:
          Causes in words, the likeliest first; and the probability that the best match is due to chance, over all
          tests.
        """
        sample = self.sample
        likeness = []
        best = 1.0
        for i in np.flatnonzero(self.seen.any(axis=(0, 1)) & ~exact).tolist():
            squares = float(np.sum(self.errors[..., i] ** 2))
            signals = self.signals(i)
            if not squares:
                continue
            for words, signal in signals.items():
                column = np.zeros(self.errors.shape)
                column[..., i] = np.where(self.seen[..., i], signal / sample.noise[i], 0)
                outside = self.outside(column)
                length = float(np.sum(outside**2))
                if length <= LEAST_SIGNAL * np.sum(column**2):
                    continue
                along = float(np.sum(outside * self.errors))
                chance = 2 * float(scipy.stats.norm.sf(abs(along) / (self.size[i] * np.sqrt(length))))
                best = min(best, chance * len(signals))
                # friction and damping count only if there is more of them than the model has
                if "{" in words or along > 0 or words.startswith(("a constant", "another", "contacts")):
                    likeness.append((along**2 / length / squares, words.format(along / length), sample.names[i]))
        likeness.sort(reverse=True)
        named: dict[str, list[str]] = {}
        for share, words, name in likeness:
            if share > SHARE and not any(name in names for names in named.values()):
                named.setdefault(words, []).append(name)
        causes = [f"{words} ({', '.join(names)})" for words, names in named.items()][:CAUSES]
        return causes, min(best * max(len(sample.names), 1), 1.0)


def examine(sample: FittedWindows, apparent_noise: np.ndarray) -> Evidence:
    """Judges whether the residuals of a fit are noise.

    Args:
      sample: the windows at the solution.
      apparent_noise: (ny,) the noise that recordings show by themselves; residuals are compared with it if the user
        gave none.

    Returns:
      The verdict.
    """
    residuals = Residuals(sample)
    size = residuals.size
    exact = ~(size > QUIET)
    count = residuals.freedom.sum(axis=(0, 1))
    white = np.where(exact, 1.0, residuals.whiteness())
    causes, score = residuals.causes(exact)
    tests = max(np.count_nonzero(count) * 2, 1)
    # a burst: the sum of squares of one window exceeds its chi-square limit
    of_windows = np.maximum(residuals.freedom.sum(axis=1), 1)
    limit = scipy.stats.chi2.isf(ALARM / max(residuals.by_window.size, 1), of_windows)
    burst = (np.sum(residuals.errors**2, axis=1) > limit * np.maximum(size, 1) ** 2 * BURST) & ~exact
    random = bool(np.all(white > ALARM / tests) and score > ALARM and not np.any(burst))
    # the size of the residuals, compared with the noise: chi-square of the readings
    over_noise = size if sample.known else size * sample.noise / apparent_noise
    largest = float(np.nanmax(np.where(exact, 0, over_noise), initial=0))
    size_limit = np.sqrt(scipy.stats.chi2.isf(ALARM / tests, np.maximum(count, 1)) / np.maximum(count, 1))
    louder = bool(np.any((size > np.maximum(size_limit, LOUDER)) & ~exact)) and sample.known
    explained = random and largest < WITHHELD
    if explained:
        widened = largest if louder else 1.0
    elif largest >= WITHHELD and not random:
        widened = np.inf
    else:
        memory = float(np.max(residuals.memory()[~exact], initial=1.0))
        widened = (max(largest, 1.0) if sample.known else 1.0) * np.sqrt(max(memory, 1.0))
    return Evidence(
        explained=explained,
        size=size,
        by_window=residuals.by_window,
        white=white,
        widened=float(widened),
        sentence=_sentence(explained, louder, random, largest, widened, residuals.by_window),
        causes=[] if explained else causes,
        freedom=float(residuals.freedom.sum()),
    )


def _sentence(
    explained: bool, louder: bool, random: bool, largest: float, widened: float, by_window: np.ndarray
) -> str:
    """The verdict in words."""
    if explained and louder:
        more = f"{largest:.2g} times the noise given"
        return f"The model explains the data if the noise is {more}; intervals are widened by this factor."
    if explained:
        return "The model explains the data: the residuals look like noise."
    how = f"residuals are up to {largest:.3g} times the noise" + ("" if random else " and not random")
    uneven = np.nanmax(by_window, axis=1)
    where = int(np.argmax(uneven))
    if len(uneven) > 1 and uneven[where] > 2 * np.median(uneven):
        how += f", largest in window {where}"
    if np.isinf(widened):
        return f"The model does NOT explain the data ({how}): do not trust these values; intervals are withheld."
    factor = f"by a factor of {widened:.2g} or more"
    return f"The model does not explain all of the data ({how}): intervals are widened {factor}."


def _root(squares: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Root mean squares; NaN where nothing is counted."""
    return np.sqrt(np.divide(squares, count, out=np.full(np.shape(squares), np.nan), where=count > 1e-9))


def residual_scale(sample: FittedWindows, evidence: Evidence) -> float:
    """The noise that the residuals show, as a multiple of `sample.noise`; 1 if the user gave the noise."""
    return 1.0 if sample.known else float(np.sqrt(np.nansum(sample.errors**2) / max(evidence.freedom, 1.0)))


def seen_and_unseen(rows: np.ndarray, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Splits theta, in units of the parameters' sizes, into directions that the data do not show, and others.

    Args:
      rows: (windows, k, n) derivatives of the residuals with respect to theta in these units, without the part that
        first states explain.
      scale: standard deviation of the residuals.

    Returns:
      (directions, n) unit vectors whose standard deviation is above `LOOSE`; and (n, others) the other directions. The
      length of each of these is its standard deviation for residuals of size 1.
    """
    n = rows.shape[-1]
    triangle = np.asarray(np.linalg.qr(rows.reshape(-1, n), mode="r"))
    _, singular, directions = np.linalg.svd(triangle, full_matrices=False)
    spread = np.divide(
        1.0, singular, out=np.full(len(singular), np.inf), where=singular > NULL * max(singular[0], TINY)
    )
    hidden = spread * scale > LOOSE
    return directions[hidden], directions[~hidden].T * spread[~hidden]


def identify(
    unknowns: Unknowns,
    theta: np.ndarray,
    sample: FittedWindows,
    evidence: Evidence,
    jumps: np.ndarray | None = None,
    prior: np.ndarray | None = None,
) -> Identified:
    """Estimates with standard deviations and intervals.

    Args:
      unknowns: names, bounds and logarithms.
      theta: (n,) the solution.
      sample: the windows there.
      evidence: the verdict on their residuals.
      jumps: (n, n) a further covariance where motions jump, which derivatives do not see: contacts in another order.
      prior: (n,) standard deviations of a prior that moved the estimates, infinite where `sample` has one already and 0
        for parameters that are fixed; None without one.

    Returns:
      The estimates.
    """
    n = theta.size
    errors = np.nan_to_num(sample.errors).reshape(len(sample.errors), -1)
    size = unknowns.sizes(theta)
    rows = projected(sample.blocks) * size
    scale = residual_scale(sample, evidence)
    null, kept = seen_and_unseen(rows, scale)
    plain = kept @ kept.T
    covariance = plain * scale**2
    widen = np.full(n, evidence.widened if evidence.explained else 1.0)
    if not evidence.explained and np.isfinite(evidence.widened):
        # the sandwich estimate H^-1 F H^-1, with F the covariance of correlated scores; it only widens
        scores = rows[:, : errors.shape[1]] * errors[..., None]
        middle = _long_run(scores.reshape(*sample.errors.shape, n).sum(axis=2))
        sandwich = plain @ middle @ plain
        ratio = np.diag(sandwich) / np.maximum(np.diag(covariance), TINY)
        widen = np.sqrt(np.maximum(ratio, evidence.widened**2))
    covariance = covariance * np.outer(widen * size, widen * size)
    if jumps is not None:
        covariance = covariance + jumps
    by_prior = None
    unknown = np.max(np.abs(null), axis=0, initial=0) > NAMED
    if prior is not None:
        flat = rows.reshape(-1, n) / (max(scale, LEAST_SCALE) * widen * size)
        of_data = np.diag(covariance)
        covariance = _posterior(flat.T @ flat, jumps, prior)
        # the data alone show nothing of these, or much less
        by_prior = (prior > 0) & (unknown | (np.diag(covariance) < BY_PRIOR * of_data))
        unknown = prior == 0
    withheld = bool(np.isinf(evidence.widened))
    std = np.where(unknown | withheld, np.inf, np.sqrt(np.diag(covariance)))
    half = scipy.stats.t.ppf(0.5 + CONFIDENCE / 2, max(evidence.freedom, 1.0)) * std
    values = unknowns.values(theta)
    with np.errstate(over="ignore", invalid="ignore"):
        low = np.where(unknowns.log, values * np.exp(-half), theta - half)
        high = np.where(unknowns.log, values * np.exp(half), theta + half)
    return Identified(
        labels=unknowns.labels,
        values=values,
        start=unknowns.values(unknowns.start),
        std=std,
        lower=low,
        upper=high,
        at_bound=ends_at_bound(unknowns, theta),
        covariance=covariance,
        null_directions=[directions_in_words(unknowns.labels, direction * size) for direction in null],
        by_prior=by_prior,
        withheld=withheld,
    )


def _posterior(information: np.ndarray, jumps: np.ndarray | None, prior: np.ndarray) -> np.ndarray:
    """(n, n) covariance of the posterior.

    Args:
      information: (n, n) of the data.
      jumps: (n, n) a further covariance of the data, or None.
      prior: (n,) standard deviations of the prior; 0 for parameters that are fixed, whose covariance is zero.
    """
    if jumps is not None:
        # (C + D)^-1 = H (1 + D H)^-1 for H = C^-1, which is also right where H is singular
        information = information @ np.linalg.inv(np.eye(len(prior)) + jumps @ information)
    free = np.flatnonzero(prior > 0)
    width = np.where(np.isfinite(prior), prior, 1.0)[free]
    # in units of the widths: (W H W + 1)^-1
    scaled = information[np.ix_(free, free)] * np.outer(width, width) + np.diag(np.isfinite(prior[free]) * 1.0)
    covariance = np.zeros_like(information)
    covariance[np.ix_(free, free)] = np.linalg.inv(scaled) * np.outer(width, width)
    return covariance


def ends_at_bound(unknowns: Unknowns, theta: np.ndarray) -> np.ndarray:
    """(n,) bool, whether a parameter is at a bound."""
    room = AT_BOUND * (1 + np.abs(theta))
    return (theta - unknowns.lower < room) | (unknowns.upper - theta < room)


def _long_run(scores: np.ndarray) -> np.ndarray:
    """(n, n) covariance of the sum of scores (windows, T, n) that are correlated within windows (Bartlett weights)."""
    longest = max(scores.shape[1] // 2, 1)
    total = np.einsum("wti,wtj->ij", scores, scores)
    for lag in range(1, longest):
        part = (1 - lag / longest) * np.einsum("wti,wtj->ij", scores[:, lag:], scores[:, :-lag])
        total = total + part + part.T
    return total


def directions_in_words(labels: list[str], direction: Any) -> str:
    """A direction in words: "body_mass[a] - 0.5 body_mass[b]"."""
    scaled = direction / direction[np.argmax(np.abs(direction))]
    parts = [(value, label) for value, label in zip(scaled, labels, strict=True) if abs(value) > NAMED]
    numbers = [f"{abs(value):.2g}" for value, _ in parts]
    signs = ["-" if value < 0 else "+" for value, _ in parts]
    pieces = zip(signs, numbers, (label for _, label in parts), strict=True)
    words = [f"{sign} {label}" if number == "1" else f"{sign} {number} {label}" for sign, number, label in pieces]
    return " ".join(words).removeprefix("+ ")

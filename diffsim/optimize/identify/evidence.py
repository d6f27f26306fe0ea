"""What a fit says of its numbers, and whether the data allow it to say so.

With J = [J_theta, J_x] at the solution, what J_x explains is taken out, P = (1 - Q Q^T) J_theta with Q a basis of the
columns of J_x (initial states). Then P S = U s V^T, with S a typical size of each parameter: the covariance of theta is
sigma^2 S V s^-2 V^T S, and columns of V with tiny s are combinations of parameters that could have any value.

That holds where the model explains the data: where residuals r are noise. They are examined by reading: their size
beside the noise; whether they are white, by sums of r_t r_{t+k}, whose means under white noise are
-sigma^2 sum_t q_t q_{t+k} with q the rows of [Q, U]; and whether they contain signals of what a model may lack,
c r / |c| with c outside of the columns of J. Where they fail, intervals are those of a sandwich estimate, or withheld.
Sources: Ljung and Box 1978; Godfrey 1978 for scores of what is left out; Newey and West 1987.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.stats

from diffsim.optimize.identify.least_squares import Blocks, projected
from diffsim.optimize.identify.unknowns import Unknowns

# singular values below this part of the largest count as zero, and standard deviations above this part of a
# parameter's size as not identified
NULL, LOOSE = 1e-7, 1.0
# the part of a direction that names a parameter
NAMED = 0.1
CONFIDENCE = 0.95
# chance of a false alarm over all tests of a fit, longest lag that is looked at
ALARM, LAGS = 1e-3, 20
# residuals of so many times the noise: intervals are withheld
WITHHELD = 3.0
# residuals below this part of the noise are no misfit, whatever they look like
QUIET = 0.5
# share of the squared residuals that a cause must explain to be named
SHARE = 0.2


class Identified(NamedTuple):
    """Parameters and how well they are known, n of them; in units of the model.

    Attributes:
      labels: their names.
      values: found; start: before.
      std: standard deviations of theta (relative ones for logarithms); infinite where the data do not show a parameter,
        or do not agree with the model.
      lower, upper: 95% intervals of the values, without regard to bounds.
      at_bound: bool, whether the search ended at a bound: interval and std then mean little.
      covariance: (n, n) of theta, within what is identified.
      null_directions: combinations of parameters that the data do not show, in words.
      withheld: whether intervals are withheld since the model does not explain the data.
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
    withheld: bool = False

    def __str__(self) -> str:
        width = max(len(label) for label in self.labels) + 2
        lines = [f"{'parameter':<{width}}{'before':>12}{'found':>12}   95% interval"]
        rows = zip(self.labels, self.start, self.values, self.lower, self.upper, self.at_bound, strict=True)
        for label, start, value, lower, upper, bound in rows:
            interval = f"[{lower:.6g}, {upper:.6g}]" if np.isfinite(upper - lower) else "not identified"
            interval = "withheld" if self.withheld else interval
            lines.append(f"{label:<{width}}{start:>12.5g}{value:>12.5g}   {interval}{'  at a bound' if bound else ''}")
        lines += [f"not identified: {direction}" for direction in self.null_directions]
        return "\n".join(lines)


class Sample(NamedTuple):
    """Windows at the solution: what was measured, what is left of it, and what moved.

    Attributes:
      errors: (windows, T, ny) readings minus measurements over the noise; NaN where nothing was measured.
      blocks: their derivatives, rows of errors first.
      readings: (windows, T, ny), as simulated; measured: as recorded.
      noise: (ny,) standard deviations; known: whether they are the user's.
      ctrl, contacts: (windows, T, nu) and (windows, T), how many there are.
      timestep: s; names: (ny,) of readings; order: (ny,) how often a force is integrated to be seen there, 0 to 2.
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
      explained: whether residuals are noise, as far as can be seen.
      size: (ny,) root mean square residual of each reading over its noise, NaN where nothing was measured.
      by_window: (windows, ny) the same of each window.
      white: (ny,) probability of correlations in time as large as these, were residuals white.
      widened: by which factor the residuals widen intervals, at least 1; infinite where they are withheld.
      sentence: the verdict.
      causes: what the residuals look like, in words, the likeliest first.
      freedom: how many readings there are more than what the fit can adjust.
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
    """What is left of windows at a solution, and what would be expected of noise.

    Attributes:
      errors: (windows, T, ny) over the noise, zero where nothing was measured; seen: where something was.
      basis: (windows, T, ny, p) rows of an orthonormal basis of what the fit can explain: windows apart, then theta.
      left: (windows, T, ny) the part of each error that the fit cannot adjust, 1 - |row of the basis|^2.
      size, by_window: (ny,) and (windows, ny) root mean squares, of what is left.
    """

    def __init__(self, sample: Sample) -> None:
        self.sample, self.errors, self.seen = sample, np.nan_to_num(sample.errors), np.isfinite(sample.errors)
        self.basis = self._basis()
        self.left = np.where(self.seen, 1 - np.sum(self.basis**2, axis=-1), 0)
        self.size = _root(np.sum(self.errors**2, axis=(0, 1)), self.left.sum(axis=(0, 1)))
        self.by_window = _root(np.sum(self.errors**2, axis=1), self.left.sum(axis=1))
        self.variance = np.maximum(np.nan_to_num(self.size) ** 2, 1e-100)

    def _basis(self) -> np.ndarray:
        blocks, shape = self.sample.blocks, self.seen.shape
        (windows, k, n), width = blocks.by_theta.shape, blocks.by_x.shape[-1]
        rows, parts = int(np.prod(shape[1:])), []
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
            parts.append((basis * (values > NULL * max(values[0], 1e-300))).reshape(windows, k, n))
        whole = np.concatenate([part[:, :rows] for part in parts], axis=-1) if parts else np.zeros((windows, rows, 0))
        return whole.reshape(*shape, whole.shape[-1])

    def lagged(self, lag: int) -> tuple[np.ndarray, np.ndarray]:
        """(ny,) sums of r_t r_{t+lag} minus what the fit makes of white noise, and how many."""
        both = self.seen[:, lag:] & self.seen[:, :-lag]
        products = np.sum(self.errors[:, lag:] * self.errors[:, :-lag], axis=(0, 1))
        shared = np.where(both, np.sum(self.basis[:, lag:] * self.basis[:, :-lag], axis=-1), 0)
        return products + self.variance * np.sum(shared, axis=(0, 1)), np.sum(both, axis=(0, 1))

    def whiteness(self) -> np.ndarray:
        """(ny,) probabilities of correlations in time as large as these, of white residuals."""
        lags, total = min(LAGS, self.errors.shape[1] // 3), np.zeros(self.errors.shape[-1])
        for lag in range(1, lags + 1):
            products, count = self.lagged(lag)
            total += products**2 / (self.variance**2 * np.maximum(count, 1))
        return scipy.stats.chi2.sf(total, max(lags, 1)) if lags else np.ones(len(total))

    def memory(self) -> np.ndarray:
        """(ny,) how many rows count as one, 1 + 2 sum of correlations up to the first that is not positive."""
        total, positive = np.ones(self.errors.shape[-1]), np.ones(self.errors.shape[-1], bool)
        for lag in range(1, self.errors.shape[1]):
            products, count = self.lagged(lag)
            correlation = products / (self.variance * np.maximum(count, 1))
            positive &= correlation > 0
            total += 2 * np.where(positive, correlation, 0)
            if not positive.any():
                break
        return total

    def outside(self, column: np.ndarray) -> np.ndarray:
        """The part of a signal (windows, T, ny) that the fit cannot adjust."""
        windows, blocks = len(column), self.sample.blocks
        flat = self.basis.reshape(windows, -1, self.basis.shape[-1])
        inside = flat.transpose(0, 2, 1) @ column.reshape(windows, -1, 1)
        # first states of windows that stand alone explain their own rows, all else the rows of all
        apart = blocks.by_x.shape[-1] if blocks.by_next is None else 0
        inside[:, apart:] = inside[:, apart:].sum(axis=0)
        return column - (flat @ inside).reshape(column.shape)

    def signals(self, i: int) -> dict[str, np.ndarray]:
        """By words what a reading would show, (windows, T), of what a model may lack."""
        sample, h = self.sample, self.sample.timestep
        reading, order = sample.readings[..., i], int(sample.order[i])
        rate = np.gradient(reading, h, axis=1) if reading.shape[1] > 1 else 0 * reading
        speed, constant = reading if order == 1 else rate, np.ones(reading.shape)

        def summed(signal: np.ndarray) -> np.ndarray:
            for _ in range(order):
                signal = h * np.cumsum(signal, axis=1)
            return signal

        signals = {
            "an offset of {:.2g}": -constant,
            "a gain of 1 {:+.2g}": -(reading - np.mean(reading)),
            "a delay of {:.2g} s": rate,
            "friction that the model has not enough of": summed(np.sign(speed)),
            "damping that the model has not enough of": summed(speed),
            "a constant force that the model lacks (gravity, tilt, spring)": summed(constant),
        }
        for k in range(sample.ctrl.shape[-1]):
            signals[f"another strength of actuator {k}"] = summed(sample.ctrl[..., k])
        touching = sample.contacts > 0
        if touching.any() and not touching.all():
            signals["contacts that act otherwise"] = summed(np.where(touching, 1.0, 0.0))
        return signals

    def causes(self, exact: np.ndarray) -> tuple[list[str], float]:
        """What residuals look like, the likeliest first; and the probability of the best likeness by chance, of all."""
        sample, likeness, best = self.sample, [], 1.0
        for i in np.flatnonzero(self.seen.any(axis=(0, 1)) & ~exact).tolist():
            squares, signals = float(np.sum(self.errors[..., i] ** 2)), self.signals(i)
            if not squares:
                continue
            for words, signal in signals.items():
                column = np.zeros(self.errors.shape)
                column[..., i] = np.where(self.seen[..., i], signal / sample.noise[i], 0)
                outside = self.outside(column)
                length = float(np.sum(outside**2))
                if length <= 1e-6 * np.sum(column**2):
                    continue
                along = float(np.sum(outside * self.errors))
                chance = 2 * float(scipy.stats.norm.sf(abs(along) / (self.size[i] * np.sqrt(length))))
                best = min(best, chance * len(signals))
                # a delay, friction and damping have a sign
                if "{" in words or along > 0 or words.startswith(("a constant", "another", "contacts")):
                    likeness.append((along**2 / length / squares, words.format(along / length), sample.names[i]))
        likeness.sort(reverse=True)
        named: dict[str, list[str]] = {}
        for share, words, name in likeness:
            if share > SHARE and not any(name in names for names in named.values()):
                named.setdefault(words, []).append(name)
        causes = [f"{words} ({', '.join(names)})" for words, names in named.items()][:4]
        return causes, min(best * max(len(sample.names), 1), 1.0)


def examine(sample: Sample, apparent_noise: np.ndarray) -> Evidence:
    """Judges the residuals of a fit.

    Args:
      sample: the windows at the solution.
      apparent_noise: (ny,) what recordings show by themselves; residuals are compared with it where none is known.
    """
    residuals = Residuals(sample)
    size, left, squares = residuals.size, residuals.left, residuals.errors**2
    exact, count = ~(size > QUIET), left.sum(axis=(0, 1))
    white = np.where(exact, 1.0, residuals.whiteness())
    causes, score = residuals.causes(exact)
    tests = max(np.count_nonzero(count) * 2, 1)
    # chi-square of windows, and of readings
    least = scipy.stats.chi2.isf(ALARM / max(residuals.by_window.size, 1), np.maximum(left.sum(axis=1), 1))
    burst = (np.sum(squares, axis=1) > least * np.maximum(size, 1) ** 2 * 1.1) & ~exact
    random = bool(np.all(white > ALARM / tests) and score > ALARM and not np.any(burst))
    loud = size if sample.known else size * sample.noise / apparent_noise
    largest = float(np.nanmax(np.where(exact, 0, loud), initial=0))
    larger = np.sqrt(scipy.stats.chi2.isf(ALARM / tests, np.maximum(count, 1)) / np.maximum(count, 1))
    louder = bool(np.any((size > np.maximum(larger, 1.05)) & ~exact)) and sample.known
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
        freedom=float(left.sum()),
    )


def _sentence(
    explained: bool, louder: bool, random: bool, largest: float, widened: float, by_window: np.ndarray
) -> str:
    """The verdict in words."""
    if explained and louder:
        more = f"{largest:.2g} times what was said"
        return f"The model explains the data if the noise is {more}; intervals are widened by that."
    if explained:
        return "The model explains the data: what is left looks like noise."
    how = f"residuals are up to {largest:.3g} times the noise" + ("" if random else " and not random")
    uneven = np.nanmax(by_window, axis=1)
    where = int(np.argmax(uneven))
    if len(uneven) > 1 and uneven[where] > 2 * np.median(uneven):
        how += f", largest in window {where}"
    if np.isinf(widened):
        return f"The model does NOT explain the data ({how}): do not trust these numbers; intervals are withheld."
    return f"The model does not explain all of the data ({how}): intervals are widened {widened:.2g} times or more."


def _root(squares: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Root mean squares; NaN of nothing."""
    return np.sqrt(np.divide(squares, count, out=np.full(np.shape(squares), np.nan), where=count > 1e-9))


def identify(
    unknowns: Unknowns, theta: np.ndarray, sample: Sample, evidence: Evidence, jumps: np.ndarray | None = None
) -> Identified:
    """Statistics of a fit.

    Args:
      unknowns: names, bounds and logarithms.
      theta: (n,) found.
      sample: the windows there.
      evidence: what their residuals say.
      jumps: (n, n) what motions that jump leave open besides: other courses of contacts, which no derivative sees.
    """
    n, blocks, errors = theta.size, sample.blocks, np.nan_to_num(sample.errors).reshape(len(sample.errors), -1)
    size = unknowns.sizes(theta)
    rows = projected(blocks) * size
    _, singular, directions = np.linalg.svd(
        np.asarray(np.linalg.qr(rows.reshape(-1, n), mode="r")), full_matrices=False
    )
    free = max(evidence.freedom, 1.0)
    spread = np.divide(1.0, singular, out=np.full(n, np.inf), where=singular > NULL * max(singular[0], 1e-300))
    scale = 1.0 if sample.known else float(np.sqrt(np.sum(errors**2) / free))
    hidden = spread * scale > LOOSE
    null = directions[hidden]
    kept = directions[~hidden].T * spread[~hidden]
    plain = kept @ kept.T
    covariance = plain * scale**2
    if not evidence.explained and np.isfinite(evidence.widened):
        scores = rows[:, : errors.shape[1]] * errors[..., None]
        filling = _long_run(scores.reshape(*sample.errors.shape, n).sum(axis=2))
        sandwich = plain @ filling @ plain
        ratio = np.diag(sandwich) / np.maximum(np.diag(covariance), 1e-300)
        widen = np.sqrt(np.maximum(ratio, evidence.widened**2))
        covariance = covariance * widen[:, None] * widen
    elif evidence.explained:
        covariance = covariance * evidence.widened**2
    covariance = covariance * size[:, None] * size
    if jumps is not None:
        covariance = covariance + jumps
    invisible = np.max(np.abs(null), axis=0, initial=0) > NAMED
    withheld = bool(np.isinf(evidence.widened))
    std = np.where(invisible | withheld, np.inf, np.sqrt(np.diag(covariance)))
    half = scipy.stats.t.ppf(0.5 + CONFIDENCE / 2, free) * std
    values = unknowns.values(theta)
    with np.errstate(over="ignore", invalid="ignore"):
        low, high = (np.where(unknowns.log, values * np.exp(sign * half), theta + sign * half) for sign in (-1, 1))
    room = 1e-6 * (1 + np.abs(theta))
    at_bound = (theta - unknowns.lower < room) | (unknowns.upper - theta < room)
    return Identified(
        labels=unknowns.labels,
        values=values,
        start=unknowns.values(unknowns.start),
        std=std,
        lower=low,
        upper=high,
        at_bound=at_bound,
        covariance=covariance,
        null_directions=[directions_in_words(unknowns.labels, direction * size) for direction in null],
        withheld=withheld,
    )


def _long_run(scores: np.ndarray) -> np.ndarray:
    """(n, n) covariance of the sum of scores (windows, T, n), correlated within windows: Bartlett's weights."""
    longest = max(scores.shape[1] // 2, 1)
    total = np.einsum("wti,wtj->ij", scores, scores)
    for lag in range(1, longest):
        part = (1 - lag / longest) * np.einsum("wti,wtj->ij", scores[:, lag:], scores[:, :-lag])
        total = total + part + part.T
    return total


def directions_in_words(labels: list[str], direction: Any) -> str:
    """A direction as a sum: "body_mass[a] - 0.5 body_mass[b]"."""
    scaled = direction / direction[np.argmax(np.abs(direction))]
    parts = [(value, label) for value, label in zip(scaled, labels, strict=True) if abs(value) > NAMED]
    numbers = [f"{abs(value):.2g}" for value, _ in parts]
    signs = ["-" if value < 0 else "+" for value, _ in parts]
    pieces = zip(signs, numbers, (label for _, label in parts), strict=True)
    words = [f"{sign} {label}" if number == "1" else f"{sign} {number} {label}" for sign, number, label in pieces]
    return " ".join(words).removeprefix("+ ")

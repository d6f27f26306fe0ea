"""The noise of readings: from the user, from readings alone, and pooled over the readings of a sensor."""

from typing import Any

import numpy as np

from diffsim.types import Model

# estimated noise is at least this part of a reading's range, for numbers of 4 and of 8 bytes: below it is the rounding
# of a simulation
LEAST_NOISE = {4: 1e-5, 8: 1e-7}
# the noise of a reading whose rows are too few to estimate it, as a part of its range
ASSUMED_NOISE = 1e-3


def checked_noise(model: Model, noise: Any) -> np.ndarray | None:
    """(ny,) standard deviations from what the user gives.

    Raises:
      ValueError: the wrong shape, or numbers that are not positive.
    """
    if noise is None:
        return None
    count = model.nsensordata
    scale = np.asarray(noise, float)
    if scale.shape not in ((), (1,), (count,)):
        raise ValueError(f"noise has shape {scale.shape}, expected one number or ({count},)")
    if not np.all(scale > 0):
        raise ValueError(f"noise is {noise}, expected positive standard deviations")
    return np.broadcast_to(scale, (count,)).copy()


def least_noise(dtype: Any, measured: np.ndarray) -> np.ndarray:
    """(ny,) the least estimate of the noise of readings (windows, T, ny), by the dtype of the simulation."""
    return LEAST_NOISE[np.dtype(dtype).itemsize] * ranges(measured)


def ranges(measured: np.ndarray) -> np.ndarray:
    """(ny,) the range of each reading (windows, T, ny); for a constant reading the largest range of all, or 1."""
    flat = measured.reshape(-1, measured.shape[-1])
    seen = np.isfinite(flat)
    high = np.max(np.where(seen, flat, -np.inf), axis=0, initial=-np.inf)
    low = np.min(np.where(seen, flat, np.inf), axis=0, initial=np.inf)
    moved = np.where(seen.any(axis=0), high - low, 0)
    return np.where(moved > 0, moved, moved.max(initial=0) or 1.0)


def apparent_noise(model: Model, measured: np.ndarray) -> np.ndarray:
    """(ny,) the noise of readings (windows, T, ny), from the readings alone.

    Third differences of a smooth motion are nearly zero, so what is left is noise, sqrt(1 + 9 + 9 + 1) times as large.
    Their median, times 1.4826 for a normal distribution, ignores rows with impacts.
    """
    least = least_noise(model.qpos0.dtype, measured)
    noise = ASSUMED_NOISE * ranges(measured)
    for i in range(measured.shape[-1]):
        # measured rows may be sparse among the rows of the simulation
        read = [window[np.isfinite(window)] for window in measured[..., i]]
        third = np.abs(np.concatenate([np.diff(part, n=3) for part in read])) / np.sqrt(20)
        if third.size > 1:
            noise[i] = max(1.4826 * float(np.median(third)), 0.2 * float(np.sqrt(np.mean(third**2))))
    return np.maximum(by_sensor(model, noise), least)


def by_sensor(model: Model, deviations: np.ndarray) -> np.ndarray:
    """(ny,) the root mean square over the readings of each sensor."""
    pooled = deviations.copy()
    for first, width in zip(model.sensor_adr, model.sensor_dim, strict=True):
        place = slice(int(first), int(first + width))
        pooled[place] = np.sqrt(np.nanmean(deviations[place] ** 2)) if np.isfinite(deviations[place]).any() else np.nan
    return pooled

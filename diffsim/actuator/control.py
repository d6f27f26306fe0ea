"""Controls within their ranges, and actuators that the options switch off."""

import jax
import numpy as np

from diffsim.actuator.actuators import clamp
from diffsim.base.enums import DisableBit
from diffsim.math import safe
from diffsim.types.model import Model
from diffsim.xla.where import where

Array = jax.Array


def clamped_controls(model: Model, ctrl: Array) -> Array:
    """Controls (nu,) within the ranges of those that have one."""
    if model.opt.disabled(DisableBit.CLAMPCTRL):
        return ctrl
    return clamp(ctrl, model.actuator_ctrlrange, model.topology.actuator_ctrllimited)


def usable_controls(model: Model, ctrl: Array) -> Array:
    """Clamped controls (nu,); all zero if any is NaN, infinite or beyond 1e10."""
    ctrl = clamped_controls(model, ctrl)
    return where(safe.is_bad(ctrl), 0, ctrl)


def switched_off(model: Model) -> np.ndarray:
    """(nu,) bool: actuators in a group that the options switch off (groups 0 to 30 can be)."""
    group = model.topology.actuator_group
    bits = np.left_shift(1, np.clip(group, 0, 30), dtype=np.int64)
    return (group >= 0) & (group <= 30) & ((bits & model.opt.disableactuator) != 0)

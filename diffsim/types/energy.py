"""Which elements of a model can add energy: some integrators then factor their inertia in another way."""

from collections.abc import Mapping
from typing import Any

import jax.core
import numpy as np

from diffsim.base.enums import BiasType, GainType

# dampers of dofs and of tendons
DAMPING = ("dof_damping", "dof_dampingpoly", "tendon_damping", "tendon_dampingpoly")
# laws of actuators
ACTUATORS = ("actuator_gaintype", "actuator_biastype", "actuator_biasprm")


def energy_masks(fields: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Masks of what adds energy, for `Topology.present`, from those of these fields whose values are known.

    `can_accelerate` (nu,): actuators whose force can grow with the velocity, at least for some controls.
    `negative_damping` (1,): whether a damper pushes.

    Args:
      fields: fields of a Model by name, also with leading axes of worlds; with `actuator_biasprm` also the types of
        gains and biases.
    """
    named = {name: fields[name] for name in (*DAMPING, *ACTUATORS) if name in fields}
    known = {name: np.asarray(value) for name, value in named.items() if not isinstance(value, jax.core.Tracer)}
    masks = {}
    if "actuator_biasprm" in known:
        grows = (known["actuator_biasprm"][..., 2] > 0) & (known["actuator_biastype"] == BiasType.AFFINE)
        of_any_world = grows.any(axis=tuple(range(grows.ndim - 1)))
        masks["can_accelerate"] = (known["actuator_gaintype"] == GainType.AFFINE) | of_any_world
    dampings = [known[name] for name in DAMPING if name in known]
    if dampings:
        masks["negative_damping"] = np.full(1, any(np.any(values < 0) for values in dampings))
    return masks

"""Armature and damping of joints and tendons, with those of actuators reflected through their gears.

An actuator with rotor inertia a (or damping b) and gear g adds g^2 a (or g^2 b) to the joint or tendon that it drives.
What can be non-zero is static (`Topology.present`), so models without it carry no code for it.
"""

import jax
import numpy as np

from diffsim.base.enums import TrnType
from diffsim.types.model import Model
from diffsim.types.topology import Topology, per_topology

Array = jax.Array


@per_topology
def _driven_dofs(topology: Topology, field: str) -> tuple[np.ndarray, np.ndarray]:
    """(actuators, dofs): each dof of each joint that an actuator with `field` drives."""
    drives = np.isin(topology.actuator_trntype, (TrnType.JOINT, TrnType.JOINTINPARENT))
    pairs = [
        (int(actuator), int(dof))
        for actuator in np.flatnonzero(drives & _has(topology, field))
        for dof in np.flatnonzero(topology.dof_jntid == topology.actuator_trnid[actuator, 0])
    ]
    return _columns(pairs)


@per_topology
def _driven_tendons(topology: Topology, field: str) -> tuple[np.ndarray, np.ndarray]:
    """(actuators, tendons): the tendon of each actuator with `field` that drives one."""
    drives = (topology.actuator_trntype == TrnType.TENDON) & _has(topology, field)
    return _columns([(int(k), int(topology.actuator_trnid[k, 0])) for k in np.flatnonzero(drives)])


def _has(topology: Topology, field: str) -> np.ndarray:
    """(nu,) whether an actuator's switch field can be non-zero."""
    present = topology.present[field]
    return np.any(present.reshape(len(present), -1), axis=1) if present.size else np.zeros(len(present), dtype=bool)


def _columns(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    table = np.array(pairs, dtype=np.int32).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def _add_reflected(model: Model, own: Array, values: Array, ids: tuple[np.ndarray, np.ndarray]) -> Array:
    """own + gear^2 values, summed over the actuators of each target."""
    actuators, targets = ids
    if not actuators.size:
        return own
    gear = model.actuator_gear[actuators, 0].reshape(-1, *[1] * (own.ndim - 1))
    return own.at[targets].add(gear * gear * values[actuators])


def dof_armature(model: Model) -> Array:
    """(nv,) armature, kg m^2 or kg."""
    ids = _driven_dofs(model.topology, "actuator_armature")
    return _add_reflected(model, model.dof_armature, model.actuator_armature, ids)


def tendon_armature(model: Model) -> Array:
    """(ntendon,) armature, kg."""
    ids = _driven_tendons(model.topology, "actuator_armature")
    return _add_reflected(model, model.tendon_armature, model.actuator_armature, ids)


def dof_damping(model: Model) -> tuple[Array, Array]:
    """Linear damping (nv,) and the coefficients of its higher terms (nv, 2)."""
    linear, higher = (_driven_dofs(model.topology, f) for f in ("actuator_damping", "actuator_dampingpoly"))
    return (
        _add_reflected(model, model.dof_damping, model.actuator_damping, linear),
        _add_reflected(model, model.dof_dampingpoly, model.actuator_dampingpoly, higher),
    )


def tendon_damping(model: Model) -> tuple[Array, Array]:
    """Linear damping (ntendon,) and the coefficients of its higher terms (ntendon, 2)."""
    linear, higher = (_driven_tendons(model.topology, f) for f in ("actuator_damping", "actuator_dampingpoly"))
    return (
        _add_reflected(model, model.tendon_damping, model.actuator_damping, linear),
        _add_reflected(model, model.tendon_dampingpoly, model.actuator_dampingpoly, higher),
    )


@per_topology
def has_dof_damping(topology: Topology, poly: bool = False) -> bool:
    """Whether any dof can have damping (its higher terms, if `poly`), its own or an actuator's."""
    suffix = "poly" if poly else ""
    return topology.has(f"dof_damping{suffix}") or bool(_driven_dofs(topology, f"actuator_damping{suffix}")[0].size)


@per_topology
def has_tendon_damping(topology: Topology, poly: bool = False) -> bool:
    """Whether any tendon can have damping (its higher terms, if `poly`), its own or an actuator's."""
    suffix = "poly" if poly else ""
    return topology.has(f"tendon_damping{suffix}") or bool(
        _driven_tendons(topology, f"actuator_damping{suffix}")[0].size
    )


def is_damped(topology: Topology) -> bool:
    """Whether any dof can have damping of any order, its own or an actuator's."""
    return has_dof_damping(topology) or has_dof_damping(topology, poly=True)


def has_any_tendon_damping(topology: Topology) -> bool:
    """Whether any tendon can have damping of any order, its own or an actuator's."""
    return has_tendon_damping(topology) or has_tendon_damping(topology, poly=True)


@per_topology
def has_tendon_armature(topology: Topology) -> bool:
    """Whether any tendon can have armature, its own or an actuator's."""
    return topology.has("tendon_armature") or bool(_driven_tendons(topology, "actuator_armature")[0].size)

"""Rays, Jacobians, products with M, forces and names with MJX's signatures, on top of `diffsim.support`."""

from collections.abc import Sequence
from typing import Any, cast

import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim import support
from diffsim.base.enums import ObjType
from diffsim.base.errors import Problem, UnsupportedError
from diffsim.compiler.convert import names_of
from diffsim.constraint import contact_forces
from diffsim.constraint.views import is_sparse as is_sparse
from diffsim.dynamics.body_forces import applied_force
from diffsim.math.block_solves import solve_blocks
from diffsim.math.vector import mul_vec_t
from diffsim.mjx.stages import inputs_of
from diffsim.mjx.types import Contact, Data, Model
from diffsim.support.rays import RayFilter
from diffsim.support.rays import ray as first_hit
from diffsim.types.kinds import KINDS, OBJECT_KIND


def ray(
    m: Model,
    d: Data,
    pnt: Array,
    vec: Array,
    geomgroup: Sequence[int] = (),
    flg_static: bool = True,
    bodyexclude: Sequence[int] | int = -1,
) -> tuple[Array, Array]:
    """(distance, geom) of the first geom that a ray hits, as `diffsim.ray`; -1 for none."""
    bodies = np.atleast_1d(np.asarray(bodyexclude, int))
    if len(bodies) > 1:
        reason = "a ray can exclude only one body; start it behind the first one, or exclude geoms by geomgroup"
        raise UnsupportedError([Problem("", 0, "ray(bodyexclude)", reason, unsupported=True)])
    hits = RayFilter(list(geomgroup) or None, flg_static, int(bodies[0]) if len(bodies) else -1)
    hit = first_hit(m, d, pnt, vec, hits)
    return hit.distance, hit.geom


def jac(m: Model, d: Data, point: Array, body_id: Any) -> tuple[Array, Array]:
    """Jacobians (nv, 3) of a world point of a body, and of its rotation; `diffsim.support.jac` transposed."""
    moved, turned = support.jac(m, d, point, body_id)
    return moved.T, turned.T


def jac_dot(m: Model, d: Data, point: Array, body_id: Any) -> tuple[Array, Array]:
    """Time derivatives (nv, 3) of the Jacobians of `jac`."""
    moved, turned = support.jac_dot(m, d, point, body_id)
    return moved.T, turned.T


def full_m(m: Model, d: Data) -> Array:
    """The inertia matrix M, (nv, nv)."""
    return d.qM


def mul_m(m: Model, d: Data, vec: Array) -> Array:
    """M times a vector (nv,)."""
    return d.M.mul_vec(vec)


def solve_m(m: Model, d: Data, x: Array) -> Array:
    """M^-1 times a vector (nv,)."""
    return solve_blocks(d.M, x)


def apply_ft(m: Model, d: Data, force: Array, torque: Array, point: Array, body_id: Any) -> Array:
    """Generalized force (nv,) of a force and a torque (3,) at a world point of a body; body_id may be traced."""
    moved, turned = support.jac(m, d, point, body_id)
    return force @ moved + torque @ turned


def xfrc_accumulate(m: Model, d: Data) -> Array:
    """Generalized force (nv,) of `xfrc_applied`."""
    return applied_force(m, inputs_of(d), d, d) - d.qfrc_applied


def contact_force(m: Model, d: Data, contact_id: int, to_world_frame: bool = False) -> Array:
    """Force and torque (6,) of a contact on its second geom, in the contact frame (normal first) or the world frame."""
    wrench = contact_forces(m, d.contact, d.efc, d)[contact_id]
    frame = d.contact.frame[contact_id]
    if not to_world_frame:
        return wrench
    return jnp.concatenate([mul_vec_t(frame, wrench[:3]), mul_vec_t(frame, wrench[3:])])


def contact_force_dim(m: Model, d: Data, dim: int) -> tuple[Array, np.ndarray]:
    """Forces (n, 6), as `contact_force`, of all contacts of a dimension, and their slots (n,)."""
    slots = np.flatnonzero(cast(Contact, d.contact).dim == dim)
    return contact_forces(m, d.contact, d.efc, d)[slots], slots


def id2name(m: Any, typ: Any, i: int) -> str | None:
    """The name of an object of a type (`mujoco.mjtObj`); None if it has no name or does not exist."""
    names = _names(m, typ)
    return (names[i] or None) if 0 <= i < len(names) else None


def name2id(m: Any, typ: Any, name: str | None) -> int:
    """The index of a named object of a type; -1 if there is none."""
    names = _names(m, typ)
    return names.index(name) if name and name in names else -1


def _names(m: Any, typ: Any) -> Sequence[str]:
    """Names of all objects of a type, in a model of diffsim or MuJoCo."""
    kind = OBJECT_KIND.get(ObjType(int(typ)))
    if kind is None:
        return ()
    return m.topology.names[kind] if hasattr(m, "topology") else names_of(m, KINDS[kind].prefix)

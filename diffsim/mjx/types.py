"""Model, Data, Contact, Option and the enums with MJX's names.

`Model` is a `diffsim.Model`. `Data` has the fields of State, Inputs and `diffsim.Data` together, so functions of
diffsim that take a Data accept it. As in MJX, after `step` it holds the positions and velocities of the next state, and
everything that was computed from the state before.
"""

import dataclasses
from enum import Enum
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base import enums
from diffsim.base.enums import BiasType as BiasType
from diffsim.base.enums import ConstraintType as ConstraintType
from diffsim.base.enums import DisableBit as DisableBit
from diffsim.base.enums import DynType as DynType
from diffsim.base.enums import EnableBit as EnableBit
from diffsim.base.enums import EqType as EqType
from diffsim.base.enums import GainType as GainType
from diffsim.base.enums import GeomType as GeomType
from diffsim.base.enums import JointType as JointType
from diffsim.base.enums import ObjType as ObjType
from diffsim.base.enums import SensorType as SensorType
from diffsim.base.enums import TrnType as TrnType
from diffsim.base.enums import WrapType as WrapType
from diffsim.base.errors import near_match
from diffsim.math.linalg import diagonal_of
from diffsim.mjx import rows
from diffsim.mjx.bound import Bound
from diffsim.mjx.pytree import PyTreeNode
from diffsim.types import data as records
from diffsim.types import model as models
from diffsim.types.model import Option as Option
from diffsim.types.model import Statistic as Statistic
from diffsim.types.record import Record, leaf, record, static
from diffsim.types.state import Inputs, State
from diffsim.types.topology import Topology

CamLightType = enums.CamLightMode
ConeType = enums.Cone
IntegratorType = enums.Integrator
JacobianType = enums.Jacobian
SolverType = enums.Solver


class Impl(Enum):
    """MJX's implementations; diffsim has only `JAX`."""

    CPP = "cpp"
    JAX = "jax"
    WARP = "warp"


class _HasImpl:
    """MJX's attributes about the implementation; here Model and Data are their own implementation."""

    @property
    def impl(self) -> Impl:
        """The implementation, always `Impl.JAX`."""
        return Impl.JAX

    @property
    def _impl(self) -> Self:
        return self


class Model(_HasImpl, models.Model, PyTreeNode):
    """A `diffsim.Model` with MJX's methods. Setting a switch field from zero to another value compiles again."""

    @property
    def nM(self) -> int:
        """Number of entries of M that MuJoCo stores: for each dof one for itself and one for each ancestor."""
        count = np.zeros(self.nv, int)
        for dof, parent in enumerate(self.topology.dof_parentid):
            count[dof] = 1 + (count[parent] if parent >= 0 else 0)
        return int(count.sum())

    def bind(self, objects: Any) -> Bound:
        """The fields of elements of an `mujoco.MjSpec`: `model.bind(spec.bodies).mass`."""
        return Bound(self, self, objects)


class Contact(records.Contacts, PyTreeNode):
    """The contact buffer. A slot holds a contact if `dist < includemargin`; the geoms of an empty slot are -1.

    As in MJX every array has one row per slot, so `jax.tree.map(lambda x: x[:2], contact)` selects slots. Therefore the
    other fields of `diffsim.Contacts` are None: `ncon_dropped`, which is in Data, and the fields of flexes if the model
    has none.
    """

    # (ncon,), tuples because static fields must be hashable
    dims: tuple[int, ...] = static()
    first_row: tuple[int, ...] = static()

    @property
    def dim(self) -> np.ndarray:
        """Contact dimension (ncon,) of each slot."""
        return np.array(self.dims, np.int32)

    @property
    def efc_address(self) -> np.ndarray:
        """First row (ncon,) of each slot in `efc_*`; -1 for a slot without rows."""
        return np.array(self.first_row, np.int32)

    @property
    def geom1(self) -> Array:
        """First geom (ncon,) of each slot."""
        return self.geom[..., 0]

    @property
    def geom2(self) -> Array:
        """Second geom (ncon,) of each slot."""
        return self.geom[..., 1]

    def replace(self, **fields: Any) -> Self:
        """A copy with some fields changed, including `dim` and `efc_address`."""
        for name, of_mjx in (("dims", "dim"), ("first_row", "efc_address")):
            if of_mjx in fields:
                fields[name] = tuple(map(int, fields.pop(of_mjx)))
        return dataclasses.replace(self, **fields)


@record
class Paths(Record):
    """The wrap points of tendons, as from `diffsim.support.tendon_paths`, in mjData's shapes."""

    ten_wrapadr: Array = leaf("ntendon", dtype=int)
    ten_wrapnum: Array = leaf("ntendon", dtype=int)
    wrap_obj: Array = leaf("nwrap", 2, dtype=int)
    wrap_xpos: Array = leaf("nwrap", 6)


class Data(_HasImpl, State, Inputs, records.Data, Paths, PyTreeNode):
    """State, Inputs and Data of diffsim in one, with mjData's names; also `efc_J`, `efc_force`, ... (mjx/rows.py)."""

    qfrc_inverse: Array = leaf("nv")
    # number of contacts that did not fit in the buffer
    dropped: Array = leaf(dtype=int)
    # the topology of the model, from which the order of the rows follows
    topology: Topology = static()

    def __getitem__(self, index: Any) -> Self:
        """Selects worlds of a batch."""
        return jax.tree.map(lambda leaf: leaf[index], self)

    def where(self, done: Any, other: Self) -> Self:
        """Takes `other` in worlds where `done` is true, and this Data elsewhere: `data.where(done, first)` resets them.

        Args:
          done: bool, of one world inside `vmap`, or (batch,) for a batch.
          other: Data of the same model, with as many worlds, or one world that is taken for all.
        """
        done = jnp.asarray(done)

        def chosen(new: Array, old: Array) -> Array:
            return jnp.where(done.reshape(done.shape + (1,) * (old.ndim - done.ndim)), new, old)

        return jax.tree.map(chosen, other, self)

    def __getattr__(self, name: str) -> Any:
        """The columns `efc_*` of the constraint rows, which are computed on demand."""
        if name in rows.COLUMNS:
            return rows.column(self, name)
        raise AttributeError(f"'Data' object has no attribute {name!r}")

    def replace(self, **fields: Any) -> Self:
        """A copy with some fields changed; values are converted to arrays of the old dtype.

        `_impl=other` copies from another Data the fields that MJX keeps in `_impl`, which are not public in MJX.

        Raises:
          TypeError: the field is unknown, or derived from others.
        """
        other = fields.pop("_impl", None)
        if other is not None:
            fields = {name: getattr(other, name) for name in _PRIVATE} | fields
        if "eq_active" in fields:
            fields["eq_activity"] = fields.pop("eq_active")
        if "tree_asleep" in fields:
            fields["tree_sleep"] = fields.pop("tree_asleep")
        if "efc_force" in fields:
            fields["row_force"] = rows.row_force_from(self, jnp.asarray(fields.pop("efc_force"), self.row_force.dtype))
        if "qM" in fields:
            fields["M"] = diagonal_of(self.M.blocks, jnp.asarray(fields.pop("qM"), self.qpos.dtype))
        known = [field.name for field in self.fields()]
        for name in [*fields]:
            if name not in known:
                hint = near_match(name, known)
                raise TypeError(f"Data has no field {name!r} that can be set" + (f"; {hint}" if hint else ""))
            old = getattr(self, name)
            new = fields[name]
            # do not convert placeholders (such as axes of vmap) and records
            if hasattr(old, "dtype") and new is not None and not isinstance(new, PyTreeNode | Record):
                fields[name] = new if getattr(new, "dtype", None) == old.dtype else jnp.asarray(new, old.dtype)
        return dataclasses.replace(self, **fields)

    def bind(self, model: models.Model, objects: Any) -> Bound:
        """The fields of elements of an `mujoco.MjSpec`: `data.bind(model, spec.joints).qpos`."""
        return Bound(self, model, objects)

    @property
    def ncon_dropped(self) -> Array:
        """Number of contacts that did not fit in the buffer."""
        return self.dropped

    @property
    def ncon(self) -> int:
        """Number of contact slots."""
        return self.contact.dist.shape[-1]

    @property
    def ne(self) -> int:
        """Number of rows of equalities."""
        return rows.count(self.efc, ConstraintType.EQUALITY)

    @property
    def nf(self) -> int:
        """Number of rows of dry friction."""
        return rows.count(self.efc, ConstraintType.FRICTION_DOF, ConstraintType.FRICTION_TENDON)

    @property
    def nl(self) -> int:
        """Number of rows of limits."""
        return rows.count(self.efc, ConstraintType.LIMIT_JOINT, ConstraintType.LIMIT_TENDON)

    @property
    def nefc(self) -> int:
        """Number of rows, active or not."""
        return rows.count(self.efc, *ConstraintType)

    @property
    def efc_type(self) -> np.ndarray:
        """Type (nefc,) of each row."""
        return rows.row_types(self.efc)


# include inherited fields, because Playground makes an almost empty Data by `Data(**dict.fromkeys(annotations))`
Data.__annotations__ = {field.name: field.type for field in Data.fields()}

# fields that MJX keeps in `_impl`
_PRIVATE = {
    "solver_niter",
    "solver_improvement",
    "solver_gradient_norm",
    "solver_stalled",
    "row_force",
    "efc",
    "contact",
    "dropped",
    "cinert",
    "crb",
    "M",
    "ten_J",
    "ten_velocity",
    "actuator_moment",
    "actuator_velocity",
    "cacc",
    "cfrc_int",
    "cfrc_ext",
    "subtree_linvel",
    "subtree_angmom",
    "ten_wrapadr",
    "ten_wrapnum",
    "wrap_obj",
    "wrap_xpos",
}

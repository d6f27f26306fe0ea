"""Model, Data, Contact, Option and the enums under MJX's names.

`Model` is a `diffsim.Model`. `Data` holds the fields of State, Inputs and Data side by side: the functions of diffsim
that take a Data take it. As in MJX, `step` leaves in it the positions and velocities of the next state, and all that
was computed from the state before.
"""

import dataclasses
from enum import Enum
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

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
from diffsim.mjx import rows
from diffsim.mjx.bind import Bound
from diffsim.mjx.node import PyTreeNode
from diffsim.types import data as records
from diffsim.types import model as models
from diffsim.types.model import Option as Option
from diffsim.types.model import Statistic as Statistic
from diffsim.types.record import Record, leaf, record, static
from diffsim.types.state import Inputs, State
from diffsim.types.topology import Topology

Array = jax.Array


CamLightType = enums.CamLightMode
ConeType = enums.Cone
IntegratorType = enums.Integrator
JacobianType = enums.Jacobian
SolverType = enums.Solver


class Impl(Enum):
    """Which implementation MJX is asked for; here there is one, which answers to `jax`."""

    CPP = "cpp"
    JAX = "jax"
    WARP = "warp"


class _Answers:
    """What Model and Data say of their implementation: there is none beside them."""

    @property
    def impl(self) -> Impl:
        """The implementation, always `Impl.JAX`."""
        return Impl.JAX

    @property
    def _impl(self) -> Self:
        return self


class Model(_Answers, models.Model, PyTreeNode):
    """A `diffsim.Model` with MJX's ways to change it. A switch field set to other than zero compiles anew."""

    @property
    def nM(self) -> int:
        """Number of entries of M that MuJoCo stores: of each dof, itself and the dofs that it hangs on."""
        count = np.zeros(self.nv, int)
        for dof, parent in enumerate(self.topology.dof_parentid):
            count[dof] = 1 + (count[parent] if parent >= 0 else 0)
        return int(count.sum())

    def bind(self, objects: Any) -> Bound:
        """Fields of objects of an `mujoco.MjSpec`: `model.bind(spec.bodies).mass`."""
        return Bound(self, self, objects)


class Contact(records.Contacts, PyTreeNode):
    """The contact buffer. A slot is a contact where `dist < includemargin`; one without geoms has ids of -1."""

    # (ncon,), a tuple so that it is part of the structure
    dims: tuple[int, ...] = static()

    @property
    def dim(self) -> np.ndarray:
        """(ncon,) contact dimension of each slot."""
        return np.array(self.dims, np.int32)

    @property
    def geom1(self) -> Array:
        """(ncon,) first geom of each slot."""
        return self.geom[..., 0]

    @property
    def geom2(self) -> Array:
        """(ncon,) second geom of each slot."""
        return self.geom[..., 1]


@record
class Paths(Record):
    """The points that tendons go through, as `diffsim.support.tendon_paths` gives them, in mjData's shapes."""

    ten_wrapadr: Array = leaf("ntendon", dtype=int)
    ten_wrapnum: Array = leaf("ntendon", dtype=int)
    wrap_obj: Array = leaf("nwrap", 2, dtype=int)
    wrap_xpos: Array = leaf("nwrap", 6)


class Data(_Answers, State, Inputs, records.Data, Paths, PyTreeNode):
    """State, Inputs and Data of diffsim in one, under mjData's names; also `efc_J`, `efc_force` ... (mjx/rows.py)."""

    qfrc_inverse: Array = leaf("nv")
    # of the model that it was made for, which says in which order the rows are
    topology: Topology = static()

    @property
    def plugin_state(self) -> Array:
        """(0,): no plugin with a state is supported."""
        return jnp.zeros((*self.time.shape, 0), self.time.dtype)

    def __getitem__(self, index: Any) -> Self:
        """The worlds of a batch that an index picks."""
        return jax.tree.map(lambda leaf: leaf[index], self)

    def __getattr__(self, name: str) -> Any:
        """The rows of the constraints."""
        if name in rows.COLUMNS:
            return rows.column(self, name)
        raise AttributeError(f"'Data' object has no attribute {name!r}")

    def replace(self, **fields: Any) -> Self:
        """A copy with some fields changed; values become arrays of the type that was there.

        `_impl=other` takes from another Data what MJX keeps there: all but what its manual lists as fields of Data.

        Raises:
          TypeError: an unknown field, or one that is derived from others.
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
        known = [field.name for field in self.fields()]
        for name in [*fields]:
            if name not in known:
                hint = near_match(name, known)
                raise TypeError(f"Data has no field {name!r} that can be set" + (f"; {hint}" if hint else ""))
            old, new = getattr(self, name), fields[name]
            # placeholders (axes of vmap) and records stay what they are
            if hasattr(old, "dtype") and new is not None and not isinstance(new, PyTreeNode | Record):
                fields[name] = new if getattr(new, "dtype", None) == old.dtype else jnp.asarray(new, old.dtype)
        return dataclasses.replace(self, **fields)

    def bind(self, model: models.Model, objects: Any) -> Bound:
        """Fields of objects of an `mujoco.MjSpec`: `data.bind(model, spec.joints).qpos`."""
        return Bound(self, model, objects)

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
        """Number of rows, whether they act or not."""
        return rows.count(self.efc, *ConstraintType)

    @property
    def efc_type(self) -> np.ndarray:
        """(nefc,) type of each row."""
        return rows.row_types(self.efc)


_PRIVATE = {
    *("solver_niter", "solver_improvement", "solver_gradient_norm", "solver_stalled", "row_force", "efc", "contact"),
    *("cinert", "crb", "M", "ten_J", "ten_velocity", "actuator_moment", "actuator_velocity"),
    *("cacc", "cfrc_int", "cfrc_ext", "subtree_linvel", "subtree_angmom"),
    *("ten_wrapadr", "ten_wrapnum", "wrap_obj", "wrap_xpos"),
}

"""What a family says of its rows, before impedance and weight: the arguments of assemble.py."""

from typing import NamedTuple

import jax

from diffsim.math.linalg import BlockColumns
from diffsim.math.stencil_rows import Segment
from diffsim.types import Inputs, Model, State
from diffsim.types.constraints import Held
from diffsim.types.data import ComFrame, Contacts, Flexes, Kinematics, Tendons, Velocities

Array = jax.Array


class Sources(NamedTuple):
    """What the families read."""

    model: Model
    state: State
    inputs: Inputs
    kinematics: Kinematics
    com: ComFrame
    tendons: Tendons
    velocities: Velocities
    contacts: Contacts
    # which rows act and push, where the state does not decide
    held: Held | None = None
    # m, how far apart contacts have soft rows (contact_reach.py); None for none
    reach: float | None = None
    # of models that have some
    flexes: Flexes | None = None
    # (nv,) which dofs sleep; None where none ever does
    asleep: Array | None = None


class RawRows(NamedTuple):
    """n constraints of `dim` rows each before their impedance; all arrays (n,) unless said otherwise.

    A row is active where `active` is; its violation is pos - margin, in m or rad.
    """

    pos: Array
    margin: Array
    active: Array
    # estimate of J M^-1 J^T at qpos0
    diagonal: Array
    # (n, 2) and (n, 5)
    solref: Array
    solimp: Array
    dim: int = 1
    # rows (dim * n, nv), component-major; None with a sign: one row per dof
    jacobian: Array | BlockColumns | Segment | None = None
    sign: int = 0
    # (dim, n) J qvel, where that is known already
    vel: Array | None = None
    # bound of the force, N or N m
    frictionloss: Array | None = None
    # what the impedance is measured with, if not pos; part of the acceleration that does not come from J v
    size: Array | None = None
    jacobian_dot_v: Array | None = None
    # (nanchor, 2, 3) points that an equality holds together
    anchor: Array | None = None
    # of contacts: first slot, (dim - 1, n) friction coefficients, (n, 2) solref of elliptic friction (zero: not set)
    slot: int | None = None
    # (n,) 1 where it touches dofs of two blocks of M, else 0; None: not known
    joins: Array | None = None
    friction: Array | None = None
    solref_friction: Array | None = None

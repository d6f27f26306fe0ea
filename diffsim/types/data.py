"""Data: everything that follows from one state, one record per stage of the pipeline, with mjData's names.

A stage asks for the records that it reads and returns the record that it computes; `Data` inherits them all.
Frames are world frames unless said otherwise; rotation matrices are (3, 3) and map local to world. Spatial vectors
are (rotation, translation), world-oriented, centred at the centre of mass of the kinematic tree (`subtree_com` of the
root body).
"""

import dataclasses
from typing import Any, Self

import jax
import jax.numpy as jnp
from jax import Array

from diffsim.math.linalg import BlockDiagonal
from diffsim.types.constraints import Constraints
from diffsim.types.record import Record, child, held_as, leaf, record
from diffsim.types.views import viewed


@record
class Kinematics(Record):
    """Poses of everything that moves."""

    xpos: Array = leaf("nbody", 3)
    xquat: Array = leaf("nbody", 4)
    xmat: Array = leaf("nbody", 3, 3)
    xipos: Array = leaf("nbody", 3)
    ximat: Array = leaf("nbody", 3, 3)
    xanchor: Array = leaf("njnt", 3)
    xaxis: Array = leaf("njnt", 3)
    geom_xpos: Array = leaf("ngeom", 3)
    geom_xmat: Array = leaf("ngeom", 3, 3)
    site_xpos: Array = leaf("nsite", 3)
    site_xmat: Array = leaf("nsite", 3, 3)
    cam_xpos: Array = leaf("ncam", 3)
    cam_xmat: Array = leaf("ncam", 3, 3)
    light_xpos: Array = leaf("nlight", 3)
    light_xdir: Array = leaf("nlight", 3)


@record
class ComFrame(Record):
    """Inertias and motion axes about the centre of mass of each tree.

    `cinert` is (Ixx, Iyy, Izz, Ixy, Ixz, Iyz, m cx, m cy, m cz, m).
    """

    subtree_com: Array = leaf("nbody", 3)
    cinert: Array = leaf("nbody", 10)
    cdof: Array = leaf("nv", 6)


@record
class Tendons(Record):
    """Tendon lengths (m, or rad for fixed tendons) and moment arms."""

    ten_length: Array = leaf("ntendon")
    ten_J: Array = leaf("ntendon", "nv")


@record
class Flexes(Record):
    """Vertices of flexes (m), lengths of their edges (m) and how fast these grow (m/s), boxes around their elements.

    `flexvert_length` are two invariants of the strain at vertices, for flexvert equalities. Boxes are centre and half
    sizes, radius included.
    """

    flexvert_xpos: Array = leaf("nflexvert", 3)
    flexvert_length: Array = leaf("nflexvert", 2)
    flexedge_length: Array = leaf("nflexedge")
    flexedge_velocity: Array = leaf("nflexedge")


@record
class Inertia(Record):
    """Composite inertias and the joint-space inertia matrix, armature included."""

    crb: Array = leaf("nbody", 10)
    # by kinematic trees where there are many
    M: BlockDiagonal = child()

    @property
    def qM(self) -> Array:
        """The joint-space inertia matrix, dense and symmetric (nv, nv)."""
        return self.M.dense


@record
class Transmission(Record):
    """Actuator lengths and moments, d length / d qpos in tangent coordinates."""

    actuator_length: Array = leaf("nu")
    actuator_moment: Array = leaf("nu", "nv")


@record
class Velocities(Record):
    """Everything linear in qvel."""

    cvel: Array = leaf("nbody", 6)
    cdof_dot: Array = leaf("nv", 6)
    ten_velocity: Array = leaf("ntendon")
    actuator_velocity: Array = leaf("nu")


@record
class SubtreeVelocities(Record):
    """Velocity (m/s) of the centre of mass of each body with all that hangs on it, and its angular momentum about that.

    A program that does not read them does not compute them.
    """

    subtree_linvel: Array = leaf("nbody", 3)
    subtree_angmom: Array = leaf("nbody", 3)


@record
class Passive(Record):
    """Forces of springs, dampers, gravity compensation and the surrounding medium."""

    qfrc_spring: Array = leaf("nv")
    qfrc_damper: Array = leaf("nv")
    qfrc_gravcomp: Array = leaf("nv")
    qfrc_fluid: Array = leaf("nv")
    qfrc_passive: Array = leaf("nv")


@record
class Bias(Record):
    """Coriolis, centrifugal and gravitational forces."""

    qfrc_bias: Array = leaf("nv")


@record
class Actuation(Record):
    """Activation rates and actuator forces."""

    act_dot: Array = leaf("na")
    actuator_force: Array = leaf("nu")
    qfrc_actuator: Array = leaf("nv")


@record
class Contacts(Record):
    """The fixed contact buffer, ordered by contact dimension (static, see `diffsim.collision`).

    `dist` is a true signed distance, also where the geoms are apart; but of round bodies and meshes whose boxes are
    further apart than the margin it is the gap of these boxes, which is less. A slot is active when
    `dist < includemargin`, and in its gap, without force, when `dist < margin`. `frame` rows are the normal (from
    geom1 to geom2) and two tangents. An unused slot has geom ids -1 and a distance far above its margin. `sort_key`
    orders the slots as MuJoCo sorts contacts: by bodies, then geoms.

    Of a side that is a flex `geom` is -1, `flex` says which, and `elem` or `vert` which element or vertex of it; they
    are -1 of other sides, and empty where the model has no flexes.
    """

    dist: Array = leaf("ncon")
    pos: Array = leaf("ncon", 3)
    frame: Array = leaf("ncon", 3, 3)
    margin: Array = leaf("ncon")
    includemargin: Array = leaf("ncon")
    friction: Array = leaf("ncon", 5)
    solref: Array = leaf("ncon", 2)
    solreffriction: Array = leaf("ncon", 2)
    solimp: Array = leaf("ncon", 5)
    geom: Array = leaf("ncon", 2, dtype=int)
    flex: Array = leaf("ncon", 2, dtype=int)
    elem: Array = leaf("ncon", 2, dtype=int)
    vert: Array = leaf("ncon", 2, dtype=int)
    sort_key: Array = leaf("ncon", dtype=int)
    ncon_dropped: Array = leaf(dtype=int)


@record
class Smooth(Record):
    """Everything but the constraint forces: passive - bias + actuator + applied; acceleration without constraints."""

    qfrc_smooth: Array = leaf("nv")
    qacc_smooth: Array = leaf("nv")


@record
class Solution(Record):
    """The constrained acceleration and what the solver says of itself.

    `row_force` holds the forces of all rows (N or N m), group by group as in `Constraints.split`, of pyramids one
    per edge. `solver_stalled`: the iteration limit came before the tolerance, or a direction led nowhere.
    """

    qacc: Array = leaf("nv")
    qfrc_constraint: Array = leaf("nv")
    row_force: Array = leaf("nforce")
    solver_niter: Array = leaf(dtype=int)
    solver_improvement: Array = leaf()
    solver_gradient_norm: Array = leaf()
    solver_stalled: Array = leaf(dtype=bool)


@record
class BodyForces(Record):
    """Body accelerations (gravity as an upward acceleration) and forces, from the constrained acceleration."""

    cacc: Array = leaf("nbody", 6)
    cfrc_int: Array = leaf("nbody", 6)
    cfrc_ext: Array = leaf("nbody", 6)


@record
class Sensors(Record):
    """All sensor readings, at `sensor_adr`: what the sensors show, and what they read now, before any delay."""

    sensordata: Array = leaf("nsensordata")
    sensor_now: Array = leaf("nsensordata")


class Sleepers:
    """Which trees sleep, of a record with `tree_sleep`, mjData's `tree_asleep` as floats (simulate/sleep.py)."""

    tree_sleep: Array

    @property
    def tree_asleep(self) -> Array:
        """(nsleep,) int: negative if awake, counted up to -1; else the next of those that sleep together.

        Empty without the flag `sleep`.
        """
        return jax.lax.stop_gradient(self.tree_sleep).astype(jnp.int32)

    @property
    def tree_awake(self) -> Array:
        """(nsleep,) bool: which trees are awake; empty without the flag `sleep`."""
        return self.tree_sleep < 0


@record
class Sleep(Sleepers, Record):
    """Which trees sleep after all has woken that a state wakes; empty without the flag `sleep`."""

    tree_sleep: Array = leaf("nsleep")


@record
class Energy(Record):
    """Potential and kinetic energy in joules; zero unless the energy flag is set."""

    energy: Array = leaf(2)


@record
class ForwardInverse(Record):
    """How far forward and inverse dynamics differ: norms of constraint forces and of applied forces.

    Zero unless the `fwdinv` flag is set.
    """

    solver_fwdinv: Array = leaf(2)


@record
class Inverse(Record):
    """The results of inverse dynamics: applied and constraint forces, and the acceleration that they were taken at.

    `qacc` is the continuous-time acceleration, which differs from the given one under the `invdiscrete` flag.
    """

    qfrc_inverse: Array = leaf("nv")
    qfrc_constraint: Array = leaf("nv")
    qacc: Array = leaf("nv")


@held_as("data")
@viewed
@record
class Data(
    Kinematics,
    ComFrame,
    Flexes,
    Tendons,
    Inertia,
    Transmission,
    Velocities,
    SubtreeVelocities,
    Passive,
    Bias,
    Actuation,
    Smooth,
    Solution,
    BodyForces,
    Sensors,
    Sleep,
    Energy,
    ForwardInverse,
):
    """Everything computed from one state by `forward`. It belongs to that state; only `State` is carried.

    `contact` is the contact buffer, `efc` the constraint rows. `status` is a bit mask of `diffsim.base.enums.Status`,
    explained by `diffsim.check`.
    """

    contact: Contacts = child()
    efc: Constraints = child()
    status: Array = leaf(dtype=int)

    @classmethod
    def of(cls, *stages: Record, **fields: Any) -> Self:
        """Data with the fields of some stages, and `fields` by name; fields of all other stages are None."""
        known = dict.fromkeys(field.name for field in dataclasses.fields(cls))
        for stage in stages:
            known |= vars(stage)
        return cls(**known | fields)  # type: ignore[arg-type]

    @property
    def ncon_dropped(self) -> Array:
        """Number of contacts that did not fit in the buffer."""
        return self.contact.ncon_dropped

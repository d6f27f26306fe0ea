"""Data: everything that is computed from one state, under mjData's names, with one record per stage of the pipeline.

A stage takes the records that it reads and returns the record that it computes; `Data` has the fields of all of them.
Positions and directions are in the world frame unless said otherwise; rotation matrices map local to world. Spatial
vectors are (rotation, translation) in world axes, about the centre of mass of the kinematic tree (`subtree_com` of its
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
    """Poses of bodies, joints, geoms, sites, cameras and lights in the world, m."""

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
    """Inertias of bodies and motion axes of dofs, about the centre of mass of their tree.

    `cinert` is (Ixx, Iyy, Izz, Ixy, Ixz, Iyz, m cx, m cy, m cz, m), in kg m^2, kg m and kg.
    """

    subtree_com: Array = leaf("nbody", 3)
    cinert: Array = leaf("nbody", 10)
    cdof: Array = leaf("nv", 6)


@record
class Tendons(Record):
    """Tendon lengths (m, or rad for fixed tendons of hinges), and their derivatives, the moment arms."""

    ten_length: Array = leaf("ntendon")
    ten_J: Array = leaf("ntendon", "nv")


@record
class Flexes(Record):
    """Flexes: positions of vertices (m), and lengths (m) and rates (m/s) of edges.

    `flexvert_length` has two invariants of the strain at each vertex, for equalities of type flexvert.
    """

    flexvert_xpos: Array = leaf("nflexvert", 3)
    flexvert_length: Array = leaf("nflexvert", 2)
    flexedge_length: Array = leaf("nflexedge")
    flexedge_velocity: Array = leaf("nflexedge")


@record
class Inertia(Record):
    """Composite inertias and the joint-space inertia matrix, armature included."""

    crb: Array = leaf("nbody", 10)
    # one block per kinematic tree, or one block in all if splitting M does not pay
    M: BlockDiagonal = child()

    @property
    def qM(self) -> Array:
        """(nv, nv) the joint-space inertia matrix, dense and symmetric."""
        return self.M.dense


@record
class Transmission(Record):
    """Actuator lengths, and actuator moments, which are d length / d qpos in tangent coordinates."""

    actuator_length: Array = leaf("nu")
    actuator_moment: Array = leaf("nu", "nv")


@record
class Velocities(Record):
    """Velocities of bodies, tendons and actuators, and rates of the motion axes: all that is linear in qvel."""

    cvel: Array = leaf("nbody", 6)
    cdof_dot: Array = leaf("nv", 6)
    ten_velocity: Array = leaf("ntendon")
    actuator_velocity: Array = leaf("nu")


@record
class SubtreeVelocities(Record):
    """Velocity of the centre of mass (m/s) and angular momentum (kg m^2/s) of each body with its descendants.

    A program that does not read them does not compute them.
    """

    subtree_linvel: Array = leaf("nbody", 3)
    subtree_angmom: Array = leaf("nbody", 3)


@record
class Passive(Record):
    """Forces of springs, dampers, gravity compensation and the surrounding fluid, N or N m, and their sum."""

    qfrc_spring: Array = leaf("nv")
    qfrc_damper: Array = leaf("nv")
    qfrc_gravcomp: Array = leaf("nv")
    qfrc_fluid: Array = leaf("nv")
    qfrc_passive: Array = leaf("nv")


@record
class Bias(Record):
    """Coriolis, centrifugal and gravitational forces, N or N m."""

    qfrc_bias: Array = leaf("nv")


@record
class Actuation(Record):
    """Rates of activations (1/s), forces of actuators, and the generalized forces that they cause (N or N m)."""

    act_dot: Array = leaf("na")
    actuator_force: Array = leaf("nu")
    qfrc_actuator: Array = leaf("nv")


@record
class Contacts(Record):
    """The contact buffer, which has a fixed number of slots, ordered by contact dimension.

    `dist` is the signed distance, also where the geoms are apart. If the bounding boxes of round geoms or meshes are
    farther apart than the margin, it is the distance of the boxes, which is smaller. A contact pushes if
    `dist < includemargin`. If only `dist < margin`, it is listed but exerts no force (it is "in the gap"). The rows of
    `frame` are the normal, from geom1 to geom2, and two tangents. An unused slot has geom ids -1 and a distance far
    above its margin. On a CPU, if there are more candidates than slots, geoms that are farther apart than the margin
    plus `opt.contact_reach` may get no slot. Sorted by `sort_key`, contacts are in MuJoCo's order: by bodies, then by
    geoms.

    Where one side of a contact is a flex, its `geom` is -1, `flex` is the flex, and `elem` or `vert` the element or
    vertex. For geoms `flex`, `elem` and `vert` are -1; without flexes they are empty.
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
    """The forces without constraints, passive - bias + actuator + applied, and the acceleration that they cause."""

    qfrc_smooth: Array = leaf("nv")
    qacc_smooth: Array = leaf("nv")


@record
class Solution(Record):
    """The constrained acceleration, the constraint forces, and statistics of the solver.

    `row_force` has the forces of all rows (N or N m), group by group (see `Constraints.split`); pyramids have one per
    edge. `solver_stalled` is True if the solver reached its iteration limit before its tolerance, or found no step that
    reduces the cost.
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
    """Spatial accelerations of bodies, and spatial forces between bodies and on them.

    As in MuJoCo, gravity is an upward acceleration of the world, which is part of every `cacc`.
    """

    cacc: Array = leaf("nbody", 6)
    cfrc_int: Array = leaf("nbody", 6)
    cfrc_ext: Array = leaf("nbody", 6)


@record
class Sensors(Record):
    """Sensor readings, each at its `sensor_adr`: `sensordata`, and `sensor_now` without any delays."""

    sensordata: Array = leaf("nsensordata")
    sensor_now: Array = leaf("nsensordata")


class Sleepers:
    """The properties `tree_asleep` and `tree_awake` of a record that has `tree_sleep` (simulate/sleep.py).

    `tree_sleep` is mjData's `tree_asleep` as floats, so that `jax.grad` takes the record as an argument.
    """

    tree_sleep: Array

    @property
    def tree_asleep(self) -> Array:
        """(nsleep,) int, as mjData's: negative for a tree that is awake, counting up to -1 while it is at rest.

        For a tree that sleeps, the index of the next tree in the cycle of trees that sleep together. Empty without the
        flag `sleep`.
        """
        return jax.lax.stop_gradient(self.tree_sleep).astype(jnp.int32)

    @property
    def tree_awake(self) -> Array:
        """(nsleep,) bool: whether each tree is awake; empty without the flag `sleep`."""
        return self.tree_sleep < 0


@record
class Sleep(Sleepers, Record):
    """Which trees sleep, after all that must wake in this state have been woken; empty without the flag `sleep`."""

    tree_sleep: Array = leaf("nsleep")


@record
class Energy(Record):
    """Potential and kinetic energy, J. MuJoCo leaves them zero without the flag `energy`; diffsim does not need it.

    A program that does not read them does not compute them.
    """

    energy: Array = leaf(2)


@record
class ForwardInverse(Record):
    """How far forward and inverse dynamics differ: norms of the differences of constraint forces and of applied forces.

    Zero unless the flag `fwdinv` is set.
    """

    solver_fwdinv: Array = leaf(2)


@record
class Inverse(Record):
    """The results of inverse dynamics: applied and constraint forces, and the acceleration for which they hold.

    `qacc` is the acceleration in continuous time; with the flag `invdiscrete` it differs from the given one.
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
    """Everything that `forward` computes from one state. Steps pass on only the State, and never read an earlier Data.

    `contact` is the contact buffer, and `efc` has the constraint rows. `status` is a bit mask of
    `diffsim.base.enums.Status`, which `diffsim.check` explains.
    """

    contact: Contacts = child()
    efc: Constraints = child()
    status: Array = leaf(dtype=int)

    @classmethod
    def of(cls, *stages: Record, **fields: Any) -> Self:
        """A Data with the fields of these `stages`, and with `fields` by name; all other fields are None."""
        known = dict.fromkeys(field.name for field in dataclasses.fields(cls))
        for stage in stages:
            known |= vars(stage)
        return cls(**known | fields)  # type: ignore[arg-type]

    @property
    def ncon_dropped(self) -> Array:
        """Number of contacts that did not fit in the buffer."""
        return self.contact.ncon_dropped

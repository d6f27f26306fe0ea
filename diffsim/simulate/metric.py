"""The metric of the integrator `discrete`: the inertia with stiffness and damping in which the solver computes.

Springs, dampers and actuators act at the end of a timestep h, to first order in the change of the velocity h a:

    (M + h D + h^2 K) a = qfrc_smooth - h K qvel + J^T f,

with K and D minus the derivatives of their forces with respect to qpos and qvel. A force whose derivative would make K
or D negative acts at the beginning of the step. qacc is then (qvel_next - qvel) / h, and integration is a sum. Servos
stay stable, however stiff they are, and their derivatives finite. Free bodies are solved once more, with the
derivatives of their gyroscopic forces, as with `implicitfast`.
Source: MuJoCo documentation 4.0, "Computation", "Integrators"; runs of MuJoCo 4.0.0.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.actuator.actuation import stiffness_and_damping
from diffsim.actuator.actuators import Command, compute_command
from diffsim.base.enums import DisableBit, Integrator, Solver
from diffsim.base.errors import UnsupportedError
from diffsim.constraint.discrete import Diagonals
from diffsim.dynamics.fluid import has_medium
from diffsim.dynamics.inertia import DOF_DAMPING, TENDON_DAMPING, has_reflected
from diffsim.dynamics.passive import (
    damping_derivative,
    has_tendon_dampers,
    has_tendon_springs,
    joint_springs,
    spring_derivative,
    tendon_spring_derivative,
)
from diffsim.kinematics.tree import can_couple
from diffsim.math.block_solves import solve_general_blocks
from diffsim.math.linalg import BlockDiagonal, Blocks, columns_of, diagonal_of, gram
from diffsim.math.vector import matmul, scale
from diffsim.simulate.integrate.derivative import spatial_derivative
from diffsim.simulate.integrate.free_body import free_bodies, held
from diffsim.simulate.sleep_layout import sleeps
from diffsim.types import Data, Inputs, Model, State
from diffsim.types.constraints import Constraints
from diffsim.xla.gather import pick, place


class Metric(NamedTuple):
    """The inertia of the solver.

    Attributes:
      inertia: (nv x nv) M + h D + h^2 K, kg m^2 or kg.
      shift: (nv,) -h K qvel, N m or N.
      diagonals: of M and of `inertia`, for the constraints.
      gyroscopic: h d qfrc_bias / d qvel of free bodies, kg m^2; None without free bodies.
      tied: (n,) the free bodies on which elastic tendons or actuators act.
    """

    inertia: BlockDiagonal
    shift: Array
    diagonals: Diagonals
    gyroscopic: BlockDiagonal | None
    tied: Array

    def force(self, model: Model, constraints: Constraints, qacc: Array) -> Array:
        """(nv,) the force that causes qacc (nv,), N m or N; `constraints` tell which free bodies are held."""
        force = self.inertia.mul_vec(qacc) - self.shift
        if self.gyroscopic is None:
            return force
        return force + jnp.where(self.loose(model, constraints), self.gyroscopic.mul_vec(qacc), 0)

    def loose(self, model: Model, constraints: Constraints) -> Array:
        """(nv,) bool: the dofs of free bodies on which no constraint, elastic tendon or actuator acts."""
        dofs = free_bodies(model.topology).dofs
        return jnp.zeros(model.nv, bool).at[dofs].set(~(held(model, constraints) | self.tied)[:, None])


def turned(model: Model, metric: Metric | None, constraints: Constraints, qacc: Array) -> Array:
    """The solution qacc (nv,) with the gyroscopic forces of free bodies at the end of the step.

    As in MuJoCo, free bodies on which a constraint, an elastic tendon or an actuator acts keep their acceleration.
    """
    if metric is None or metric.gyroscopic is None:
        return qacc
    blocks = metric.gyroscopic.blocks
    bare = diagonal_of(blocks, metric.inertia.dense)
    whole = BlockDiagonal(blocks, (bare.parts[0] + metric.gyroscopic.parts[0],))
    later = solve_general_blocks(whole, bare.mul_vec(qacc))
    return jnp.where(metric.loose(model, constraints), later, qacc)


class _Terms(NamedTuple):
    """Elements with stiffness k (n,) and damping b (n,), and their moment arms (n, nv); None: one for each dof."""

    stiffness: Array
    damping: Array
    arms: Array | None = None


def compute_metric(model: Model, state: State, inputs: Inputs, command: Command, data: Data) -> Metric | None:
    """The metric of a state; None if the integrator is not `discrete`.

    Args:
      model, state, inputs: the model, the state and its inputs.
      command: the controls, as `compute_command` returns them.
      data: of this state, up to the stage of actuation.

    Raises:
      UnsupportedError: the model has something that diffsim does not support with this integrator.
    """
    if model.opt.integrator != Integrator.DISCRETE:
        return None
    _check(model)
    terms = [
        _Terms(_dof_stiffness(model, state), _dof_damping(model, state)),
        *_tendon_terms(model, data),
        *_actuator_terms(model, state, command, data),
    ]
    h = model.opt.timestep
    inertia, shift = data.M, jnp.zeros_like(state.qvel)
    free = free_bodies(model.topology).dofs
    tied = jnp.zeros(len(free), bool)
    for stiffness, damping, arms in terms:
        stiffness, damping = (jnp.where(value > 0, value, 0) for value in (stiffness, damping))
        weight = h * (damping + h * stiffness)
        if arms is None:
            inertia = inertia.plus_diagonal(weight)
            shift = shift - h * stiffness * state.qvel
        else:
            columns = columns_of(inertia.blocks, arms), columns_of(inertia.blocks, scale(arms, weight))
            inertia = inertia.plus(gram(*columns))
            shift = shift - matmul(arms.T, h * stiffness * matmul(arms, state.qvel))
            tied = tied | jnp.any((weight > 0)[:, None, None] & (arms[:, free] != 0), axis=(0, 2))
    return Metric(
        inertia=inertia,
        shift=shift,
        diagonals=Diagonals(bare=data.M.diagonal, effective=inertia.diagonal),
        gyroscopic=_gyroscopic(model, state, data),
        tied=tied,
    )


def metric_of(model: Model, state: State, inputs: Inputs, data: Data) -> Metric:
    """The metric of a state whose Data is known, for models with the integrator `discrete`."""
    metric = compute_metric(model, state, inputs, compute_command(model, state, inputs, data), data)
    assert metric is not None, "the integrator is not discrete"
    return metric


def _dof_stiffness(model: Model, state: State) -> Array:
    """(nv,) N m / rad or N / m of the joints' springs; a spring of a ball joint is as stiff in all directions."""
    springs = [] if model.opt.disabled(DisableBit.SPRING) else joint_springs(model, state.qpos)
    if not springs:
        return jnp.zeros_like(state.qvel)
    dofs = np.concatenate([spring.dofs.ravel() for spring in springs])
    values = [jnp.repeat(spring_derivative(model, spring), spring.dofs.shape[1]) for spring in springs]
    return place(model.nv, dofs, jnp.concatenate(values))


def _dof_damping(model: Model, state: State) -> Array:
    """(nv,) N m s / rad or N s / m of the joints' dampers, with those of actuators."""
    if model.opt.disabled(DisableBit.DAMPER) or not has_reflected(model.topology, *DOF_DAMPING):
        return jnp.zeros_like(state.qvel)
    return damping_derivative(model, DOF_DAMPING, state.qvel)


def _tendon_terms(model: Model, data: Data) -> list[_Terms]:
    """Springs and dampers of tendons."""
    if not (has_tendon_springs(model) or has_tendon_dampers(model)):
        return []
    none = jnp.zeros_like(data.ten_length)
    stiffness = tendon_spring_derivative(model, data) if has_tendon_springs(model) else none
    damping = damping_derivative(model, TENDON_DAMPING, data.ten_velocity) if has_tendon_dampers(model) else none
    return [_Terms(stiffness, damping, data.ten_J)]


def _actuator_terms(model: Model, state: State, command: Command, data: Data) -> list[_Terms]:
    """Actuators whose force depends on their length or velocity."""
    if not model.nu or model.opt.disabled(DisableBit.ACTUATION):
        return []
    ids, stiffness, damping = stiffness_and_damping(model, state.act, command, data)
    return [_Terms(stiffness, damping, pick(data.actuator_moment, ids))] if ids.size else []


def _gyroscopic(model: Model, state: State, data: Data) -> BlockDiagonal | None:
    """h d qfrc_bias / d qvel of free bodies, by blocks (6, 6); None without free bodies."""
    dofs = free_bodies(model.topology).dofs
    if not dofs.size:
        return None
    # without a medium, nothing but inertia depends on the velocities of bodies
    slope = spatial_derivative(model, state.qvel, data, coriolis=True).dense
    return diagonal_of(Blocks(model.nv, (dofs,)), -model.opt.timestep * slope)


def _check(model: Model) -> None:
    """Raises UnsupportedError for what diffsim does not support with the integrator `discrete`."""
    topology, opt = model.topology, model.opt
    reasons = {
        "flexes": bool(topology.nflex),
        "density, viscosity or wind": has_medium(topology),
        "the solver PGS": opt.solver == Solver.PGS,
        "noslip_iterations": opt.noslip_iterations > 0,
        "the flag sleep": sleeps(model),
    }
    for name, present in reasons.items():
        if present:
            raise UnsupportedError.of("<option integrator>", f"discrete does not support {name} yet; use implicitfast")
    if can_couple(topology) and not topology.one_block:
        reason = "tendons or actuators couple bodies; set integrator=discrete before the model is compiled, not after"
        raise UnsupportedError.of("<option integrator>", reason)

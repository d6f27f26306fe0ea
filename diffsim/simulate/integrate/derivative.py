"""Derivatives of the smooth forces with respect to velocity, for the implicit integrators and discrete inverses.

Dampers and actuators act along rows of J, so they add J^T b J. A force that depends on body velocities (the medium,
Coriolis forces) has one 6 x 6 matrix B_i per body. In the common frame of a tree these matrices add up over subtrees,
as inertias do, and

    d qfrc_j / d qvel_k = cdof_j . (sum of B_i over the subtree of the deeper of j and k) cdof_k.

With V_i = cvel, I_i = cinert and W_k the velocity of the frame up to and including the joint of dof k, the bias has
d (I a + V x* I V) = I (cdof_dot_k + W_k x cdof_k) + [-I V x + (.) x* I V + V x* I] cdof_k. As in MuJoCo, entries for
dofs of different branches are dropped. The drag of ellipsoids smaller than a few centimetres has another derivative
than in MuJoCo, which puts a floor of 1e-15 under a product of eighth powers of lengths; here it is exact. Source:
Featherstone 2008, ch. 5 and 6; MuJoCo documentation, "Computation", "Integrators".
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.actuator.actuation import velocity_slopes
from diffsim.base.enums import DisableBit
from diffsim.dynamics.fluid import fluid_wrenches, has_medium
from diffsim.dynamics.inertia import DOF_DAMPING, TENDON_DAMPING, coupled, has_reflected
from diffsim.dynamics.passive import damping_derivative
from diffsim.flex.points import edge_flex
from diffsim.flex.strain import edge_rows, elastic_edges
from diffsim.kinematics.joints import groups
from diffsim.kinematics.tree import sum_dofs, sum_subtree
from diffsim.math.linalg import BlockDiagonal, columns_of, gram, per_block
from diffsim.math.spatial import cross_force, cross_motion, inertia_mul, pair_products
from diffsim.math.vector import mul_vec, mul_vec_t, scale
from diffsim.types.data import Data
from diffsim.types.model import Model
from diffsim.types.state import Inputs, State
from diffsim.types.topology import Topology, per_topology
from diffsim.xla.barriers import barrier, computed_once
from diffsim.xla.gather import pick


def velocity_derivative(model: Model, state: State, inputs: Inputs, data: Data, coriolis: bool) -> BlockDiagonal:
    """d (qfrc_actuator + qfrc_passive - qfrc_bias) / d qvel (nv, nv), N m s / rad and N s / m, by blocks of M.

    Without `coriolis` the bias is left out and the rest is made symmetric, as `implicitfast` does.
    """
    topology = model.topology
    blocks = data.M.blocks
    total = spatial_derivative(model, state.qvel, data, coriolis)

    def add_along(total: BlockDiagonal, rows: Array, slope: Array) -> BlockDiagonal:
        """Adds J^T b J for rows J (n, nv) and slopes b (n,), d force / d velocity in N s / m."""
        return total.plus(gram(columns_of(blocks, rows), columns_of(blocks, scale(rows, slope))))

    if not model.opt.disabled(DisableBit.ACTUATION):
        actuators, slope = velocity_slopes(model, state, inputs, data)
        if actuators.size:
            total = add_along(total, data.actuator_moment[actuators], slope)
    if not model.opt.disabled(DisableBit.DAMPER):
        if has_reflected(topology, *TENDON_DAMPING):
            total = add_along(total, data.ten_J, -damping_derivative(model, TENDON_DAMPING, data.ten_velocity))
        if has_reflected(topology, *DOF_DAMPING):
            total = total.plus_diagonal(-damping_derivative(model, DOF_DAMPING, state.qvel))
        live = elastic_edges(topology)
        if len(live):
            slope = -pick(model.flex_edgedamping, edge_flex(topology)[live])
            total = edge_rows(model, data, data.flexvert_xpos, live).add_gram(total, slope)
    coupling = (np.logical_or(*coupled(topology, index)) for index in blocks.index)
    parts = zip(coupling, total.parts, strict=True)
    return BlockDiagonal(blocks, tuple(jnp.where(mask, part, 0) for mask, part in parts))


def spatial_derivative(model: Model, qvel: Array, data: Data, coriolis: bool) -> BlockDiagonal:
    """Derivatives (nv, nv) of forces that depend on body velocities: of the medium, and with `coriolis` of inertia."""
    topology = model.topology
    off = model.opt.disabled(DisableBit.SPRING) and model.opt.disabled(DisableBit.DAMPER)
    immersed = has_medium(topology) and not off
    blocks = jnp.zeros((model.nbody, 6, 6), qvel.dtype)
    if immersed:

        def wrench(change: Array) -> Array:
            # the force on a body depends on its own velocity alone: one tangent serves all bodies
            return fluid_wrenches(model, data, data, data.cvel + change[None])

        basis = jnp.eye(6, dtype=qvel.dtype)
        # d wrench of the medium / d cvel
        blocks = _columns(jax.vmap(lambda e: jax.jvp(wrench, (jnp.zeros_like(e),), (e,))[1])(basis))
        blocks = blocks if coriolis else 0.5 * (blocks + jnp.swapaxes(blocks, 1, 2))
    if not coriolis:
        return _over_subtrees(model, data, blocks, None) if immersed else jax.tree.map(jnp.zeros_like, data.M)
    drift = data.cdof_dot + cross_motion(sum_dofs(topology, _joint_end(topology), (data.cdof, qvel)), data.cdof)
    return _over_subtrees(model, data, blocks - _bias_blocks(data), drift)


def _columns(columns: Array) -> Array:
    """(nbody, 6, 6) matrices from their columns (6, nbody, 6)."""
    return jnp.moveaxis(columns, 0, 2)


def _bias_blocks(data: Data) -> Array:
    """(nbody, 6, 6) the part of d (I a + V x* I V) that is linear in the motion axis: -I V x + (.) x* I V + V x* I."""
    inertia, velocity = data.cinert, data.cvel
    momentum = inertia_mul(inertia, velocity)

    def column(e: Array) -> Array:
        axis = jnp.broadcast_to(e, velocity.shape)
        convected = inertia_mul(inertia, cross_motion(velocity, axis))
        return cross_force(axis, momentum) + cross_force(velocity, inertia_mul(inertia, axis)) - convected

    return _columns(jax.vmap(column)(jnp.eye(6, dtype=velocity.dtype)))


@per_topology
def _joint_end(topology: Topology) -> np.ndarray:
    """(nv,) the last dof of the block (translation or rotation) of each dof."""
    end = np.arange(topology.nv)
    for group in groups(topology):
        for start, stop in group.kind.blocks:
            end[group.dofs[:, start:stop]] = group.dofs[:, stop - 1 : stop]
    return end


def _over_subtrees(model: Model, data: Data, blocks: Array, drift: Array | None) -> BlockDiagonal:
    """cdof_j . (B cdof_k - I drift_k), with B (nbody, 6, 6) and I summed over the subtree of the deeper dof."""
    # for each pair (j, k) one product of a left and a right factor of the deeper dof: 12 numbers instead of a matrix
    sums = sum_subtree(model.topology, barrier(blocks.reshape(-1, 36)))
    total = barrier(sums.reshape(-1, 6, 6))[model.topology.dof_bodyid]
    left, right, upper = _factors(model.topology, data, total, drift)

    def of_block(lower: Array, above: Array, *factors: Array) -> Array:
        left, right, cdof, upper = factors
        return jnp.where(lower, pair_products(left, right), jnp.where(above, pair_products(cdof, upper), 0))

    columns = left, right, data.cdof, upper
    parts = (
        per_block(of_block, *coupled(model.topology, index), *(pick(column, index) for column in columns))
        for index in data.M.blocks.index
    )
    return BlockDiagonal(data.M.blocks, tuple(parts))


@computed_once
def _factors(topology: Topology, data: Data, total: Array, drift: Array | None) -> tuple[Array, Array, Array]:
    """(nv, 6 or 12) left and right factors where the row's dof is the deeper one; right factor where it is not."""
    cdof = data.cdof
    left = mul_vec_t(total, cdof)
    right = cdof
    upper = mul_vec(total, cdof)
    if drift is not None:
        inertia = data.crb[topology.dof_bodyid]
        pairs = (left, -inertia_mul(inertia, cdof)), (right, drift)
        left, right = (jnp.concatenate(pair, axis=1) for pair in pairs)
        upper = upper - inertia_mul(inertia, drift)
    return left, right, upper

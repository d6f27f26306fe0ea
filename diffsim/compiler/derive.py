"""derive: model fields that are computed by simulating or evaluating the compiled model.

Inverse weights, mean inertia, extents and reference lengths are computed by diffsim's own physics, once when a model is
loaded, on the host, in float64 and without XLA (host/interpret.py explains why and how). Springs that are given by time
constants, and length ranges of actuators, follow from them.

A singular inertia matrix is an error, and the message names the joints that move the same inertia: all constants that
need its inverse would be NaN, even for other bodies, and so would all accelerations. If the matrix is singular only at
qpos0 (an example is a gimbal in its locked pose, where two hinges have the same axis), the model works from other
poses. MuJoCo's inverse weights are NaN then; diffsim takes them from a nearby pose, with a warning.
Source: mj_setConst and set0 of MuJoCo 3.8.1.

actuator_lengthrange is found by simulation: the shortest and the longest length when the actuator pulls in one
direction and in the other. From qpos0, without gravity, springs, dampers, friction and contacts, a force along the
moment arm accelerates the joints at a given rate, and velocities decay, until joint limits stop the motion. The extreme
length in the last seconds is the range. All actuators run in both directions as one batch. Muscles are scaled by this
range. Source: MuJoCo XML reference, compiler/lengthrange; mj_setLengthRange (3.8.1).
"""

import functools
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.enums import MINVAL, DisableBit, Integrator
from diffsim.base.joints import dof_widths
from diffsim.compiler import sizes_and_defaults
from diffsim.compiler.draft import Draft
from diffsim.compiler.elements.sleep import check_sleepers
from diffsim.compiler.host.interpret import interpret
from diffsim.flex.cells import cell_nodes, cell_stiffness
from diffsim.flex.material import STRAIN
from diffsim.math.linalg import solve_spd
from diffsim.mjcf.elements.settings import LengthRange
from diffsim.simulate.constants import constants, position
from diffsim.simulate.forward import evaluate
from diffsim.simulate.inverse_weights import inverse_weights
from diffsim.simulate.status import motions_without_inertia
from diffsim.simulate.step import integrate
from diffsim.types import State
from diffsim.types.data import Inertia, Transmission
from diffsim.types.model import Model
from diffsim.types.state import make_inputs, make_state
from diffsim.xla.compiled import ON_CPU, QUICK
from diffsim.xla.stored import kept

Array = jax.Array

# Young's modulus of the cells whose modes strain equalities constrain, Pa (MuJoCo's choice)
STRAINED_YOUNG = 10.0
# Poisson's ratio of these cells (MuJoCo's choice)
STRAINED_POISSON = 0.3
# a mode costs no energy if its eigenvalue is below this fraction of the largest one
NO_ENERGY = 1e-8
# a mode is rigid if removing its rigid motion leaves less than this fraction of its squared length
RIGID = 1e-6
# statistics that a file can set in <statistic>
FIXED = ("meaninertia", "meanmass", "meansize", "extent", "center")


@contextmanager
def on_host() -> Iterator[None]:
    """A context in which arrays are float64, and on the CPU if JAX has a CPU backend."""
    try:
        cpu: AbstractContextManager[Any] = jax.default_device(jax.local_devices(backend="cpu")[0])
    except RuntimeError:
        cpu = nullcontext()
    with jax.enable_x64(True), cpu:
        yield


def derive(draft: Draft, model: Model, packed: Callable[[dict[str, Any]], Model]) -> None:
    """Adds the derived constants and the fields that depend on them; runs `on_host`.

    Args:
      draft: the fields so far.
      model: the model that `packed` makes from them.
      packed: makes a model from fields.

    Raises:
      MjcfError: a constant is not finite, usually because the inertia matrix is singular.
    """
    draft.fields.update(_sound_constants(draft, model))
    draft.problems.raise_if_any()
    _strain_modes(draft, model)
    _spring_dampers(draft)
    length_ranges(draft, packed)
    check_sleepers(draft, packed)
    sizes_and_defaults.check_finite(draft)
    draft.problems.raise_if_any()
    for name in FIXED:
        value = getattr(draft.spec.statistic, name)
        if value is not None:
            draft.fields["stat"][name] = value


def _strain_modes(draft: Draft, model: Model) -> None:
    """flex_stiffness of flexes with strain equalities: for each cell the number of modes, then the modes, then zeros.

    A mode is an eigenvector of the stiffness of a cell of a fixed material, times the square root of its eigenvalue,
    minus its projection on the rigid motions of the cell. A cube has repeated eigenvalues, so rounding decides which
    vectors span each eigenspace.
    """
    topology = model.topology
    for flex in np.flatnonzero((topology.flex_edgeequality == STRAIN) & (topology.flex_interp != 0)).tolist():
        node0 = jnp.asarray(draft.fields["flex_node0"])
        thickness = jnp.asarray(draft.fields["flex_thickness"][flex])
        young = jnp.asarray(STRAINED_YOUNG)
        poisson = jnp.asarray(STRAINED_POISSON)
        of_cells = functools.partial(cell_stiffness, topology, flex)
        cells = np.asarray(interpret(of_cells, node0, young, poisson, thickness))
        corner = np.asarray(node0)[topology.flex_nodeadr[flex] + cell_nodes(topology, flex)]
        size = cells.shape[1]
        first = topology.flex_stiffnessadr[flex]
        table = np.zeros((len(cells), size * size))
        for row, matrix, place in zip(table, cells, corner, strict=True):
            value, vector = np.linalg.eigh(-matrix)
            kept = value > NO_ENERGY * np.abs(value).max()
            modes = (vector[:, kept] * np.sqrt(value[kept])).T
            # an orthonormal basis of the six rigid motions of the nodes: three translations and three rotations
            middle = place - place.mean(axis=0)
            turns = [np.cross(axis, middle).ravel() for axis in np.eye(3)]
            shifts = [np.tile(axis, len(place)) for axis in np.eye(3)]
            rigid = np.linalg.qr(np.array([*shifts, *turns]).T)[0]
            modes = modes - modes @ rigid @ rigid.T
            modes = modes[np.sum(modes**2, axis=1) >= RIGID * value[kept]]
            row[0] = len(modes)
            row[1 : 1 + modes.size] = modes.ravel()
        stiffness = np.array(draft.fields["flex_stiffness"])
        stiffness[first : first + table.size] = table.ravel()
        draft.fields["flex_stiffness"] = stiffness


def _spring_dampers(draft: Draft) -> None:
    """Stiffness (N/m or N m/rad) and damping of joints with a time constant (s) and damping ratio.

    k = m / (t d)^2 and b = 2 m / t, where 1 / m is the mean inverse weight of the joint's dofs.
    """
    fields = draft.fields
    for node in draft.nodes["joint"]:
        timeconst, dampratio = node.e.springdamper
        if timeconst <= 0 or dampratio <= 0:
            continue
        width = dof_widths(fields["jnt_type"][node.id])
        dofs = slice(fields["jnt_dofadr"][node.id], fields["jnt_dofadr"][node.id] + width)
        inertia = width / max(MINVAL, fields["dof_invweight0"][dofs].sum())
        fields["jnt_stiffness"][node.id] = inertia / max(MINVAL, (timeconst * dampratio) ** 2)
        fields["dof_damping"][dofs] = 2 * inertia / max(MINVAL, timeconst)


# constants that need M^-1, and so are not finite if the inertia matrix is singular
NEED_INVERSE = ("dof_invweight0", "body_invweight0", "tendon_invweight0", "actuator_acc0")


def _sound_constants(draft: Draft, model: Model) -> dict[str, Any]:
    """The constants of the model; notes an error for degrees of freedom without inertia."""
    # the compiler has already built the search trees of meshes
    derived = functools.partial(constants, meshes=False)
    result = kept("constants", lambda: interpret(derived, model, written_out=True), model)
    if all(np.isfinite(result[name]).all() for name in NEED_INVERSE):
        return result
    # a pose about a third of a radian or metre from qpos0 in each scalar joint, by unequal amounts in alternating
    # directions, so that no symmetry keeps the matrix singular
    address = model.topology.jnt_qposadr[dof_widths(model.topology.jnt_type) == 1]
    nearby = jnp.asarray(model.qpos0).at[address].add(np.where(np.arange(len(address)) % 2, 0.37, -0.29))
    if not motions_without_inertia(interpret(lambda m: position(m, nearby)[3].qM, model)):
        result.update(interpret(lambda m: inverse_weights(m, *position(m, nearby)), model))
        warnings.warn(
            "the inertia matrix is singular at qpos0; inverse weights are taken at a nearby pose", stacklevel=2
        )
        return result
    joints = [node for node in draft.nodes["joint"] for _ in range(int(dof_widths(node.e.type)))]
    inertia = interpret(lambda m: position(m, m.qpos0)[3].qM, model)
    for dofs in motions_without_inertia(inertia):
        places = dict.fromkeys(joints[dof].source for dof in dofs)
        names = " and ".join(f"{place.label} (line {place.line})" for place in places)
        message = (
            f"the inertia matrix is singular at qpos0: nothing resists degrees of freedom {dofs.tolist()} of {names}"
        )
        draft.problems.add(joints[dofs[-1]].source, message, "remove a joint or set armature")
    return result


# features that are off while length ranges are measured
OFF = (
    DisableBit.FRICTIONLOSS
    | DisableBit.CONTACT
    | DisableBit.SPRING
    | DisableBit.DAMPER
    | DisableBit.GRAVITY
    | DisableBit.ACTUATION
    | DisableBit.SENSOR
)
# most steps of the simulation: more would take minutes
MOST_STEPS = 100_000

# m/s or rad/s: the model has come to rest if all velocities are below this before and after a step
AT_REST = 1e-10

# With at most this many steps in total, simulations run one after the other: a step takes 0.03 ms for an arm of two
# joints, while tracing a batched program takes 1 s longer.
MOST_IN_TURN = 20_000

# compiler options that make compilation five times faster and the program slower: it only runs once, for a second
QUICKLY = ON_CPU | QUICK | {"xla_disable_hlo_passes": "while-loop-invariant-code-motion"}


def length_ranges(draft: Draft, packed: Callable[[dict[str, Any]], Model]) -> None:
    """Completes actuator_lengthrange for the actuators in `Draft.unmeasured`."""
    actuators = sorted(draft.unmeasured)
    if not actuators:
        return
    settings = draft.lengthrange
    timestep = settings.timestep if settings.timestep > 0 else draft.spec.option.timestep
    if settings.inttotal > MOST_STEPS * timestep:
        message = f"inttotal / timestep is more than {MOST_STEPS} steps"
        draft.problems.add(draft.spec.compiler.first(LengthRange), message)
        return
    # whether each step is in the window whose lengths count
    time = 0.0
    counted = []
    while time < settings.inttotal:
        time += timestep
        counted.append(time > settings.inttotal - settings.interval)
    model = packed(draft.fields)
    integrator = Integrator.EULER if model.opt.integrator == Integrator.RK4 else model.opt.integrator
    step = jax.device_put(np.asarray(timestep, model.qpos0.dtype))
    model = model.replace(opt=model.opt.replace(disableflags=OFF, integrator=integrator, timestep=step))
    # a muscle's range takes seconds, most of them to compile a simulation
    push = _Push(accel=settings.accel, maxforce=settings.maxforce, timeconst=settings.timeconst)
    inputs = model, push, np.array(actuators), np.array(counted, bool)
    lower, upper = kept("length-ranges", lambda: _simulate(*inputs), *inputs)
    for row, actuator in enumerate(actuators):
        least, most = lower[:, row], upper[:, row]
        draft.fields["actuator_lengthrange"][actuator] = least[0], most[1]
        source = draft.nodes["actuator"][actuator].source
        hint = "give attribute 'lengthrange', or limit the joints"
        spread = most[1] - least[0]
        if not np.isfinite([least, most]).all():
            draft.problems.add(source, "the simulation that finds its length range is unstable", hint)
        elif spread <= 0:
            draft.problems.add(source, f"its length range would be empty: {least[0]:g} to {most[1]:g}", hint)
        elif (most - least > settings.tolrange * spread).any():
            draft.problems.add(source, "the simulation that finds its length range does not come to rest", hint)


class _Push(NamedTuple):
    """The force of the simulation, as in MJCF's `<lengthrange>`.

    Attributes:
      accel: acceleration of the joints, rad/s^2 or m/s^2.
      maxforce: the largest norm of the force; 0 for no limit.
      timeconst: time in which velocities decay by a factor e, s.
    """

    accel: float
    maxforce: float
    timeconst: float


def _simulate(model: Model, settings: _Push, actuators: np.ndarray, counted: np.ndarray) -> Any:
    """The shortest and longest length in the window, each (2, k): while k actuators pull (row 0) and push (row 1)."""
    # factor by which velocities decay in a step
    fade = float(np.exp(-float(model.opt.timestep) / max(0.01, settings.timeconst)))

    def pushed(model: Model, state: State, actuator: Array, sign: Array) -> tuple[State, Array]:
        """One step under a force along the moment arm, and the length before it."""

        def along_moment(inertia: Inertia, transmission: Transmission) -> Array:
            # scaled so that the joints accelerate at the rate `accel`, and limited to `maxforce`
            moment = transmission.actuator_moment[actuator]
            rate = jnp.maximum(jnp.linalg.norm(solve_spd(inertia.qM, moment)), MINVAL)
            force = moment * (sign * settings.accel / rate)
            size = jnp.linalg.norm(force)
            if settings.maxforce <= 0:
                return force
            return jnp.where(size > settings.maxforce, force * (settings.maxforce / jnp.maximum(size, MINVAL)), force)

        state = state.replace(qvel=fade * state.qvel)
        inputs = make_inputs(model)
        data = evaluate(model, state, inputs, push=along_moment)
        return integrate(model, state, inputs, data), data.actuator_length[actuator]

    def run(model: Model, actuator: Array, sign: Array) -> tuple[Array, Array]:
        counts = jnp.asarray(counted)
        huge = jnp.full((), jnp.inf, model.qpos0.dtype)

        def goes_on(carry: tuple[Array, State, Array, Array, Array, Array]) -> Array:
            return (carry[0] < len(counted)) & carry[-1]

        def advance(carry: tuple[Array, State, Array, Array, Array, Array]) -> Any:
            k, before, lower, upper, _, _ = carry
            state, length = pushed(model, before, actuator, sign)
            lower = jnp.where(counts[k], jnp.minimum(lower, length), lower)
            upper = jnp.where(counts[k], jnp.maximum(upper, length), upper)
            moves = jnp.any((jnp.abs(before.qvel) > AT_REST) | (jnp.abs(state.qvel) > AT_REST) | jnp.isnan(state.qvel))
            return k + 1, state, lower, upper, length, moves

        begin = jnp.int32(0), make_state(model), huge, -huge, huge, jnp.array(True)
        _, _, lower, upper, length, _ = jax.lax.while_loop(goes_on, advance, begin)
        # if the model came to rest before the window, its last length is the length throughout the window
        return jnp.minimum(lower, length), jnp.maximum(upper, length)

    def run_in_turn(model: Model, *rows: Array) -> tuple[Array, Array]:
        return jax.lax.map(lambda row: run(model, *row), rows)

    signs = np.repeat(np.array([-1.0, 1.0], model.qpos0.dtype), len(actuators))
    few = len(signs) * len(counted) <= MOST_IN_TURN
    arguments = model, np.tile(actuators, 2), signs
    program = jax.jit(run_in_turn if few else jax.vmap(run, in_axes=(None, 0, 0))).lower(*arguments)
    try:
        compiled = program.compile(compiler_options=QUICKLY)
    except RuntimeError:
        # other versions of XLA do not know these options
        compiled = program.compile()
    return tuple(np.asarray(lengths).reshape(2, len(actuators)) for lengths in compiled(*arguments))

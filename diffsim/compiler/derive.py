"""derive: the fields that follow from the compiled model, by physics.

Inverse weights, mean inertia, extents and reference lengths are our own physics in JAX, computed once per load on the
host, in float64, without XLA (interpret.py says why and how); springs given by time constant and ranges of actuator
lengths follow from these.

An inertia matrix that has no inverse is refused, with the joints that move the same thing: every constant that is
divided by it would be no number, also of bodies that have nothing to do with it, and so would accelerations. Where it
has none at qpos0 alone (three hinges in line, as a gimbal may be there), motion from elsewhere is sound: MuJoCo's
inverse weights are no numbers then, ours are those of a pose nearby, with a warning.
Source: mj_setConst and set0 of MuJoCo 3.8.1.

actuator_lengthrange is found by simulation: how short and how long an actuator gets when it pulls one way, then the
other. From qpos0, without gravity, springs, dampers, friction and contacts, a force along the actuator's moment arm
speeds up the joints at a set rate, while velocities fade, until joint limits stop them; the extreme length of the last
seconds is the range. Many actuators, in both directions, run as one batch. Muscles are scaled by this range.
Source: MuJoCo XML reference, compiler/lengthrange; mj_setLengthRange (3.8.1).
"""

import functools
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

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
from diffsim.simulate.constants import constants, inverse_weights, position
from diffsim.simulate.forward import evaluate
from diffsim.simulate.status import motions_without_inertia
from diffsim.simulate.step import integrate
from diffsim.types import State
from diffsim.types.data import Inertia, Transmission
from diffsim.types.model import Model
from diffsim.types.state import make_inputs, make_state
from diffsim.xla.compiled import ON_CPU, QUICK

Array = jax.Array

# Young's modulus and Poisson's ratio of the cells whose modes strain constraints hold
STRAINED = (10.0, 0.3)
# statistics that the file may fix
FIXED = ("meaninertia", "meanmass", "meansize", "extent", "center")


@contextmanager
def on_host() -> Iterator[None]:
    """Arrays that are made meanwhile are float64, and on the CPU where JAX has been told that there is one."""
    try:
        cpu: AbstractContextManager[Any] = jax.default_device(jax.local_devices(backend="cpu")[0])
    except RuntimeError:
        cpu = nullcontext()
    with jax.enable_x64(True), cpu:
        yield


def derive(draft: Draft, model: Model, packed: Callable[[dict[str, Any]], Model]) -> None:
    """Complete the fields with derived constants, and with what depends on these; runs `on_host`.

    Args:
      draft: the fields so far.
      model: what `packed` makes of them.
      packed: makes a model of fields.

    Raises:
      MjcfError: some constant is no finite number, most often because the inertia matrix is singular.
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
    """flex_stiffness of flexes with strain constraints: of each cell how many modes, then the modes, filled up with 0.

    A mode is an eigenvector of the stiffness of a cell of a fixed material, times the root of its eigenvalue, without
    its rigid part. Eigenvalues of cubes come several at a time: which vectors span their spaces is left to rounding.
    """
    topology = model.topology
    for flex in np.flatnonzero((topology.flex_edgeequality == STRAIN) & (topology.flex_interp != 0)).tolist():
        node0 = jnp.asarray(draft.fields["flex_node0"])
        thickness = jnp.asarray(draft.fields["flex_thickness"][flex])
        young, poisson = map(jnp.asarray, STRAINED)
        of_cells = functools.partial(cell_stiffness, topology, flex)
        cells = np.asarray(interpret(of_cells, node0, young, poisson, thickness))
        corner = np.asarray(node0)[topology.flex_nodeadr[flex] + cell_nodes(topology, flex)]
        size = cells.shape[1]
        first = topology.flex_stiffnessadr[flex]
        table = np.zeros((len(cells), size * size))
        for row, matrix, place in zip(table, cells, corner, strict=True):
            value, vector = np.linalg.eigh(-matrix)
            kept = value > 1e-8 * np.abs(value).max()
            modes = (vector[:, kept] * np.sqrt(value[kept])).T
            middle = place - place.mean(axis=0)
            turns = [np.cross(axis, middle).ravel() for axis in np.eye(3)]
            rigid = np.linalg.qr(np.array([*(np.tile(axis, len(place)) for axis in np.eye(3)), *turns]).T)[0]
            modes = modes - modes @ rigid @ rigid.T
            modes = modes[np.sum(modes**2, axis=1) >= 1e-6 * value[kept]]
            row[0] = len(modes)
            row[1 : 1 + modes.size] = modes.ravel()
        stiffness = np.array(draft.fields["flex_stiffness"])
        stiffness[first : first + table.size] = table.ravel()
        draft.fields["flex_stiffness"] = stiffness


def _spring_dampers(draft: Draft) -> None:
    """Stiffness (N/m or Nm/rad) and damping of joints that are given by time constant (s) and damping ratio.

    k = m / (t d)^2, b = 2 m / t, where 1 / m is the mean inverse weight of the joint's dofs.
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


DIVIDED = ("dof_invweight0", "body_invweight0", "tendon_invweight0", "actuator_acc0")


def _sound_constants(draft: Draft, model: Model) -> dict[str, Any]:
    """The constants of the model; notes where inverse weights are no finite numbers, at qpos0 and near it."""
    # leaves and boxes of meshes are there already
    result = interpret(functools.partial(constants, meshes=False), model)
    if all(np.isfinite(result[name]).all() for name in DIVIDED):
        return result
    # a third of a radian or metre from qpos0, by scalar joints
    address = model.topology.jnt_qposadr[dof_widths(model.topology.jnt_type) == 1]
    nearby = model.qpos0.at[address].add(np.where(np.arange(len(address)) % 2, 0.37, -0.29))
    if not motions_without_inertia(interpret(lambda m: position(m, nearby)[3].qM, model)):
        result.update(interpret(lambda m: inverse_weights(m, *position(m, nearby)), model))
        warnings.warn(
            "the inertia matrix is singular at qpos0; inverse weights are those of a pose nearby", stacklevel=2
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
        draft.problems.add(joints[dofs[-1]].source, message, "remove a joint, or give armature")
    return result


OFF = (
    DisableBit.FRICTIONLOSS
    | DisableBit.CONTACT
    | DisableBit.SPRING
    | DisableBit.DAMPER
    | DisableBit.GRAVITY
    | DisableBit.ACTUATION
    | DisableBit.SENSOR
)
MOST_STEPS = 100_000

# slower than this (m/s or rad/s) before and after a step it has come to rest
AT_REST = 1e-10

# so many steps run sooner in turn (0.03 ms each for an arm of two joints) than their batch is traced (1 s more)
MOST_IN_TURN = 20_000

# the program runs once, for a second: it is compiled five times faster like this, and slower
QUICKLY = ON_CPU | QUICK | {"xla_disable_hlo_passes": "while-loop-invariant-code-motion"}


def length_ranges(draft: Draft, packed: Callable[[dict[str, Any]], Model]) -> None:
    """Complete actuator_lengthrange for the actuators that ask for it (`Draft.unmeasured`)."""
    actuators = sorted(draft.unmeasured)
    if not actuators:
        return
    settings = draft.lengthrange
    timestep = settings.timestep if settings.timestep > 0 else draft.spec.option.timestep
    if settings.inttotal > MOST_STEPS * timestep:
        message = f"inttotal / timestep asks for more than {MOST_STEPS} steps"
        draft.problems.add(draft.spec.compiler.first(LengthRange), message)
        return
    # for each step, whether its length counts
    time = 0.0
    counted = []
    while time < settings.inttotal:
        time += timestep
        counted.append(time > settings.inttotal - settings.interval)
    model = packed(draft.fields)
    integrator = Integrator.EULER if model.opt.integrator == Integrator.RK4 else model.opt.integrator
    step = jax.device_put(np.asarray(timestep, model.qpos0.dtype))
    model = model.replace(opt=model.opt.replace(disableflags=OFF, integrator=integrator, timestep=step))
    lower, upper = _simulate(model, settings, np.array(actuators), np.array(counted, bool))
    for row, actuator in enumerate(actuators):
        least, most = lower[:, row], upper[:, row]
        draft.fields["actuator_lengthrange"][actuator] = least[0], most[1]
        source = draft.nodes["actuator"][actuator].source
        hint = "give lengthrange, or limit the joints"
        spread = most[1] - least[0]
        if not np.isfinite([least, most]).all():
            draft.problems.add(source, "the simulation that finds its length range is not stable", hint)
        elif spread <= 0:
            draft.problems.add(source, f"its length range would be empty: {least[0]:g} to {most[1]:g}", hint)
        elif (most - least > settings.tolrange * spread).any():
            draft.problems.add(source, "the simulation that finds its length range does not come to rest", hint)


def _simulate(model: Model, settings: LengthRange, actuators: np.ndarray, counted: np.ndarray) -> Any:
    """(shortest, longest) length in the window, each (2, k): pulling, pushing; k actuators."""
    fade = float(np.exp(-float(model.opt.timestep) / max(0.01, settings.timeconst)))

    def pushed(model: Model, state: State, actuator: Array, sign: Array) -> tuple[State, Array]:
        """One step under a force along the moment arm; the length before it."""

        def along_moment(inertia: Inertia, transmission: Transmission) -> Array:
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
        # once at rest it stays, up to the end of the window
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
        # this version of XLA calls its options something else
        compiled = program.compile()
    return tuple(np.asarray(lengths).reshape(2, len(actuators)) for lengths in compiled(*arguments))

"""actuator_lengthrange by simulation: how short and how long an actuator gets when it pulls one way, then the other.

From qpos0, without gravity, springs, dampers, friction and contacts, a force along the actuator's moment arm speeds up
the joints at a set rate, while velocities fade, until joint limits stop them; the extreme length of the last seconds
is the range. Many actuators, in both directions, run as one batch. Muscles are scaled by this range.
Source: MuJoCo XML reference, compiler/lengthrange; mj_setLengthRange (3.8.1).
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.enums import DisableBit, Integrator
from diffsim.compiler.draft import Draft
from diffsim.math.linalg import solve_spd
from diffsim.mjcf.elements.settings import LengthRange
from diffsim.simulate.constants import position
from diffsim.simulate.forward import forward
from diffsim.simulate.step import integrate
from diffsim.types import Model, State
from diffsim.types.state import make_inputs, make_state

Array = jax.Array

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

# so many steps run sooner in turn (0.03 ms each for an arm of two joints) than their batch is traced (1 s more)
MOST_IN_TURN = 20_000

# the program runs once, for a second: it is compiled five times faster like this, and slower
QUICKLY = {
    "xla_backend_optimization_level": 0,
    "xla_cpu_use_fusion_emitters": False,
    "xla_disable_hlo_passes": "while-loop-invariant-code-motion",
}


def length_ranges(draft: Draft, packed: Callable[[dict[str, Any]], Model]) -> None:
    """Complete actuator_lengthrange for the actuators that ask for it (`Draft.unmeasured`)."""
    wanted = sorted(draft.unmeasured)
    if not wanted:
        return
    settings = draft.lengthrange
    timestep = settings.timestep if settings.timestep > 0 else draft.spec.option.timestep
    if settings.inttotal > MOST_STEPS * timestep:
        message = f"inttotal / timestep asks for more than {MOST_STEPS} steps"
        draft.problems.add(draft.spec.compiler.first(LengthRange), message)
        return
    # for each step, whether its length counts
    time, counted = 0.0, []
    while time < settings.inttotal:
        time += timestep
        counted.append(time > settings.inttotal - settings.interval)
    model = packed(draft.fields)
    integrator = Integrator.EULER if model.opt.integrator == Integrator.RK4 else model.opt.integrator
    step = jax.device_put(np.asarray(timestep, model.qpos0.dtype))
    model = model.replace(opt=model.opt.replace(disableflags=OFF, integrator=integrator, timestep=step))
    lower, upper = _simulate(model, settings, np.array(wanted), np.array(counted, bool))
    for row, actuator in enumerate(wanted):
        draft.fields["actuator_lengthrange"][actuator] = lower[0, row], upper[1, row]
        _check(draft, actuator, lower[:, row], upper[:, row], settings.tolrange)


def _simulate(model: Model, settings: LengthRange, actuators: np.ndarray, counted: np.ndarray) -> Any:
    """(shortest, longest) length in the window, each (2, k): pulling, pushing; k actuators."""
    fade = float(np.exp(-float(model.opt.timestep) / max(0.01, settings.timeconst)))

    def push(model: Model, state: State, actuator: Array, sign: Array) -> tuple[State, Array]:
        """One step under a force along the moment arm; the length before it."""
        state = state.replace(qvel=fade * state.qvel)
        inertia, moments = position(model, state.qpos)[-2:]
        moment = moments.actuator_moment[actuator]
        rate = jnp.maximum(jnp.linalg.norm(solve_spd(inertia.qM, moment)), 1e-15)
        force = moment * (sign * settings.accel / rate)
        size = jnp.linalg.norm(force)
        if settings.maxforce > 0:
            force = jnp.where(size > settings.maxforce, force * (settings.maxforce / jnp.maximum(size, 1e-15)), force)
        inputs = make_inputs(model).replace(qfrc_applied=force)
        after = integrate(model, state, inputs, forward(model, state, inputs))
        return after, moments.actuator_length[actuator]

    def run(model: Model, actuator: Array, sign: Array) -> tuple[Array, Array]:
        def advance(carry: tuple[State, Array, Array], counts: Array) -> tuple[tuple[State, Array, Array], None]:
            state, lower, upper = carry
            state, length = push(model, state, actuator, sign)
            lower = jnp.where(counts, jnp.minimum(lower, length), lower)
            return (state, lower, jnp.where(counts, jnp.maximum(upper, length), upper)), None

        huge = jnp.full((), jnp.inf, model.qpos0.dtype)
        (_, lower, upper), _ = jax.lax.scan(advance, (make_state(model), huge, -huge), jnp.asarray(counted))
        return lower, upper

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


def _check(draft: Draft, actuator: int, lower: np.ndarray, upper: np.ndarray, tolerance: float) -> None:
    """The range is one, and each end of it was reached and held."""
    source = draft.nodes["actuator"][actuator].source
    hint = "give lengthrange, or limit the joints"
    spread = upper[1] - lower[0]
    if not np.isfinite([lower, upper]).all():
        draft.problems.add(source, "the simulation that finds its length range is not stable", hint)
    elif spread <= 0:
        draft.problems.add(source, f"its length range would be empty: {lower[0]:g} to {upper[1]:g}", hint)
    elif (upper - lower > tolerance * spread).any():
        draft.problems.add(source, "the simulation that finds its length range does not come to rest", hint)

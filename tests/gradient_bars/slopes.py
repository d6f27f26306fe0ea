"""The derivative of a motion through impacts beside the slope that a user sees, at MuJoCo's default solimp.

The force of a contact jumps at touch there (d0 = 0.9), and most of its rise is over within a millimetre. The truth is
the least-squares slope, over +-0.01 m/s of the first vertical velocity, of the motion that C MuJoCo finds with
Runge-Kutta steps of 40 us.
"""

from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import diffsim
from tests.gradient_bars.bar import Bar
from tests.oracle import mujoco, stepped

FLOOR = """<mujoco><option timestep="{h}" integrator="RK4"/><worldbody><geom type="plane" size="5 5 .1"/>
<body pos="0 0 {z}"><freejoint/><geom mass="1" {geom}/></body></worldbody></mujoco>"""
BALL, BOX = 'type="sphere" size=".1"', 'type="box" size=".1 .1 .1"'
LIMIT, FINE, REACH, EVENTS = 0.1, 4e-5, 0.01, 4


class Throw(NamedTuple):
    """A body, how high it begins (m), its first velocity, and for how long (s) which coordinate of qpos is watched."""

    geom: str
    z: float
    qvel: tuple[float, ...]
    seconds: float
    watched: int = 0

    def xml(self, h: float) -> str:
        """The scene at a timestep."""
        return FLOOR.format(h=h, z=self.z, geom=self.geom)


THROWS = {
    "bouncing ball": Throw(BALL + ' solref="-2000 -4"', 0.6, (0, 0, 0, 0, 0, 0), 1.0, 2),
    "rolling ball": Throw(BALL, 0.3, (1, 0, 0, 0, 0, 0), 0.6),
    "sliding box": Throw(BOX, 0.3, (1, 0, 0, 0, 0, 0), 0.6),
    "rolling box": Throw(BOX, 0.3, (1, 0, 0, 0, 4, 0), 0.6),
    "tumbling box": Throw(BOX, 0.3, (1, 0, 0, 2, 4, 1), 0.4),
    # falls flat after half a second: several corners begin and end within a step of 4 ms
    "tumbling box that falls flat": Throw(BOX, 0.3, (1, 0, 0, 2, 4, 1), 0.6),
}


def truth(xml: str, qvel: tuple[float, ...], seconds: float, watched: int) -> float:
    """The slope of C MuJoCo's motion, of a scene with steps of FINE."""
    mjmodel = mujoco.MjModel.from_xml_string(xml)
    faster, ends = np.linspace(-REACH, REACH, 11), []
    for change in faster:
        start = np.asarray(qvel, float) + change * np.eye(6)[2]
        ends.append(stepped(mjmodel, start, round(seconds / FINE)).qpos[watched])
    return float(np.polyfit(faster, ends, 1)[0])


@jax.jit
def end(model: diffsim.Model, qvel: jax.Array, steps: jax.Array) -> tuple[jax.Array, jax.Array]:
    """qpos after some steps, and its derivative by the first vertical velocity; one program for all timesteps."""

    def last(up: jax.Array) -> jax.Array:
        state = diffsim.make_state(model).replace(qvel=qvel.at[2].add(up))
        return jax.lax.fori_loop(0, steps, lambda _, now: diffsim.step(model, now), state).qpos

    return jax.jvp(last, (jnp.zeros(()),), (jnp.ones(()),))


def slopes() -> Iterator[Bar]:
    """Relative error of the derivative, of plain steps and of steps that are split at up to EVENTS changes."""
    for name, throw in THROWS.items():
        exact = truth(throw.xml(FINE), throw.qvel, throw.seconds, throw.watched)
        for h in (4e-3, 1e-3, 2.5e-4):
            loaded = diffsim.load(throw.xml(h))
            for events in (0, EVENTS):
                model = loaded.replace(opt=loaded.opt.replace(events=events))
                _, slope = end(model, jnp.asarray(throw.qvel, float), jnp.asarray(round(throw.seconds / h)))
                error = abs(float(slope[throw.watched]) / exact - 1)
                label = f"{name}, h = {1e3 * h:g} ms, {events} events: relative error of the slope {exact:.3g}"
                yield Bar(label, error, LIMIT if events else np.inf)

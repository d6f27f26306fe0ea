"""Small flexes for the tests of this folder: what the oracle compiles, as ours, and its states."""

import functools

import jax
import mujoco
import numpy as np
from derivatives import richardson
from uncompiled import uncompiled

import diffsim
from diffsim.compiler.convert import from_mujoco
from diffsim.types import Model, State

TURNED = 'euler="10 20 30"'
NO_CONTACT = '<contact contype="0" conaffinity="0" selfcollide="none" internal="false"/>'
EDGES = '<edge equality="true"/>'


def flexcomp(inside: str, count: str, dim: int = 2, option: str = "", world: str = "", turned: str = TURNED) -> str:
    """MJCF of a grid with what stands inside of its flexcomp; both solvers end where nothing can be gained."""
    return f"""<mujoco><option tolerance="0" iterations="200" {option}/><worldbody>{world}
      <body name="b" pos="0 0 1" {turned}>
      <flexcomp name="c" type="grid" count="{count}" spacing=".05 .05 .05" dim="{dim}" mass="1" radius=".01">
      {inside}</flexcomp></body></worldbody></mujoco>"""


@functools.cache
def pair(xml: str) -> tuple[Model, mujoco.MjModel]:
    """(ours, the oracle's) of MJCF, ours converted."""
    mjmodel = mujoco.MjModel.from_xml_string(xml)
    return from_mujoco(mjmodel), mjmodel


def moved(
    mjmodel: mujoco.MjModel, seed: int = 0, spread: float = 2e-3, speed: float = 0.3, evaluated: bool = True
) -> mujoco.MjData:
    """A random state near rest."""
    data, rng = mujoco.MjData(mjmodel), np.random.default_rng(seed)
    data.qpos[:] += spread * rng.standard_normal(mjmodel.nq)
    data.qvel[:] = speed * rng.standard_normal(mjmodel.nv)
    if evaluated:
        mujoco.mj_forward(mjmodel, data)
    return data


def check_slopes(function, weight, step: float, close: float) -> None:
    """jvp of a function of t at 0 equals Richardson differences to 1e-6, its vjp with `weight` the jvp to `close`."""
    run, weight = uncompiled(function), np.asarray(weight)
    tangent = uncompiled(lambda t: jax.jvp(function, (t,), (1.0,))[1])(0.0)
    assert np.max(np.abs(tangent - richardson(run, 1.0, step / 2))) < 1e-6 * np.max(np.abs(tangent))
    slope = uncompiled(jax.grad(lambda t: weight @ function(t)))(0.0)
    assert abs(slope - weight @ tangent) < close * abs(slope)


def velocity_along(model: Model, state: State, change: dict, push, turn=0.0):
    """The velocity after a step of a model and from a state that change with t: fields, velocity and position."""

    def velocity(t):
        other = model.replace(**{name: getattr(model, name) + t * value for name, value in change.items()})
        return diffsim.step(other, state.replace(qpos=state.qpos + t * turn, qvel=state.qvel + t * push)).qvel

    return velocity

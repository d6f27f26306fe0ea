"""Small systems that the tests of optimize share."""

import jax.numpy as jnp
import numpy as np
import scipy.optimize

import diffsim
from diffsim import optimize

# a mass on a rail: linear, so that every answer is known
RAIL = """<mujoco><option timestep=".1" gravity="0 0 0"/><worldbody><body><joint name="rail" type="slide" axis="1 0 0"/>
<geom type="box" size=".1 .1 .1" mass="1" contype="0" conaffinity="0"/></body></worldbody>
<actuator><motor joint="rail"/></actuator></mujoco>"""

CARTPOLE = """<mujoco><option timestep=".02"/><worldbody><body><joint name="cart" type="slide" axis="1 0 0"/>
<geom type="box" size=".1 .1 .1" mass="1" contype="0" conaffinity="0"/>
<body><joint name="pole" axis="0 1 0" damping=".01"/>
<geom type="capsule" size=".03" fromto="0 0 0 0 0 .6" mass=".2" contype="0" conaffinity="0"/></body></body></worldbody>
<actuator><motor joint="cart" gear="10" ctrlrange="-1 1" ctrllimited="true"/></actuator></mujoco>"""

HORIZON = 20


def rail() -> diffsim.Model:
    return diffsim.load(RAIL)


def reach(bounds=None) -> optimize.Task:
    """Move by 1 m and stop, in two seconds, with little effort."""

    def running(state, data, ctrl):
        return 0.1 * ctrl

    def final(state, data):
        return 10 * jnp.concatenate([state.qpos - 1, state.qvel])

    return optimize.make_task(rail(), running, final, bounds=bounds)


def exact(bound: float) -> np.ndarray:
    """(HORIZON,) the best controls of `reach`, as a bounded least squares problem."""
    h = 0.1
    left = np.arange(HORIZON, 0, -1)
    # semi-implicit Euler: v_T = h sum u, x_T = h^2 sum left u
    matrix = np.vstack([0.1 * np.eye(HORIZON), 10 * h * h * left, 10 * h * np.ones(HORIZON)])
    goal = np.concatenate([np.zeros(HORIZON), [10.0, 0.0]])
    return scipy.optimize.lsq_linear(matrix, goal, (-bound, bound), tol=1e-14).x


def swing_up() -> optimize.Task:
    """Bring the pole of a cartpole from hanging to upright, at rest, in the middle, in 2 s."""

    def running(state, data, ctrl):
        return jnp.concatenate([0.03 * ctrl, 0.01 * state.qvel, 0.03 * state.qpos[:1]])

    def final(state, data):
        angle = state.qpos[1]
        off = jnp.stack([jnp.sin(angle), 1 - jnp.cos(angle), state.qpos[0]])
        return jnp.concatenate([10 * off, 3 * state.qvel])

    return optimize.make_task(diffsim.load(CARTPOLE), running, final)

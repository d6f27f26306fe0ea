"""Contact modes: what geometry proposes, and what comes of the proposals in C MuJoCo."""

import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import diffsim
from diffsim import optimize
from diffsim.optimize import costs
from diffsim.optimize.trajectory.contact_modes import find_modes, support, turn_between
from diffsim.optimize.trajectory.contact_paths import NUMBERS
from diffsim.optimize.trajectory.contact_search import Contacts, ContactSettings, propose_contacts
from tests.measure.plan_robots import played
from tests.measure.robot_models import Problem, gantry_lift

PROBLEM = gantry_lift(None)


def task_of(problem: Problem, gravity: float = -9.81) -> tuple[optimize.Task, diffsim.State]:
    """The body shall be at its goal."""
    model = diffsim.load(problem.xml)
    model = model.replace(opt=model.opt.replace(gravity=jnp.asarray([0, 0, gravity])))
    body = model.body(problem.body)
    task = optimize.make_task(
        model,
        lambda state, data, ctrl: costs.slow(state, 10.0),
        lambda state, data: costs.pose(data, body, pos=jnp.asarray(problem.goal)),
    )
    return task, diffsim.make_state(model).replace(qpos=model.key_qpos[0])


def moved_by(problem: Problem, ctrl: np.ndarray) -> float:
    """m, how far the robot moves in C MuJoCo in half a second with constant controls."""
    model = mujoco.MjModel.from_xml_string(problem.xml)
    data = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, data, 0)
    data.ctrl[:] = ctrl
    for _ in range(50):
        mujoco.mj_step(model, data)
    return float(np.max(np.abs(data.qpos - model.key_qpos[0])[: model.nu]))


def test_a_gripper_is_proposed_to_lift_a_cube() -> None:
    task, state = task_of(PROBLEM)
    scene = find_modes(task, state)
    assert scene is not None
    # nothing can push a cube upwards that stands on a table, and jaws close along three axes
    assert len(scene.modes) == 3 and all(len(mode.effectors) == 2 for mode in scene.modes)
    thing = scene.modes[0].thing
    assert thing.free and np.linalg.norm(thing.pos[-1, thing.body] - PROBLEM.goal) < 1e-5
    np.testing.assert_allclose(thing.mass, 0.1, rtol=1e-5)
    contacts = Contacts(scene, PROBLEM.steps, 24, ContactSettings())
    # without a joint that turns it, the gripper closes along x alone
    assert len(contacts.modes) == 1 and abs(contacts.modes[0].normal[0]) > 0.99
    assert np.all(contacts.lower >= task.lower) and np.all(contacts.upper <= task.upper)
    assert contacts.upper[1] - contacts.lower[1] < 0.3 * float(task.upper[1] - task.lower[1])
    # held against gravity, the robot stays where it is
    assert moved_by(PROBLEM, contacts.hold) < 1e-5
    ctrl, miss = contacts.driven([(contacts.modes[0], np.zeros((24, NUMBERS)))])
    # jaws open by less than asked for; everything else is reached
    assert np.max(miss) < 0.02
    assert played(PROBLEM, ctrl[0].astype(float)) < 0.1
    # the search keeps the best, and learns where the costs are low
    rounds = list(contacts.search(lambda ctrl: np.abs(ctrl[:, -1, 0] - 0.105), 0, lambda: False))
    assert rounds[-1].cost <= rounds[0].cost < 5e-3
    assert len(list(contacts.search(lambda ctrl: np.ones(24), 0, lambda: True))) == 1


def test_nothing_is_proposed_where_nothing_can_be() -> None:
    task, state = task_of(PROBLEM, gravity=0.0)
    assert propose_contacts(task, state, 10, 24, ContactSettings()) is None
    assert find_modes(task.replace(final=None), state) is None
    task, state = task_of(PROBLEM)
    assert propose_contacts(task, state, 10, 24, None) is None
    # no path is followed exactly
    assert propose_contacts(task, state, 10, 24, ContactSettings(farthest=0.0)) is None
    with pytest.raises(diffsim.ArgumentError, match=r"contacts=None"):
        ContactSettings(rounds=0)


def test_a_distance_as_the_goal_is_no_obstacle() -> None:
    """It has no derivative once a step ends on the goal."""
    task, state = task_of(PROBLEM)
    body = task.model.body(PROBLEM.body)
    far = task.replace(final=lambda state, data: jnp.linalg.norm(data.xpos[body.id] - jnp.asarray(PROBLEM.goal))[None])
    scene = find_modes(far, state)
    assert scene is None or np.isfinite(scene.modes[0].thing.pos).all()


def test_nothing_is_proposed_for_a_robot_that_is_not_fixed() -> None:
    """Inverse kinematics would take its base for fixed."""
    xml = """<mujoco><worldbody><geom type="plane" size="1 1 1"/>
      <body pos="0 0 .3"><freejoint/><geom size=".1"/><body><joint name="j" axis="0 1 0"/>
      <geom type="capsule" size=".02" fromto="0 0 0 .3 0 0"/></body></body>
      <body name="ball" pos=".5 0 .05"><freejoint/><geom size=".05"/></body></worldbody>
      <actuator><position joint="j" kp="10" ctrlrange="-1 1"/></actuator></mujoco>"""
    model = diffsim.load(xml)
    ball = model.body("ball")
    goal = jnp.array([0.7, 0, 0.05])
    task = optimize.make_task(model, lambda s, d, c: c, lambda s, d: costs.pose(d, ball, pos=goal))
    assert find_modes(task, diffsim.make_state(model)) is None


def test_sides_and_turns() -> None:
    task, _ = task_of(PROBLEM)
    cube = task.model.id("geom", "cube")
    half = float(task.model.geom_size[cube, 0])
    np.testing.assert_allclose(support(task, cube, np.array([0.6, 0.8, 0])), 1.4 * half, rtol=1e-5)
    for one, other in (([1.0, 0, 0], [0, 0, 1.0]), ([1.0, 0, 0], [-1.0, 0, 0]), ([0, 1.0, 0], [0, 1.0, 0])):
        turned = np.zeros(3)
        mujoco.mju_rotVecQuat(turned, np.array(one), turn_between(np.array(one), np.array(other)))
        np.testing.assert_allclose(turned, other, atol=1e-9)

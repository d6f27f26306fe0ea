"""optimize.ik: poses are reached as C MuJoCo sees it, ranges and weights hold, and derivatives are of the solution."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from wide import only_wide, wide

import diffsim
from diffsim import optimize
from diffsim.base.errors import ArgumentError
from diffsim.math import axis_angle_to_quat, quat_mul, quat_sub
from diffsim.optimize import inverse_kinematics
from tests.optimize.arms import arm

TIGHT = optimize.Ik(tolerance=1e-11)


def pose(mjmodel: Any, qpos: Any) -> tuple[np.ndarray, np.ndarray]:
    """Position (3,) and quaternion (4,) of the site "tip", by C MuJoCo."""
    mujoco: Any = oracle.mujoco
    data = mujoco.MjData(mjmodel)
    data.qpos = qpos
    mujoco.mj_kinematics(mjmodel, data)
    quat = np.zeros(4)
    mujoco.mju_mat2Quat(quat, data.site("tip").xmat)
    return data.site("tip").xpos.copy(), quat


def loaded(name: str) -> tuple[diffsim.Model, diffsim.State, Any]:
    model = diffsim.load(arm(name))
    return model, diffsim.make_state(model, "home"), oracle.load_oracle(arm(name))


@pytest.mark.parametrize("name", ["ur5", *wide(["panda"])])
def test_random_poses_of_an_arm_are_reached(name: str) -> None:
    model, state, mjmodel = loaded(name)
    lower, upper = mjmodel.jnt_range.T
    truth = np.random.default_rng(1).uniform(lower, upper, (100, model.nq))
    pos, quat = (jnp.asarray(each) for each in zip(*(pose(mjmodel, qpos) for qpos in truth), strict=True))
    solve = jax.jit(jax.vmap(lambda p, q: optimize.ik(model, state, [optimize.Target(model.site("tip"), p, q)])))
    found = solve(pos, quat)
    assert bool(found.reached.all())
    assert np.all((np.asarray(found.qpos) >= lower) & (np.asarray(found.qpos) <= upper))
    for qpos, p, q in zip(found.qpos, pos, quat, strict=True):
        mine = pose(mjmodel, qpos)
        assert np.linalg.norm(mine[0] - p) < 1e-4
        assert np.linalg.norm(quat_sub(jnp.asarray(mine[1]), q)) < 1e-4
    # searches: some poses need more than one
    assert found.iterations.min() < 20 < found.iterations.max()


ROBOT = """
<mujoco>
  <worldbody>
    <body name="base" pos="0 0 1"><freejoint/><geom size=".1" mass="1"/>
      <body name="upper" pos=".1 0 0"><joint name="shoulder" type="ball"/><geom size=".05" pos=".2 0 0"/>
        <body name="lower" pos=".3 0 0" euler="0 30 0"><joint name="elbow" axis="0 1 0"/>
          <geom name="pad" size=".05 .03 .02" type="box" pos=".2 0 0" euler="10 20 30"/>
          <site name="hand" pos=".2 .01 0" euler="0 40 0"/></body></body>
      <body name="other" pos="-.1 0 0"><joint name="slide" type="slide" axis="1 0 0" range="-.2 .2" limited="true"/>
        <geom size=".05"/><site name="foot" pos="-.2 0 0"/></body>
    </body>
  </worldbody>
</mujoco>
"""


def test_slopes_are_the_derivatives_of_the_residuals() -> None:
    model = diffsim.load(ROBOT)
    rng = np.random.default_rng(0)
    draws = jnp.asarray(rng.normal(size=model.nv))
    qpos = diffsim.support.integrate_pos(model, model.qpos0, draws, 1.0)
    quat = jnp.asarray([0.5, 0.1, -0.7, 0.3])
    targets = [
        optimize.Target(model.site("hand"), np.ones(3), quat, [1.0, 2.0, 3.0], [0.5, 1.0, 0.1]),
        optimize.Target(model.geom("pad"), quat=quat, rot_weight=2.0),
        optimize.Target(model.body("other"), pos=np.zeros(3), quat=quat),
    ]
    inputs = diffsim.make_inputs(model)
    problem = inverse_kinematics._Problem(
        model=model,
        mocap=(inputs.mocap_pos, inputs.mocap_quat),
        goals=inverse_kinematics._goals(model, targets, 0.0),
        search=inverse_kinematics._Search(optimize.Ik(), (True,) * model.nv),
        begin=qpos,
        starts=qpos[None],
    )

    def residual(change: jax.Array) -> jax.Array:
        moved = diffsim.support.integrate_pos(model, qpos, change, 1.0)
        return inverse_kinematics._errors(problem, moved)[0].weighted(problem.goals)

    @jax.jit
    def both(change: jax.Array) -> tuple[jax.Array, jax.Array]:
        moved = diffsim.support.integrate_pos(model, qpos, change, 1.0)
        slopes = inverse_kinematics._slopes(problem, *inverse_kinematics._errors(problem, moved))
        return slopes, jax.jacfwd(residual)(change)

    slopes, expected = both(jnp.zeros(model.nv))
    assert slopes.shape == (15, model.nv)
    np.testing.assert_allclose(slopes, expected, atol=1e-12)


def test_a_floating_robot_with_several_targets() -> None:
    model = diffsim.load(ROBOT)
    state = diffsim.make_state(model)
    hand, foot = np.array([0.4, 0.3, 1.0]), np.array([-0.3, 0.1, 0.8])
    wanted = [optimize.Target(model.site("hand"), hand), optimize.Target(model.site("foot"), foot)]
    found = optimize.ik(model, state, [*wanted, optimize.Target(model.body("base"), quat=[1.0, 0, 0, 0])])
    assert bool(found.reached) and found.position_error.shape == (3,)
    data = diffsim.forward(model, state.replace(qpos=found.qpos))
    np.testing.assert_allclose(model.site("hand").xpos(data), hand, atol=1e-4)
    np.testing.assert_allclose(model.site("foot").xpos(data), foot, atol=1e-4)
    assert -0.2 <= float(found.qpos[-1]) <= 0.2
    np.testing.assert_allclose(jnp.linalg.norm(found.qpos[3:7]), 1, atol=1e-12)
    # with fewer joints only these move, and what they cannot do is left
    far = np.array([0.9, 0.8, 1.3])
    arm = optimize.ik(model, state, [optimize.Target(model.site("hand"), far)], joints=["shoulder", "elbow"])
    np.testing.assert_array_equal(arm.qpos[:7], state.qpos[:7])
    assert not bool(arm.reached)
    # as near as it gets: the arm is stretched towards the target
    shoulder = np.array([0.1, 0, 1])
    way = (far - shoulder) / np.linalg.norm(far - shoulder)
    tip = model.site("hand").xpos(diffsim.forward(model, state.replace(qpos=arm.qpos)))
    np.testing.assert_allclose(np.cross(tip - shoulder, way), 0, atol=1e-3)


@only_wide
def test_weights_decide_between_targets() -> None:
    model, state, _ = loaded("ur5")
    tip = model.site("tip")
    one, two = np.array([0.4, 0.2, 0.3]), np.array([0.4, 0.3, 0.3])
    both = [optimize.Target(tip, one, pos_weight=1.0), optimize.Target(tip, two, pos_weight=2.0)]
    found = optimize.ik(model, state, both, settings=optimize.Ik(attempts=1))
    # the minimum of |x - one|^2 + 4 |x - two|^2
    place = tip.xpos(diffsim.forward(model, state.replace(qpos=found.qpos)))
    np.testing.assert_allclose(place, (one + 4 * two) / 5, atol=1e-4)
    np.testing.assert_allclose(found.position_error, [0.08, 0.02], atol=1e-4)
    assert not bool(found.reached)
    # one axis of the target is left open
    turned = jnp.asarray([1.0, 0, 0, 0])
    open_axis = optimize.Target(tip, one, turned, rot_weight=[1.0, 1.0, 0.0])
    found = optimize.ik(model, state, [open_axis], posture=1e-3, settings=optimize.Ik(tolerance=1e-4))
    matrix = tip.xmat(diffsim.forward(model, state.replace(qpos=found.qpos)))
    assert bool(found.reached)
    np.testing.assert_allclose(matrix[:, 2], [0, 0, 1], atol=2e-4)
    # the posture turns the last joint where it wants it
    assert abs(float(matrix[0, 0])) < 0.99


def reachable(name: str, seed: int) -> tuple[Any, ...]:
    model, state, mjmodel = loaded(name)
    rng = np.random.default_rng(seed)
    near = np.asarray(state.qpos) + rng.uniform(-0.3, 0.3, model.nq)
    pos, quat = map(jnp.asarray, pose(mjmodel, near))
    return model, state, pos, quat


def test_derivatives_of_the_solution() -> None:
    model, state, pos, quat = reachable("ur5", 3)
    tip = model.site("tip")

    def solution(change: jax.Array) -> tuple[jax.Array, jax.Array]:
        """For changes of the target (m, rad) and of the length of a link (relative)."""
        turned = quat_mul(quat, axis_angle_to_quat(jnp.array([1.0, 0, 0]), change[3]))
        link = model.body_pos.at[3].multiply(1 + change[4])
        target = optimize.Target(tip, pos + change[:3], turned)
        qpos = optimize.ik(model.replace(body_pos=link), state, [target], settings=TIGHT).qpos
        return qpos, qpos

    modes = jax.jit(lambda x: (jax.jacfwd(solution, has_aux=True)(x), jax.jacrev(solution, has_aux=True)(x)[0]))
    zero, step = jnp.zeros(5), 1e-5
    (forward, _), reverse = modes(zero)
    np.testing.assert_allclose(reverse, forward, atol=1e-9)
    for column, way in enumerate(step * np.eye(5)):
        (_, ahead), _ = modes(jnp.asarray(way))
        (_, behind), _ = modes(jnp.asarray(-way))
        np.testing.assert_allclose(forward[:, column], (ahead - behind) / (2 * step), rtol=1e-5, atol=1e-6)
    assert np.abs(forward).max(axis=0).min() > 0.1


@only_wide
def test_a_redundant_arm_moves_least_and_a_posture_decides() -> None:
    model, state, pos, quat = reachable("panda", 4)
    tip = model.site("tip")

    def solution(pos: jax.Array, qpos: jax.Array, posture: float, settings: optimize.Ik) -> tuple[jax.Array, jax.Array]:
        start = state.replace(qpos=qpos)
        found = optimize.ik(model, start, [optimize.Target(tip, pos, quat)], posture=posture, settings=settings)
        return found.qpos, found.qpos

    slopes, free = jax.jit(jax.jacfwd(lambda x: solution(x, state.qpos, 0.0, TIGHT), has_aux=True))(pos)
    jacobian = jacobian_at(model, state, free)
    # the tip moves as the target does, by the shortest motion
    np.testing.assert_allclose(jacobian @ slopes, np.eye(6, 3), atol=1e-8)
    np.testing.assert_allclose(slopes, np.linalg.pinv(jacobian)[:, :3], atol=1e-8)
    # with a posture the solution is the nearest to the state: the way there has no part along the null space
    settings = optimize.Ik(tolerance=1e-4, iterations=200)
    follow, near = jax.jit(jax.jacfwd(lambda x: solution(pos, x, 1e-2, settings), has_aux=True))(state.qpos)
    null = np.linalg.svd(jacobian_at(model, state, near))[2][-1]
    assert abs(null @ (near - state.qpos)) < 1e-3
    assert abs(null @ (free - state.qpos)) > 3e-3
    # where the state moves along the null space, the solution follows
    assert float(null @ follow @ null) > 0.5


def jacobian_at(model: diffsim.Model, state: diffsim.State, qpos: jax.Array) -> np.ndarray:
    data = diffsim.forward(model, state.replace(qpos=qpos))
    return np.concatenate(diffsim.support.jac_site(model, data, "tip"))


def test_a_range_holds_a_joint_and_its_derivative() -> None:
    model = diffsim.load("""
    <mujoco><compiler angle="radian"/><worldbody><body><joint name="a" axis="0 0 1" range="-.5 .5"/>
      <geom size=".1" pos=".5 0 0"/><body pos="1 0 0"><joint name="b" axis="0 0 1" range="-3 3"/>
      <geom size=".1" pos=".5 0 0"/><site name="tip" pos="1 0 0"/></body></body></worldbody></mujoco>""")
    state = diffsim.make_state(model)

    def solution(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        """For the position of the target, and the upper end of the first joint's range."""
        ranged = model.replace(jnt_range=model.jnt_range.at[0, 1].set(x[2]))
        target = optimize.Target(model.site("tip"), jnp.concatenate([x[:2], jnp.zeros(1)]))
        qpos = optimize.ik(ranged, state, [target], settings=optimize.Ik(attempts=1, tolerance=1e-9)).qpos
        return qpos, qpos

    # beyond the range of the first joint, the second one turns towards the target
    x, step = jnp.array([0.5, 1.9, 0.5]), 1e-4
    both = jax.jit(jax.jacfwd(solution, has_aux=True))
    slopes, found = both(x)
    arm = np.asarray(x[:2]) - [np.cos(0.5), np.sin(0.5)]
    np.testing.assert_allclose(found, [0.5, np.arctan2(arm[1], arm[0]) - 0.5], atol=1e-4)
    # the held joint goes with its range only
    np.testing.assert_allclose(slopes[0], [0, 0, 1], atol=1e-12)
    np.testing.assert_allclose(slopes[1, :2], np.array([-arm[1], arm[0]]) / (arm @ arm), rtol=1e-3)
    ends = [both(x.at[2].add(way))[1][1] for way in (step, -step)]
    np.testing.assert_allclose(slopes[1, 2], (ends[0] - ends[1]) / (2 * step), rtol=1e-2)


def test_wrong_targets_are_refused() -> None:
    model, state, _ = loaded("ur5")
    tip = model.site("tip")
    for targets, message in (
        ([], "no targets"),
        ([optimize.Target(tip)], "target 0 has neither pos nor quat"),
        ([optimize.Target(tip, np.zeros((5, 3)))], r"pos of target 0 has shape \(5, 3\); batch with jax.vmap"),
        ([optimize.Target(model.joint("joint1"), np.zeros(3))], "a view of a joint"),
        ([optimize.Target("tip", np.zeros(3))], "a str"),  # type: ignore[arg-type]
    ):
        with pytest.raises(ArgumentError, match=message):
            optimize.ik(model, state, targets)
    with pytest.raises(KeyError, match="joint9"):
        optimize.ik(model, state, [optimize.Target(tip, np.zeros(3))], joints=["joint9"])

"""Sleeping trees beside the oracle: who sleeps when, what wakes whom, what sensors show; in a batch; gradients."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle import load_oracle, mujoco

import diffsim
from diffsim import MjcfError
from diffsim.base.enums import EnableBit, SleepPolicy
from tests.uncompiled import uncompiled

# each tree does one thing: falls and rests, runs into another, hangs on mocap, on a tendon, on an equality, is driven
SCENE = """<mujoco><option timestep=".005" sleep_tolerance="1e-3"><flag sleep="enable"/></option>
<default><geom contype="0" conaffinity="0" size=".1"/><joint damping="4"/></default>
<worldbody>
  <geom name="floor" type="plane" size="9 9 1" contype="1" conaffinity="1"/>
  <body name="rests" pos="0 0 .101"><joint type="slide" axis="0 0 1"/><joint type="slide" axis="1 0 0"/>
    <geom name="rests" contype="1" conaffinity="1"/><site name="rests" size=".11"/></body>
  <body name="runs" pos="-1 0 .1"><joint name="runs" type="slide" axis="1 0 0" damping=".4"/>
    <geom name="runs" contype="1" conaffinity="1"/></body>
  <body name="hand" mocap="true" pos="0 2 1"><body name="held"><joint name="held"/><geom pos=".2 0 0"/></body></body>
  <body name="hangs" pos="2 0 1" sleep="init"><joint name="hangs" type="slide" axis="1 0 0"/><geom/>
    <site name="hangs"/></body>
  <body name="pulls" pos="3 0 1"><joint name="pulls" type="slide" axis="1 0 0"/><geom/><site name="pulls"/></body>
  <body name="left" pos="4 0 1"><joint name="left" type="slide" axis="1 0 0"/><geom/></body>
  <body name="right" pos="5 0 1"><joint name="right" type="slide" axis="1 0 0"/><geom/></body>
  <body name="driven" pos="6 0 1"><joint name="driven" type="slide"/><geom/></body>
  <body name="idle" pos="7 0 1" sleep="allowed"><joint name="idle" type="slide" axis="0 1 0"/><geom/></body>
  <body name="restless" pos="8 0 1" sleep="never"><joint name="restless" type="slide" axis="0 1 0"/><geom/></body>
</worldbody>
<tendon><spatial name="rope" range="0 1.1"><site site="hangs"/><site site="pulls"/></spatial></tendon>
<equality><joint name="tie" joint1="left" joint2="right" active="false"/></equality>
<actuator><motor joint="driven"/><motor name="idle" joint="idle"/></actuator>
<sensor><touch site="rests"/><accelerometer site="rests"/><jointvel joint="runs"/><framelinvel objtype="body"
  objname="rests"/><framepos objtype="body" objname="rests" reftype="body" refname="runs"/><clock/>
  <tendonpos tendon="rope"/><actuatorfrc actuator="idle"/><jointpos joint="restless"/>
  <contact geom1="rests" geom2="floor" data="found force" num="1"/></sensor></mujoco>"""
STEPS = 240


@functools.cache
def pair() -> tuple[diffsim.Model, mujoco.MjModel]:
    return diffsim.load(SCENE), load_oracle(SCENE)


@functools.cache
def stepper():
    return jax.jit(diffsim.step_data)


def act(at: int, model: diffsim.Model, state, inputs, mjmodel: mujoco.MjModel, data: mujoco.MjData):
    """What the user does before a step, to both."""
    dof = {name: mjmodel.joint(name).dofadr[0] for name in ("runs", "pulls", "left", "idle")}
    if at == 60:
        data.qvel[dof["runs"]] = 3
        state = state.replace(qvel=state.qvel.at[dof["runs"]].set(3))
    if at == 80:
        data.mocap_pos[0, 2] = 1.25
        inputs = inputs.replace(mocap_pos=jnp.asarray(data.mocap_pos))
    if at == 90:
        data.qfrc_applied[dof["pulls"]] = 9
        inputs = inputs.replace(qfrc_applied=jnp.asarray(data.qfrc_applied))
    if at == 100:
        data.eq_active[0] = 1
        data.qpos[dof["left"]] += 0.1
        inputs = inputs.replace(eq_active=jnp.asarray(data.eq_active != 0))
        state = state.replace(qpos=state.qpos.at[dof["left"]].add(0.1))
    if at == 120:
        data.qfrc_applied[:] = 0
        data.xfrc_applied[mjmodel.body("idle").id, 1] = 0.5
        inputs = inputs.replace(qfrc_applied=jnp.zeros(model.nv), xfrc_applied=jnp.asarray(data.xfrc_applied))
    if at == 125:
        data.xfrc_applied[:] = 0
        inputs = inputs.replace(xfrc_applied=jnp.zeros((model.nbody, 6)))
    return state, inputs


def test_the_same_trees_sleep_at_the_same_steps() -> None:
    model, mjmodel = pair()
    data, state, inputs = mujoco.MjData(mjmodel), diffsim.make_state(model), diffsim.make_inputs(model)
    seen = set()
    for at in range(STEPS):
        state, inputs = act(at, model, state, inputs, mjmodel, data)
        before = state
        state, ours = stepper()(model, state, inputs)
        mujoco.mj_step(mjmodel, data)
        np.testing.assert_array_equal(state.tree_asleep, data.tree_asleep, f"step {at}")
        for name in ("qpos", "qvel"):
            np.testing.assert_allclose(getattr(state, name), getattr(data, name), rtol=0, atol=1e-9, err_msg=f"{at}")
        np.testing.assert_array_equal(state.tree_awake, data.tree_awake)
        still = np.asarray(~state.tree_awake)[model.dof_treeid]
        assert np.all(np.asarray(state.qvel)[still] == 0)
        seen.add(tuple(state.tree_awake.tolist()))
        before_and_after = np.asarray(ours.tree_asleep >= 0)[model.dof_treeid] & still
        assert np.array_equal(before.qpos[before_and_after], state.qpos[before_and_after])
        assert np.all(np.asarray(ours.qacc)[before_and_after] == 0)
    assert len(seen) > 10


def test_sensors_of_what_sleeps_show_what_they_read() -> None:
    model, mjmodel = pair()
    data, state, inputs = mujoco.MjData(mjmodel), diffsim.make_state(model), diffsim.make_inputs(model)
    for at in range(150):
        state, inputs = act(at, model, state, inputs, mjmodel, data)
        state, ours = stepper()(model, state, inputs)
        # in the step in which a tree falls asleep the oracle reads again, for the steps to come
        mujoco.mj_forward(mjmodel, data)
        np.testing.assert_allclose(ours.sensordata, data.sensordata, rtol=1e-6, atol=1e-6, err_msg=f"{at}")
        mujoco.mj_step(mjmodel, data)
    assert data.sensor(0).data[0] > 0


def worlds(model: diffsim.Model):
    """Three: as the model begins, with a push of one body, and one where all but what never sleeps is asleep."""
    one = diffsim.make_state(model)
    pushed = one.replace(qvel=one.qvel.at[2].set(2.0))
    itself = jnp.arange(model.ntree)
    busy = np.isin(model.tree_sleep_policy, (SleepPolicy.NEVER, SleepPolicy.AUTO_NEVER))
    asleep = one.replace(tree_asleep=jnp.where(busy, one.tree_asleep, itself))
    return [one, pushed, asleep]


def test_worlds_of_a_batch_sleep_apart() -> None:
    model, _ = pair()
    start, inputs = worlds(model), diffsim.make_inputs(model)
    batch = jax.tree.map(lambda *leaves: jnp.stack(leaves), *start)
    advance = uncompiled(jax.vmap(diffsim.step, in_axes=(None, 0, None)))
    singles = start
    for _ in range(40):
        batch = advance(model, batch, inputs)
        singles = [stepper()(model, state, inputs)[0] for state in singles]
    together = jax.tree.map(lambda *leaves: jnp.stack(leaves), *singles)
    for name in ("tree_asleep", "qpos", "qvel", "qacc_warmstart", "frozen", "time"):
        np.testing.assert_allclose(getattr(batch, name), getattr(together, name), rtol=0, atol=1e-11, err_msg=name)
    assert len({tuple(row) for row in np.asarray(batch.tree_awake).tolist()}) > 1


LONE = """<mujoco><option><flag sleep="enable" gravity="disable"/></option><worldbody>
  <body pos="0 0 1" sleep="{policy}"><joint type="slide"/><geom size=".1"/></body>
  <body pos="1 0 1"><joint name="other" type="slide"/><geom size=".1"/></body></worldbody>
  <sensor><jointpos joint="other"/></sensor></mujoco>"""


def test_where_all_sleep_only_time_goes_on() -> None:
    model = diffsim.load(LONE.format(policy="init"))
    state = diffsim.make_state(model)
    asleep = state.replace(tree_asleep=jnp.arange(2))
    batch = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), asleep)
    mixed = jax.tree.map(lambda *leaves: jnp.stack(leaves), asleep, state)
    advance = uncompiled(jax.vmap(diffsim.step, in_axes=(None, 0)))
    later = advance(model, batch)
    assert np.all(later.time == model.opt.timestep)
    for name in ("qpos", "qvel", "tree_sleep", "frozen", "qacc_warmstart"):
        np.testing.assert_array_equal(getattr(later, name), getattr(batch, name), name)
    # the same as where one world of the batch is awake
    np.testing.assert_array_equal(advance(model, mixed).frozen[0], later.frozen[0])


def test_fewer_pairs_are_awake_than_are_examined() -> None:
    """What is no pair (a geom and itself, in a table of all) was taken for the plane and a box, seen as two boxes."""
    body = '<body pos="{0} 0 .099"{1}><freejoint/><geom type="box" size=".1 .1 .1"/></body>'
    boxes = "".join(body.format(k, ' sleep="init"' if k else "") for k in range(5))
    option = '<option><flag sleep="enable"/></option>'
    text = f'<mujoco>{option}<worldbody><geom type="plane" size="9 9 .1"/>{boxes}</worldbody></mujoco>'
    model, mjmodel = diffsim.load(text, max_pairs=8, max_contacts=24), load_oracle(text)
    data = mujoco.MjData(mjmodel)
    mujoco.mj_forward(mjmodel, data)
    ours = uncompiled(diffsim.forward)(model, diffsim.make_state(model)).contact
    near = np.flatnonzero((ours.geom[:, 0] >= 0) & (ours.dist < ours.margin))
    np.testing.assert_array_equal(ours.geom[near], data.contact.geom)
    np.testing.assert_allclose(ours.dist[near], data.contact.dist, atol=1e-12)


def test_rollouts_of_what_sleeps() -> None:
    model = diffsim.load(LONE.format(policy="init"))
    roll = uncompiled(lambda state: diffsim.rollout(model, state, jnp.zeros((3, 0)), lambda _, data: data.sensordata))
    asleep = diffsim.make_state(model).replace(tree_asleep=np.arange(2), frozen=np.arange(3.0))
    quiet = roll(asleep.replace(frozen=asleep.frozen.at[:2].set(0)))
    assert quiet.status == 0 and np.all(quiet.readouts == 2) and quiet.final.tree_asleep.tolist() == [0, 1]
    moving = roll(asleep.replace(qvel=np.array([0, 1.0]), frozen=np.zeros(3)))
    assert moving.final.tree_awake.tolist() == [False, True] and moving.final.qpos[1] == pytest.approx(3 * 0.002)


def test_gradients_of_what_is_awake_are_those_without_sleep() -> None:
    model = diffsim.load(LONE.format(policy="init").split("<sensor>")[0] + "</mujoco>")
    state = diffsim.make_state(model)

    def end(model, qpos, qvel, force):
        state = diffsim.make_state(model).replace(qpos=qpos, qvel=qvel)
        later = diffsim.step(model, state, diffsim.make_inputs(model).replace(qfrc_applied=force))
        return jnp.concatenate([later.qpos, later.qvel])

    @uncompiled
    def jacobians(model, *at):
        return [derivative(end, argnums=(1, 2, 3))(model, *at) for derivative in (jax.jacfwd, jax.jacrev)]

    at = state.qpos, jnp.asarray([0.0, 0.3]), jnp.zeros(2)
    plain = jacobians(model.replace(opt=model.opt.replace(enableflags=0)), *at)
    awake, place = np.array([1, 3]), np.array([0, 2])
    for ours, other in zip(jacobians(model, *at), plain, strict=True):
        for own, without in zip(ours, other, strict=True):
            np.testing.assert_allclose(own[awake], without[awake], rtol=1e-12, atol=1e-14)
        # of what sleeps the position is itself, all else is zero
        np.testing.assert_array_equal(ours[0][place], [[1, 0], [0, 0]])
        assert not np.any(ours[1][place]) and not np.any(ours[2][place])


def test_the_flag_may_be_set_and_cleared_later() -> None:
    model = diffsim.load(LONE.format(policy="auto").replace('sleep="enable"', 'sleep="disable"'))
    assert diffsim.make_state(model).tree_asleep.shape == (0,)
    on = model.replace(opt=model.opt.replace(enableflags=int(EnableBit.SLEEP)))
    assert diffsim.make_state(on).tree_asleep.tolist() == [-11, -11]
    with pytest.raises(ValueError, match="tree_sleep"):
        diffsim.step(on, diffsim.make_state(model))


def test_saved_states_know_who_sleeps(tmp_path) -> None:
    state = diffsim.make_state(pair()[0])
    state.save(tmp_path / "state.npz")
    found = diffsim.State.load(tmp_path / "state.npz")
    np.testing.assert_array_equal(found.tree_asleep, state.tree_asleep)
    np.testing.assert_array_equal(found.frozen, state.frozen)


BALL = '<geom size=".1"/><site name="{0}"/>'


def tree(name: str, more: str = "") -> str:
    return f'<body name="{name}" pos="0 0 {len(name)}" {more}><joint name="{name}"/>{BALL.format(name)}</body>'


def rope(names: str, more: str = "") -> str:
    sites = "".join(f'<site site="{name}"/>' for name in names.split())
    return f"<tendon><spatial {more}>{sites}</spatial></tendon>"


POLICIES = {
    "driven": tree("a") + tree("bb") + '|<actuator><motor joint="a"/></actuator>',
    "told": tree("a", 'sleep="allowed"') + tree("bb", 'sleep="never"') + '|<actuator><motor joint="a"/></actuator>',
    "rope": tree("a") + tree("bb") + "|" + rope("a bb"),
    "spring": tree("a") + tree("bb") + tree("ccc") + "|" + rope("a bb", 'stiffness="1"'),
    "three": tree("a") + tree("bb") + tree("ccc") + "|" + rope("a bb ccc"),
}


@pytest.mark.parametrize("name", POLICIES)
def test_policies_are_those_of_the_oracle(name: str) -> None:
    body, rest = POLICIES[name].split("|")
    text = f"<mujoco><worldbody>{body}</worldbody>{rest}</mujoco>"
    ours, theirs = diffsim.load(text).topology, load_oracle(text)
    for field in ("tree_sleep_policy", "tree_bodyadr", "tree_bodynum", "tree_dofadr", "tree_dofnum", "tendon_treenum"):
        np.testing.assert_array_equal(getattr(ours, field), getattr(theirs, field), field)
    np.testing.assert_array_equal(ours.tendon_treeid, theirs.tendon_treeid.reshape(-1, 2))


TOUCHING = '<geom type="plane" size="1 1 1"/><body name="low" pos="0 0 .099" sleep="init"><freejoint/><geom size=".1"/>'
WRONG = {
    "branch": ('<body><joint/><geom size="1"/><body sleep="never"><joint/><geom size="1"/></body></body>', "root"),
    "static": ('<body sleep="allowed"><geom size="1"/></body>', "root"),
    "three": (tree("a", 'sleep="allowed"') + tree("bb") + tree("ccc") + "|" + rope("a bb ccc"), "more than two"),
    "spring": (tree("a", 'sleep="init"') + tree("bb") + "|" + rope("a bb", 'damping="1"'), "stiffness or damping"),
    "awake": (TOUCHING + '</body><body pos="0 0 .29"><freejoint/><geom size=".1"/></body>', "this one cannot"),
}


@pytest.mark.parametrize("name", WRONG)
def test_policies_that_cannot_be_are_refused(name: str) -> None:
    body, _, rest = WRONG[name][0].partition("|")
    flag = '<option><flag sleep="enable"/></option>'
    text = f"<mujoco>{flag}<worldbody>{body}</worldbody>{rest}</mujoco>"
    with pytest.raises((ValueError, mujoco.FatalError)):
        mujoco.MjModel.from_xml_string(text)
    with pytest.raises(MjcfError, match=WRONG[name][1]):
        diffsim.load(text)


def test_equalities_that_cannot_wake_are_refused() -> None:
    fixed = "".join(f'<fixed name="{name}"><joint joint="{name}" coef="1"/></fixed>' for name in ("a", "bb"))
    text = (
        f'<mujoco><option><flag sleep="enable"/></option><worldbody>{tree("a")}{tree("bb")}</worldbody>'
        f'<tendon>{fixed}</tendon><equality><tendon tendon1="a" tendon2="bb"/></equality></mujoco>'
    )
    with pytest.raises(diffsim.UnsupportedError, match="does not support equalities"):
        diffsim.load(text)

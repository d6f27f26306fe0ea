"""Views of named objects: their fields, their parts of records, changed copies, and errors that list near matches."""

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from uncompiled import uncompiled

import diffsim
from diffsim.types.kinds import KINDS
from diffsim.types.views import View, fields_of

MODEL = """
<mujoco>
  <asset>
    <material name="steel" rgba="1 0 0 1"/>
    <mesh name="wedge" vertex="0 0 0 1 0 0 0 1 0 0 0 1"/>
    <mesh name="block" vertex="0 0 0 1 0 0 0 1 0 0 0 1 1 1 1"/>
  </asset>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 1"/>
    <light name="sun" pos="0 0 3"/>
    <camera name="eye" pos="0 -3 1"/>
    <body name="base" pos="0 0 1">
      <freejoint name="root"/>
      <geom name="hull" size="0.1"/>
      <body name="arm" pos="0.2 0 0">
        <joint name="shoulder" axis="0 1 0" range="-1 1" damping="0.3"/>
        <geom name="upper" type="capsule" fromto="0 0 0 0.3 0 0" size="0.03" friction="0.7"/>
        <body name="hand" pos="0.3 0 0">
          <joint name="twist" type="ball"/>
          <geom name="palm" size="0.05" pos="0.1 0 0"/>
          <site name="tip"/>
        </body>
      </body>
    </body>
    <body name="target" mocap="true" pos="1 2 3"/>
    <body name="goal" mocap="true" pos="4 5 6"/>
  </worldbody>
  <tendon><fixed name="cable"><joint joint="shoulder" coef="2"/></fixed></tendon>
  <actuator>
    <motor name="drive" joint="shoulder"/>
    <general name="slow" joint="shoulder" dyntype="integrator" actlimited="true" actrange="-1 1"/>
  </actuator>
  <sensor><gyro name="gyro" site="tip"/><jointpos name="angle" joint="shoulder"/></sensor>
  <custom><numeric name="limits" data="1 2 3"/><text name="note" data="hi"/></custom>
  <keyframe><key name="bent" qpos="0 0 1 1 0 0 0 0.5 1 0 0 0"/></keyframe>
</mujoco>
"""


@pytest.fixture(scope="module")
def model() -> diffsim.Model:
    return diffsim.load(MODEL)


@pytest.fixture(scope="module")
def data(model: diffsim.Model) -> diffsim.Data:
    return uncompiled(diffsim.forward)(model, diffsim.make_state(model, "bent"))


def test_every_kind_of_the_table_has_its_method_and_fields_of_its_own(model: diffsim.Model) -> None:
    for kind, row in KINDS.items():
        for index in range(getattr(model.topology, row.size)):
            view = getattr(model, kind)(index)
            assert (view.kind, view.id, view.name) == (kind, index, model.name(kind, index))
            for field in fields_of(kind).values():
                if field.owner is diffsim.Model:
                    part, whole = getattr(view, field.name), getattr(model, field.name)
                    assert part.shape[part.ndim - whole.ndim + 1 :] == whole.shape[1:]
            assert repr(view).startswith(f"{kind} {index} {view.name!r}")


def test_fields_are_those_of_the_oracles_views(model: diffsim.Model) -> None:
    theirs = oracle.load_oracle(MODEL)
    pairs = {
        "body": "body", "joint": "joint", "geom": "geom", "site": "site", "camera": "cam", "light": "light",
        "mesh": "mesh", "material": "mat", "tendon": "tendon", "actuator": "actuator", "sensor": "sensor",
        "key": "key", "numeric": "numeric",
    }  # fmt: skip
    compared = 0
    for kind, name in pairs.items():
        for index in range(getattr(model.topology, KINDS[kind].size)):
            ours, view = getattr(model, kind)(index), getattr(theirs, name)(index)
            words = [word for word in fields_of(kind) if hasattr(view, word) and word not in OTHERWISE]
            compared += len(words)
            for word in words:
                value = getattr(ours, word)
                if not callable(value):
                    expected = np.asarray(getattr(view, word)).ravel()
                    np.testing.assert_allclose(np.ravel(np.asarray(value)), expected, atol=1e-6, err_msg=word)
    assert compared > 300


# the oracle shows another field under this name, or rounds it
OTHERWISE = {"rbound", "aabb", "sameframe", "simple", "J", "bodyid"}


def test_integers_of_the_topology_are_fields_of_the_model(model: diffsim.Model) -> None:
    np.testing.assert_array_equal(model.jnt_qposadr, [0, 7, 8])
    assert model.nsensor == 2 and model.ntendon == 1
    with pytest.raises(AttributeError, match="no field 'jnt_qposadrr'; did you mean 'jnt_qposadr'"):
        _ = model.jnt_qposadrr


def test_views_read_their_parts_of_records_and_of_batches(model: diffsim.Model, data: diffsim.Data) -> None:
    state, inputs = diffsim.make_state(model, "bent"), diffsim.make_inputs(model)
    np.testing.assert_array_equal(model.joint("twist").qpos(state), [1, 0, 0, 0])
    np.testing.assert_array_equal(model.joint("shoulder").qpos(state), [0.5])
    assert model.joint("root").qvel(state).shape == (6,)
    np.testing.assert_array_equal(model.body("goal").mocap_pos(inputs), [4, 5, 6])
    np.testing.assert_array_equal(model.body("arm").xpos(data), data.xpos[2])
    np.testing.assert_array_equal(model.site("tip").xpos(data), data.site_xpos[0])
    np.testing.assert_allclose(model.tendon("cable").length(data), 1.0)
    assert model.actuator("slow").act(state).shape == (1,) and model.actuator("drive").act(state).shape == (0,)
    np.testing.assert_array_equal(diffsim.sensor(model, data, "angle"), [0.5])
    assert diffsim.sensor(model, data, "gyro").shape == (3,)
    batch = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf, leaf]), data)
    assert diffsim.sensor(model, batch, "gyro").shape == (3, 3)
    assert model.geom("upper").xmat(batch).shape == (3, 3, 3)


def test_changed_copies(model: diffsim.Model) -> None:
    state, inputs = diffsim.make_state(model), diffsim.make_inputs(model)
    turned = model.set_qpos(state, {"shoulder": 0.3, "twist": [0, 1, 0, 0], 0: jnp.arange(7.0)})
    np.testing.assert_allclose(turned.qpos, [0, 1, 2, 3, 4, 5, 6, 0.3, 0, 1, 0, 0])
    np.testing.assert_array_equal(model.set_qvel(state, {"shoulder": 2}).qvel, np.eye(10)[6] * 2)
    np.testing.assert_array_equal(model.set_ctrl(inputs, {"drive": -1}).ctrl, [-1, 0])
    moved = model.body("goal").write(inputs, mocap_pos=[7, 8, 9])
    np.testing.assert_array_equal(moved.mocap_pos, [[1, 2, 3], [7, 8, 9]])
    heavier = model.body("arm").replace(mass=3.0, inertia=[1, 2, 3])
    assert float(heavier.body_mass[2]) == 3 and float(heavier.body_mass[1]) == float(model.body_mass[1])
    np.testing.assert_array_equal(model.set_qpos(state, {}).qpos, state.qpos)
    with pytest.raises(ValueError, match=r"qpos of joint 'twist': expected shape \(4,\), got \(\)"):
        model.set_qpos(state, {"twist": 1.0})
    # of a batch, and by the derivative
    states = jax.vmap(lambda angle: model.set_qpos(state, {"shoulder": angle}))(jnp.arange(3.0))
    np.testing.assert_array_equal(model.joint("shoulder").qpos(states), [[0], [1], [2]])
    again = model.set_qpos(states, {"shoulder": jnp.array([[4.0], [5.0], [6.0]])})
    np.testing.assert_array_equal(model.joint("shoulder").qpos(again), [[4], [5], [6]])
    slope = jax.jacrev(lambda angle: model.set_qpos(state, {"shoulder": angle}).qpos)(0.2)
    np.testing.assert_array_equal(slope, np.eye(12)[7])


WRONG = {
    "name": (lambda m, d: m.joint("shouldr"), KeyError, "did you mean 'shoulder'"),
    "few names": (lambda m, d: m.actuator("x"), KeyError, "expected one of: drive, slow"),
    "index": (lambda m, d: m.geom(7), IndexError, "geom 7 does not exist: the model has 4"),
    "field": (lambda m, d: m.joint("root").damp, AttributeError, "did you mean 'damping'"),
    "record": (lambda m, d: m.joint("root").qpos(d), TypeError, "qpos is a field of State, not of Data"),
    "mocap": (lambda m, d: m.body("arm").mocap_pos(diffsim.make_inputs(m)), ValueError, "body_mocapid is -1"),
    "shape": (lambda m, d: m.set_qpos(diffsim.make_state(m), {"twist": [1, 0]}), ValueError, r"\(4,\), got \(2,\)"),
    "sensor": (lambda m, d: diffsim.sensor(m, d, "giro"), KeyError, "did you mean 'gyro'"),
    "force": (lambda m, d: diffsim.support.geom_force(m, d, "flor"), KeyError, "did you mean 'floor'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_errors_list_near_matches(case: str, model: diffsim.Model, data: diffsim.Data) -> None:
    call, error, message = WRONG[case]
    with pytest.raises(error, match=message):
        call(model, data)


def test_the_spec_lists_its_elements() -> None:
    spec = diffsim.mjcf.read(MODEL)
    assert [body.name for body in spec.bodies[1:]] == ["base", "arm", "hand", "target", "goal"]
    assert [joint.name for joint in spec.joints] == ["root", "shoulder", "twist"]
    counts = [len(getattr(spec, kind)) for kind in ("geoms", "sites", "cameras", "lights", "meshes")]
    assert counts == [4, 1, 1, 1, 2]


def test_views_are_light(model: diffsim.Model) -> None:
    assert not hasattr(View(model, "body", 0), "__dict__")
    assert "mass" in dir(model.body(0)) and "xpos" in dir(model.body(0))

"""diffsim.mjx: MJX's functions against C MuJoCo, each stage fed with MuJoCo's own inputs; and MJX's ways with data."""

import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from uncompiled import uncompiled

from diffsim import mjx
from diffsim.base.errors import UnsupportedError

XML = """
<mujoco>
  <option timestep="0.005" integrator="implicitfast"/>
  <worldbody>
    <geom name="floor" type="plane" size="1 1 1"/>
    <body name="base" pos="0 0 0.09">
      <freejoint/>
      <geom name="ball" size="0.1"/>
      <site name="tip" pos="0.1 0 0"/>
      <site name="side" pos="0 0.2 0"/>
      <body name="arm" pos="0.1 0 0.05">
        <joint name="elbow" axis="0 1 0" damping="0.1" range="-10 20" limited="true" frictionloss="0.05"/>
        <geom type="capsule" size="0.02" fromto="0 0 0 0.2 0 0"/>
      </body>
    </body>
    <body name="target" mocap="true" pos="0 1 0"><site name="far" pos="0 -1.3 0.16"/></body>
  </worldbody>
  <tendon>
    <fixed name="cord"><joint joint="elbow" coef="0.5"/></fixed>
    <spatial><site site="side"/><geom geom="ball"/><site site="far"/></spatial>
  </tendon>
  <actuator><motor joint="elbow" gear="2"/><position tendon="cord" kp="3"/></actuator>
  <sensor><framepos objtype="site" objname="tip"/><gyro site="tip"/><accelerometer site="tip"/>
    <touch site="tip"/></sensor>
</mujoco>
"""
# of each stage: what it must give
STAGES = {
    "kinematics": ("xpos", "xquat", "xmat", "geom_xmat", "site_xpos", "xanchor", "xaxis"),
    "com_pos": ("subtree_com", "cinert", "cdof"),
    "camlight": ("cam_xpos",),
    "crb": ("crb", "qM"),
    "tendon": ("ten_length", "ten_J", "ten_wrapnum", "ten_wrapadr", "wrap_obj", "wrap_xpos"),
    "transmission": ("actuator_length", "actuator_moment"),
    "com_vel": ("cvel", "cdof_dot", "ten_velocity", "actuator_velocity"),
    "passive": ("qfrc_passive",),
    "rne": ("qfrc_bias",),
    "fwd_velocity": ("qfrc_bias", "qfrc_passive"),
    "fwd_actuation": ("actuator_force", "qfrc_actuator"),
    "fwd_acceleration": ("qfrc_smooth", "qacc_smooth"),
    "solve": ("qacc", "qfrc_constraint"),
    "rne_postconstraint": ("cacc", "cfrc_int", "cfrc_ext"),
    "subtree_vel": ("subtree_linvel", "subtree_angmom"),
}


@pytest.fixture(scope="module")
def world() -> tuple:
    spec = mujoco.MjSpec.from_string(XML)
    mjmodel = spec.compile()
    mjdata = mujoco.MjData(mjmodel)
    mjdata.ctrl[:], mjdata.xfrc_applied[1, 1] = (0.3, -0.2), 0.5
    mujoco.mj_step(mjmodel, mjdata, 5)
    mujoco.mj_forward(mjmodel, mjdata)
    mujoco.mj_subtreeVel(mjmodel, mjdata)
    mujoco.mj_rnePostConstraint(mjmodel, mjdata)
    return spec, mjmodel, mjdata, mjx.put_model(mjmodel), mjx.put_data(mjmodel, mjdata)


def expected(mjmodel: mujoco.MjModel, mjdata: mujoco.MjData, name: str) -> np.ndarray:
    """A field of mjData, dense."""
    if name == "qM":
        dense = np.zeros((mjmodel.nv, mjmodel.nv))
        mujoco.mju_sym2dense(dense, mjdata.M, mjmodel.M_rownnz, mjmodel.M_rowadr, mjmodel.M_colind)
        return dense
    sparse = {
        "ten_J": (mjmodel.ntendon, mjmodel.ten_J_rownnz, mjmodel.ten_J_rowadr, mjmodel.ten_J_colind),
        "actuator_moment": (mjmodel.nu, mjdata.moment_rownnz, mjdata.moment_rowadr, mjdata.moment_colind),
    }
    if name not in sparse:
        return getattr(mjdata, name)
    rows, *structure = sparse[name]
    dense = np.zeros((rows, mjmodel.nv))
    mujoco.mju_sparse2dense(dense, getattr(mjdata, name), *structure)
    return dense


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_fed_with_mujocos_data_gives_mujocos_results(world: tuple, stage: str) -> None:
    _, mjmodel, mjdata, model, data = world
    blank = data.replace(**{name: getattr(data, name) * 0 + 1 for name in STAGES[stage] if name != "qM"})
    if stage == "solve":
        blank = data.replace(qacc=data.qacc * 0, qacc_warmstart=data.qacc)
    result = uncompiled(getattr(mjx, stage))(model, data if stage == "rne_postconstraint" else blank)
    for name in STAGES[stage]:
        want = expected(mjmodel, mjdata, name)
        np.testing.assert_allclose(np.reshape(getattr(result, name), want.shape), want, atol=1e-9, err_msg=name)


def test_sensors_by_their_stages(world: tuple) -> None:
    _, _, mjdata, model, data = world
    data = data.replace(sensordata=data.sensordata * 0)
    for stage in (mjx.sensor_pos, mjx.sensor_vel, mjx.sensor_acc):
        data = uncompiled(stage)(model, data)
    np.testing.assert_allclose(data.sensordata, mjdata.sensordata, atol=1e-7)


def test_contacts_and_rows(world: tuple) -> None:
    _, _, mjdata, model, data = world
    data = uncompiled(lambda m, d: mjx.make_constraint(m, mjx.collision(m, d)))(model, data)
    active = np.flatnonzero(data.contact.dist < data.contact.includemargin)
    assert list(data.contact.dim[active]) == list(mjdata.contact.dim)
    np.testing.assert_allclose(data.contact.pos[active], mjdata.contact.pos, atol=1e-12)
    rows = np.flatnonzero(np.any(data.efc_J != 0, axis=1))
    assert data.nefc == data.ne + data.nf + data.nl + sum(data.contact.dim * 2 - 2) == len(data.efc_type)
    for name in ("efc_J", "efc_D", "efc_aref", "efc_pos", "efc_frictionloss", "efc_force"):
        want = np.reshape(getattr(mjdata, name), getattr(data, name)[rows].shape)
        np.testing.assert_allclose(getattr(data, name)[rows], want, atol=1e-8, rtol=1e-8, err_msg=name)
    assert [data.efc_type[row] >= 5 for row in data.contact.efc_address] == [True] * data.ncon
    # as programs pick some contacts
    first = jax.tree.map(lambda leaf: leaf[active[:1]], data.contact)
    first = first.replace(dim=data.contact.dim[active[:1]], efc_address=data.contact.efc_address[active[:1]])
    assert first.frame.shape == (1, 3, 3) and first.dim == [3] and int(data.ncon_dropped) == 0
    forces = np.arange(data.nefc) + 1.0
    np.testing.assert_array_equal(data.replace(efc_force=forces).efc_force[rows], forces[rows])


def test_forces_are_mujocos_and_not_those_of_rounded_rows(world: tuple) -> None:
    _, mjmodel, mjdata, *_ = world
    other = mujoco.MjData(mjmodel)
    mujoco.mj_copyData(other, mjmodel, mjdata)
    other.efc_force[:] = 3 * other.efc_force
    data = mjx.put_data(mjmodel, other)
    acts = np.any(data.efc_J != 0, axis=1)
    np.testing.assert_array_equal(data.efc_force[acts], other.efc_force)


def test_rows_that_move_nothing_have_forces_too() -> None:
    body = "<body name='b' pos='0 0 1'><joint type='ball'/><geom size='.1' pos='.2 0 0'/></body>"
    mjmodel = mujoco.MjModel.from_xml_string(
        f"<mujoco><worldbody>{body}</worldbody><equality><weld body1='b'/></equality></mujoco>"
    )
    mjdata = mujoco.MjData(mjmodel)
    mujoco.mj_forward(mjmodel, mjdata)
    # the place of the joint does not move: the first three rows of J are zero
    mjdata.efc_force[:] = np.arange(6) + 1.0
    data = mjx.put_data(mjmodel, mjdata)
    np.testing.assert_array_equal(data.efc_force, np.arange(6) + 1.0)
    np.testing.assert_array_equal(mjx.get_data(mjmodel, data).efc_force, mjdata.efc_force)


def test_a_step_leaves_what_mjx_leaves(world: tuple) -> None:
    _, mjmodel, mjdata, model, data = world
    # there and back
    copy = mjx.get_data(mjmodel, data)
    for name in ("qpos", "xpos", "M", "qacc", "efc_force", "efc_J", "efc_aref", "efc_type"):
        np.testing.assert_allclose(getattr(copy, name), getattr(mjdata, name), atol=1e-7, err_msg=name)
    with pytest.raises(ValueError, match=r"Input field .* has shape"):
        mjx.get_data(mujoco.MjModel.from_xml_string("<mujoco/>"), data)
    after = uncompiled(mjx.step)(model, data)
    before = np.array(mjdata.xpos)
    other = mujoco.MjData(mjmodel)
    mujoco.mj_copyData(other, mjmodel, mjdata)
    mujoco.mj_step(mjmodel, other)
    for name in ("qpos", "qvel", "time", "qacc", "sensordata"):
        np.testing.assert_allclose(getattr(after, name), getattr(other, name), atol=1e-7, err_msg=name)
    # computed from the state before
    np.testing.assert_allclose(after.xpos, before, atol=1e-9)
    returned = mjx.get_data(mjmodel, after)
    for name in ("qpos", "xpos", "M", "qM", "qLD", "ten_J", "actuator_moment", "efc_force", "efc_J"):
        np.testing.assert_allclose(getattr(returned, name), getattr(other, name), atol=1e-7, err_msg=name)
    np.testing.assert_allclose(returned.contact.dist, other.contact.dist, atol=1e-9)
    np.testing.assert_array_equal(returned.contact.efc_address, other.contact.efc_address)
    # after a step of MuJoCo too, whose rows are of the state before it
    returned = mjx.get_data(mjmodel, mjx.put_data(mjmodel, other))
    for name in ("qM", "efc_J", "efc_pos", "efc_aref", "efc_D", "efc_force"):
        np.testing.assert_allclose(getattr(returned, name), getattr(other, name), atol=1e-9, rtol=1e-9, err_msg=name)


def test_inverse_of_forward(world: tuple) -> None:
    _, _, mjdata, model, data = world
    result = uncompiled(mjx.inverse)(model, data)
    applied = mjdata.qfrc_applied + mjdata.qfrc_actuator + np.asarray(mjx.xfrc_accumulate(model, data))
    np.testing.assert_allclose(result.qfrc_inverse, applied, atol=1e-7)
    np.testing.assert_array_equal(result.qacc, data.qacc)


def test_derivatives_come_with_it(world: tuple) -> None:
    _, _, _, model, data = world

    def height(ctrl: jax.Array) -> jax.Array:
        return mjx.step(model, data.replace(ctrl=ctrl)).qvel.sum()

    slope = uncompiled(jax.grad(height))(data.ctrl)
    step, moved = 1e-6, uncompiled(height)
    for index, direction in enumerate(np.eye(2)):
        difference = (moved(data.ctrl + step * direction) - moved(data.ctrl - step * direction)) / (2 * step)
        np.testing.assert_allclose(slope[index], difference, rtol=1e-6)


def test_ways_to_change_a_model_and_data(world: tuple) -> None:
    _, _, _, model, data = world
    heavy = model.tree_replace({"opt.timestep": 0.01, "body_mass": 2 * model.body_mass})
    assert isinstance(heavy, mjx.Model) and float(heavy.opt.timestep) == 0.01
    # as domain randomization of Playground names the axes of vmap
    axes = jax.tree.map(lambda _: None, model).tree_replace({"body_mass": 0})
    masses = jnp.stack([model.body_mass, 2 * model.body_mass])
    forces = jax.vmap(lambda m: jnp.sum(m.body_mass), in_axes=(axes,))(model.tree_replace({"body_mass": masses}))
    np.testing.assert_allclose(forces[1], 2 * forces[0])
    assert data._impl.tree_replace({"_impl.contact.dist": 0 * data.contact.dist}).contact.dist.sum() == 0
    assert data.replace(_impl=data.replace(cacc=0 * data.cacc, qpos=0 * data.qpos)).qpos.sum() == data.qpos.sum()
    assert data.replace(eq_active=jnp.zeros(0, bool)).eq_active.shape == (0,)
    np.testing.assert_array_equal(data.tree_replace({"_impl.qM": 2 * data.qM})._impl.qM, 2 * data.qM)
    with pytest.raises(TypeError, match="did you mean"):
        data.replace(qpso=data.qpos)
    # as Playground's trainer keeps a few fields of a film
    kept = mjx.Data(**dict.fromkeys(data.__annotations__)).replace(qpos=data.qpos)
    assert jax.tree.leaves(kept)[0] is data.qpos and len(jax.tree.leaves(kept)) == 1
    batch = jax.vmap(lambda qvel: data.replace(qvel=qvel))(jnp.stack([data.qvel, 2 * data.qvel]))
    np.testing.assert_array_equal(batch[1].qvel, 2 * data.qvel)
    assert batch.efc_J.shape == (2, *data.efc_J.shape)


def test_support(world: tuple) -> None:
    spec, mjmodel, mjdata, model, data = world
    moved, turned = np.zeros((3, mjmodel.nv)), np.zeros((3, mjmodel.nv))
    mujoco.mj_jac(mjmodel, mjdata, moved, turned, mjdata.xpos[2], 2)
    for ours, theirs in zip(mjx.jac(model, data, data.xpos[2], 2), (moved, turned), strict=True):
        np.testing.assert_allclose(ours, theirs.T, atol=1e-9)
    np.testing.assert_allclose(mjx.mul_m(model, data, data.qvel), mjx.full_m(model, data) @ data.qvel, atol=1e-12)
    down = jnp.array([0.0, 0.0, -1.0])
    assert int(mjx.ray(model, data, data.xpos[1], down, bodyexclude=(1,))[1]) == 0
    assert mjx.name2id(model, mujoco.mjtObj.mjOBJ_JOINT, "elbow") == mjx.name2id(mjmodel, 3, "elbow") == 1
    assert mjx.id2name(model, mujoco.mjtObj.mjOBJ_BODY, 2) == "arm" and mjx.id2name(model, 1, 9) is None
    np.testing.assert_allclose(model.bind(spec.bodies).mass, mjmodel.body_mass)
    np.testing.assert_allclose(data.bind(model, spec.joints).qpos, mjdata.qpos)
    assert data.bind(model, spec.actuators[1]).set("ctrl", 0.7).ctrl[1] == 0.7
    with pytest.raises(AttributeError, match="ctrl is not available"):
        _ = data.bind(model, spec.geoms).ctrl
    bits = int(mujoco.mjtState.mjSTATE_INTEGRATION)
    assert mjx.state_size(model, bits) == mujoco.mj_stateSize(mjmodel, bits)
    vector = mjx.get_state(model, data, bits)
    np.testing.assert_array_equal(mjx.set_state(model, mjx.make_data(model), vector, bits).qpos, data.qpos)


def test_rotations_are_those_of_mjx() -> None:
    from mujoco.mjx._src import math as theirs

    from diffsim.mjx import math as ours

    q, p = (
        jnp.array(values) / jnp.linalg.norm(jnp.array(values)) for values in ([0.9, 0.1, -0.3, 0.2], [1.0, 2, 3, 4])
    )
    v, w = jnp.array([0.3, -0.2, 0.9]), jnp.arange(6.0)
    unit = v / jnp.linalg.norm(v)
    cases = {
        "quat_mul": (q, p), "quat_inv": (q,), "quat_to_mat": (q,), "rotate": (v, q), "quat_sub": (q, p),
        "quat_mul_axis": (q, v), "axis_angle_to_quat": (unit, jnp.array([0.7])), "quat_to_axis_angle": (q,),
        "quat_integrate": (q, v, jnp.array(0.1)), "normalize": (v,), "norm": (v,), "normalize_with_norm": (0 * v,),
        "motion_cross": (w, w[::-1]), "motion_cross_force": (w, w[::-1]), "make_frame": (v,), "sign": (v,),
        "transform_motion": (w, v, theirs.quat_to_mat(q)), "inert_mul": (jnp.arange(10.0), w),
        "matmul_unroll": (theirs.quat_to_mat(q), theirs.quat_to_mat(p)), "closest_segment_point": (v, 2 * v, unit),
    }  # fmt: skip
    with jax.numpy_rank_promotion("allow"):
        for name, arguments in cases.items():
            pairs = zip(*(jax.tree.leaves(getattr(of, name)(*arguments)) for of in (ours, theirs)), strict=True)
            for mine, other in pairs:
                assert mine.shape == other.shape, name
                np.testing.assert_allclose(mine, other, atol=1e-6, err_msg=name)


def test_what_is_of_other_implementations(world: tuple) -> None:
    _, mjmodel, *_ = world
    with pytest.raises(ValueError, match="impl"):
        mjx.put_model(mjmodel, impl="warp")
    with pytest.raises(UnsupportedError, match="Warp"):
        _ = mjx.render


def test_a_version_that_diffsim_does_not_know(world: tuple, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mujoco, "__version__", "5.1.0")
    with pytest.raises(UnsupportedError, match=r"from MuJoCo 5\.1\.0.*to_xml.*make_data.*mujoco=\"4\.0\""):
        mjx.put_model(world[1])


def test_where_takes_worlds_of_another_data(world: tuple) -> None:
    first = mjx.make_data(world[1])
    later = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), first.replace(qvel=first.qvel + 1, time=3.0))
    merged = later.where(jnp.array([True, False]), first)
    np.testing.assert_array_equal(merged.time, [0, 3])
    np.testing.assert_array_equal(merged.qvel, jnp.stack([first.qvel, first.qvel + 1]))
    inside = jax.vmap(lambda data, done: data.where(done, first))(later, jnp.array([True, False]))
    for one, two in zip(jax.tree.leaves(merged), jax.tree.leaves(inside), strict=True):
        np.testing.assert_array_equal(one, two)


def test_every_name_of_mjx_is_there() -> None:
    from mujoco import mjx as theirs

    internal = {"Any", "benchmark", "ConvexMesh", "Tuple", "Union"}
    public = {name for name, value in vars(theirs).items() if not name.startswith("_") and callable(value)}
    known = {name for name in public - internal if not name.endswith(("JAX", "CPP", "Warp"))}
    assert known > {"step", "put_model"}
    missing = []
    for name in sorted(known):
        try:
            getattr(mjx, name)
        except UnsupportedError:
            pass
        except AttributeError:
            missing.append(name)
    assert missing == []


def test_install_makes_the_import_mean_it() -> None:
    code = """
        import diffsim.mjx
        diffsim.mjx.install()
        from mujoco import mjx
        from mujoco.mjx._src import math, types
        import mujoco.mjx._src.support
        assert mjx is diffsim.mjx and types.Data is mjx.Data and math.quat_inv and mjx._src.math is math

        class Mine(mjx.Data):
            extra: int

        diffsim.mjx.install()
        # as the settings of MuJoCo Playground's environments have it
        import mujoco
        assert mjx.put_model(mujoco.MjModel.from_xml_string("<mujoco/>"), impl="warp").nv == 0
        """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)
    late = "import mujoco.mjx, diffsim.mjx; diffsim.mjx.install()"
    done = subprocess.run([sys.executable, "-c", late], capture_output=True, text=True)
    assert "has already been imported" in done.stderr

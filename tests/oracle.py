"""The oracle: C MuJoCo 3.8.1, loaded from the same XML, with states sampled and compared by field name.

The only file of the suite that imports mujoco. Each stage is fed the oracle's own inputs, so errors do not mix.
"""

import dataclasses
import functools
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from diffsim.compiler.convert import from_mujoco
from diffsim.load import load
from diffsim.math.linalg import diagonal_of, worthwhile_blocks
from diffsim.types import Inputs, Model, State
from diffsim.types.data import Kinematics

MODELS = pathlib.Path(__file__).parent / "models"
SITE = pathlib.Path(mujoco.__file__).parents[1]


def package_path(path: str) -> pathlib.Path:
    """A model file of an installed package: `package_path("dm_control/suite/hopper.xml")`."""
    return SITE / path


@functools.cache
def load_oracle(path: str) -> mujoco.MjModel:
    """The oracle's model of a file in tests/models (by stem), of an installed package (by path), or of XML text."""
    if path.lstrip().startswith("<"):
        return mujoco.MjModel.from_xml_string(path)
    local = MODELS / f"{path}.xml"
    return mujoco.MjModel.from_xml_path(str(local if local.exists() else package_path(path)))


def load_with_assets(xml: str, assets: dict[str, bytes]) -> mujoco.MjModel:
    """The oracle's model of XML text with files in memory."""
    return mujoco.MjModel.from_xml_string(xml, assets)


def refuses(text: str) -> bool:
    """Whether the oracle refuses a model that is given as XML text."""
    try:
        mujoco.MjModel.from_xml_string(text)
    except (ValueError, RuntimeError, mujoco.FatalError):
        return True
    return False


@functools.cache
def load_pair(path: str) -> tuple[Model, mujoco.MjModel]:
    """(ours, oracle), ours converted from the oracle's compiled model, so that compiler differences play no part."""
    mjmodel = load_oracle(path)
    return from_mujoco(mjmodel), mjmodel


@functools.cache
def converged(path: str) -> tuple[Model, mujoco.MjModel]:
    """(ours by our own compiler, oracle) of a package's file, both solvers run to convergence."""
    file = str(package_path(path))
    settings = {"tolerance": 1e-15, "iterations": 500, "ls_iterations": 200, "ls_tolerance": 1e-6}
    model, mjmodel = load(file), mujoco.MjModel.from_xml_path(file)
    for name, value in settings.items():
        setattr(mjmodel.opt, name, value)
    # a dual solver stops early; its optimum is that of Newton
    mjmodel.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON
    return model.replace(opt=model.opt.replace(**settings)), mjmodel


def sample(mjmodel: mujoco.MjModel, seed: int, speed: float = 1.0, spread: float = 0.3) -> mujoco.MjData:
    """A random state near qpos0 (or the first keyframe), evaluated by `mj_forward`, with random controls and forces."""
    rng = np.random.default_rng(seed)
    data = mujoco.MjData(mjmodel)
    if mjmodel.nkey and seed % 2:
        mujoco.mj_resetDataKeyframe(mjmodel, data, 0)
    mujoco.mj_integratePos(mjmodel, data.qpos, spread * rng.normal(size=mjmodel.nv), 1.0)
    data.qvel[:] = speed * rng.normal(size=mjmodel.nv)
    data.act[:] = rng.uniform(size=mjmodel.na)
    data.ctrl[:] = rng.uniform(-1, 1, size=mjmodel.nu)
    data.qfrc_applied[:] = 0.1 * rng.normal(size=mjmodel.nv)
    data.xfrc_applied[1:] = 0.1 * rng.normal(size=(mjmodel.nbody - 1, 6))
    data.qacc_warmstart[:] = 0
    mujoco.mj_forward(mjmodel, data)
    return data


def posed(mjmodel: mujoco.MjModel, qpos: np.ndarray) -> mujoco.MjData:
    """The position stage at given coordinates, at rest."""
    data = mujoco.MjData(mjmodel)
    data.qpos[:] = qpos
    mujoco.mj_fwdPosition(mjmodel, data)
    return data


def at_rest(mjmodel: mujoco.MjModel) -> mujoco.MjData:
    """Everything at qpos0 and zero velocity."""
    data = mujoco.MjData(mjmodel)
    mujoco.mj_forward(mjmodel, data)
    return data


def state_of(data: mujoco.MjData) -> State:
    """The oracle's state as ours."""
    own = {"tree_sleep": np.zeros(0), "frozen": np.zeros(0)}
    theirs = [f.name for f in dataclasses.fields(State) if f.name not in own]
    return State(**{name: np.array(getattr(data, name), dtype=np.float64) for name in theirs}, **own)


def inputs_of(data: mujoco.MjData) -> Inputs:
    """The oracle's user inputs as ours."""
    names = {f.name: f.name for f in dataclasses.fields(Inputs)} | {"eq_activity": "eq_active"}
    return Inputs(**{name: np.array(getattr(data, theirs), dtype=np.float64) for name, theirs in names.items()})


def record_of(cls: type, mjmodel: mujoco.MjModel, data: mujoco.MjData) -> Any:
    """A record of types/data.py filled with the oracle's values (sparse matrices made dense, matrices (3, 3))."""
    return cls(**{f.name: field_of(f.name, mjmodel, data) for f in dataclasses.fields(cls)})


def poses_of(mjmodel: mujoco.MjModel, states: list[mujoco.MjData]) -> Kinematics:
    """The oracle's poses in several states, stacked."""
    records = [record_of(Kinematics, mjmodel, data) for data in states]
    return jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *records)


def field_of(name: str, mjmodel: mujoco.MjModel, data: mujoco.MjData) -> np.ndarray:
    """One field of mjData in the shape that our records use."""
    if name == "M":
        return diagonal_of(worthwhile_blocks(mjmodel.dof_treeid), field_of("qM", mjmodel, data))
    if name == "qM":
        full = np.zeros((mjmodel.nv, mjmodel.nv))
        mujoco.mj_fullM(mjmodel, full, data.qM)
        return full
    if name == "ten_J":
        return sparse(data.ten_J.ravel(), mjmodel.ten_J_rownnz, mjmodel.ten_J_rowadr, mjmodel.ten_J_colind, mjmodel.nv)
    if name == "actuator_moment":
        return sparse(
            data.actuator_moment.ravel(),
            data.moment_rownnz,
            data.moment_rowadr,
            data.moment_colind,
            mjmodel.nv,
        )
    if name == "qacc_smooth":
        return np.array(data.qacc_smooth)
    value = np.array(getattr(data, name), dtype=np.float64)
    return value.reshape(len(value), 3, 3) if name.endswith("mat") else value


def sparse(values: np.ndarray, rownnz: np.ndarray, rowadr: np.ndarray, colind: np.ndarray, ncol: int) -> np.ndarray:
    """A dense matrix from the oracle's compressed rows."""
    dense = np.zeros((len(rownnz), ncol))
    for row, (count, start) in enumerate(zip(rownnz, rowadr, strict=True)):
        dense[row, colind[start : start + count]] = values[start : start + count]
    return dense


def assert_close(name: str, ours: Any, oracle: np.ndarray, atol: float, rtol: float = 0.0) -> None:
    """Compares one field; the message names it and the worst element."""
    ours = np.asarray(ours)
    assert ours.shape == oracle.shape, f"{name}: shape {ours.shape}, oracle {oracle.shape}"
    error = np.abs(ours - oracle) - rtol * np.abs(oracle)
    if error.size and not np.max(error) <= atol:
        worst = np.unravel_index(np.argmax(np.where(np.isnan(error), np.inf, error)), error.shape)
        raise AssertionError(
            f"{name}{list(map(int, worst))}: ours {ours[worst]!r}, oracle {oracle[worst]!r}, atol {atol}"
        )


def visited_states(mjmodel: mujoco.MjModel, count: int, seed: int = 0, every: int = 40) -> list[mujoco.MjData]:
    """States along a simulation under random controls and forces, where contacts and limits are active, evaluated."""
    rng = np.random.default_rng(seed)
    data = mujoco.MjData(mjmodel)
    if mjmodel.nkey:
        mujoco.mj_resetDataKeyframe(mjmodel, data, 0)
    visited = []
    for _ in range(count):
        for _ in range(every):
            data.ctrl[:] = rng.uniform(-1, 1, size=mjmodel.nu)
            mujoco.mj_step(mjmodel, data)
        copy = mujoco.MjData(mjmodel)
        for name in ("time", "qpos", "qvel", "act", "ctrl", "qacc_warmstart", "mocap_pos", "mocap_quat"):
            setattr(copy, name, getattr(data, name)) if name == "time" else getattr(copy, name).__setitem__(
                slice(None), getattr(data, name)
            )
        copy.qvel[:] += 0.1 * rng.normal(size=mjmodel.nv)
        copy.qfrc_applied[:] = 0.1 * rng.normal(size=mjmodel.nv)
        copy.xfrc_applied[1:] = 0.1 * rng.normal(size=(mjmodel.nbody - 1, 6))
        mujoco.mj_forward(mjmodel, copy)
        visited.append(copy)
    return visited


def assert_same_contacts(contacts: Any, data: mujoco.MjData, atol: float) -> None:
    """The same set of contacts (pair, distance, position, normal), in any order."""
    active = np.flatnonzero(
        (np.asarray(contacts.geom)[:, 0] >= 0) & (np.asarray(contacts.dist) < contacts.includemargin)
    )
    ours = [
        (
            *np.asarray(contacts.geom[i]),
            float(contacts.dist[i]),
            *np.asarray(contacts.pos[i]),
            *np.asarray(contacts.frame[i, 0]),
        )
        for i in active
    ]
    theirs = [(*c.geom, c.dist, *c.pos, *c.frame[:3]) for c in data.contact if c.exclude == 0]
    assert len(ours) == len(theirs), f"{len(ours)} contacts, oracle {len(theirs)}"
    unmatched = list(range(len(theirs)))
    for row in ours:
        same = [k for k in unmatched if tuple(theirs[k][:2]) == tuple(row[:2])]
        assert same, f"contact of geoms {row[:2]} is not the oracle's"
        errors = [np.max(np.abs(np.subtract(row[2:], theirs[k][2:]))) for k in same]
        assert min(errors) <= atol, f"contact of geoms {row[:2]} differs by {min(errors)}"
        unmatched.remove(same[int(np.argmin(errors))])


def with_contacts(mjmodel: mujoco.MjModel, data: mujoco.MjData, contacts: Any) -> mujoco.MjData:
    """The oracle's data of a state evaluated with other contacts in place of those that it finds.

    Args:
      mjmodel, data: the oracle's model, and the state with its inputs.
      contacts: between geoms, a `diffsim.constraint.views.ContactList`.
    """
    copy = mujoco.MjData(mjmodel)
    mujoco.mj_copyData(copy, mjmodel, data)
    flags = mjmodel.opt.disableflags
    mjmodel.opt.disableflags = flags | int(mujoco.mjtDisableBit.mjDSBL_CONTACT)
    mujoco.mj_fwdPosition(mjmodel, copy)
    mjmodel.opt.disableflags = flags
    for k in range(int(contacts.ncon)):
        contact = mujoco.MjContact()
        for name in ("dist", "includemargin", "dim", "exclude"):
            setattr(contact, name, getattr(contacts, name)[k].item())
        for name in ("pos", "frame", "friction", "solref", "solreffriction", "solimp", "geom"):
            getattr(contact, name)[:] = np.asarray(getattr(contacts, name)[k]).ravel()
        contact.flex[:], contact.elem[:], contact.vert[:] = -1, -1, -1
        mujoco.mj_addContact(mjmodel, copy, contact)
    for stage in (mujoco.mj_makeConstraint, mujoco.mj_island, mujoco.mj_projectConstraint, mujoco.mj_sensorPos):
        stage(mjmodel, copy)
    for stage in (mujoco.mj_fwdVelocity, mujoco.mj_sensorVel, mujoco.mj_fwdActuation, mujoco.mj_fwdAcceleration):
        stage(mjmodel, copy)
    # forces between bodies would be left over from before
    for stage in (mujoco.mj_fwdConstraint, mujoco.mj_rnePostConstraint, mujoco.mj_sensorAcc):
        stage(mjmodel, copy)
    return copy


def contact_forces_of(mjmodel: mujoco.MjModel, data: mujoco.MjData) -> np.ndarray:
    """Force and torque of every contact in its own frame, (ncon, 6)."""
    forces = np.zeros((data.ncon, 6))
    for k in range(data.ncon):
        mujoco.mj_contactForce(mjmodel, data, k, forces[k])
    return forces


def constraint_wrenches(mjmodel: mujoco.MjModel, data: mujoco.MjData) -> np.ndarray:
    """(nbody, 6) wrenches of contacts, connects and welds; leaves `cacc`, `cfrc_int`, `cfrc_ext` evaluated."""
    applied = data.xfrc_applied.copy()
    data.xfrc_applied[:] = 0
    mujoco.mj_rnePostConstraint(mjmodel, data)
    wrenches = data.cfrc_ext.copy()
    data.xfrc_applied[:] = applied
    mujoco.mj_rnePostConstraint(mjmodel, data)
    return wrenches


def applied_force(mjmodel: mujoco.MjModel, data: mujoco.MjData) -> np.ndarray:
    """(nv,) qfrc_applied + J^T xfrc_applied."""
    total = data.qfrc_applied.copy()
    for body in range(mjmodel.nbody):
        force, torque = data.xfrc_applied[body, :3], data.xfrc_applied[body, 3:]
        mujoco.mj_applyFT(mjmodel, data, force, torque, data.xipos[body], body, total)
    return total


def stepped(mjmodel: mujoco.MjModel, qvel: np.ndarray, count: int) -> mujoco.MjData:
    """The oracle's data some steps after qpos0 with a velocity."""
    data = mujoco.MjData(mjmodel)
    data.qvel[:] = qvel
    for _ in range(count):
        mujoco.mj_step(mjmodel, data)
    return data


def next_activation(mjmodel: mujoco.MjModel, data: mujoco.MjData) -> np.ndarray:
    """(na,) activations after one Euler step."""
    copy = mujoco.MjData(mjmodel)
    mujoco.mj_copyData(copy, mjmodel, data)
    mujoco.mj_Euler(mjmodel, copy)
    return copy.act


def rays_of(
    mjmodel: mujoco.MjModel,
    data: mujoco.MjData,
    origin: np.ndarray,
    direction: np.ndarray,
    choice: tuple[Any, bool, int] = (None, True, -1),
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distance (k,), geom (k,) and normal (k, 3) of what rays (k, 3) meet.

    choice: geomgroup, flg_static and bodyexclude of mj_ray.
    """
    distance, geom, normal = np.zeros(len(origin)), np.zeros(len(origin), np.int32), np.zeros((len(origin), 3))
    for k in range(len(origin)):
        found = np.zeros(1, np.int32)
        distance[k] = mujoco.mj_ray(mjmodel, data, origin[k], direction[k], *choice, found, normal[k])
        geom[k] = found[0]
    return distance, geom, normal

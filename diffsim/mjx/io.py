"""put_model, make_data, put_data, get_data: convert between MuJoCo and diffsim, with MJX's signatures.

Arguments for other implementations of MJX are accepted:

- `impl` may be "jax" or None. After `install` any value is accepted, since packages choose one in their settings
  (MuJoCo Playground chooses "warp").
- `nconmax`, `naconmax`, `naccdmax` and `njmax`, the sizes of Warp's buffers, are ignored. The contact buffer has the
  size that the model needs (see `diffsim.load`), and `data.ncon_dropped` counts the contacts that do not fit.
"""

import dataclasses
import sys
from collections.abc import Collection
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.compiler.convert import from_mujoco
from diffsim.compiler.host.interpret import run_jaxpr
from diffsim.math.linalg import diagonal_of
from diffsim.mjx.buffers import contacts_from, with_rows, write_constraints
from diffsim.mjx.stages import contact_buffer, inputs_of, make_constraint, paths_of, state_of
from diffsim.mjx.types import Contact, Data, Impl, Model, Paths
from diffsim.simulate.forward import forward
from diffsim.support import state_vectors
from diffsim.types import data as records
from diffsim.types import model as models
from diffsim.types.state import make_inputs, make_state

# cache of the jaxpr of `make_constraint` and the shape of its result, by pytree structure and dtype of the arguments
_ROWS: dict[Any, Any] = {}
# cache of the shapes of Data, by the pytree structure and dtype of a model
_SHAPES: dict[Any, tuple[records.Data, Paths]] = {}
# names of fields of State and Inputs, by their bit in mjtState
_STATE_MAP = {bit: name for bit, (_, name) in state_vectors.COMPONENTS.items()}
# the names in mjData of fields whose names differ
_MJDATA = {"eq_activity": "eq_active"}


def put_model(
    m: Any,
    device: Any = None,
    impl: Impl | str | None = None,
    graph_mode: Any = None,
    keepalive_refs: Any = None,
    *,
    max_contacts: int | None = None,
    max_pairs: int | None = None,
    keep: Collection[str] = (),
) -> Model:
    """Converts a model of MuJoCo to a model of diffsim.

    Args:
      m: a compiled `mujoco.MjModel` of MuJoCo 3.8 to 4.0; the model follows the version that compiled it.
      device: device of its arrays; None for the default.
      impl: "jax" or None; after `diffsim.mjx.install()` any value.
      graph_mode, keepalive_refs: for other implementations; ignored.
      max_contacts, max_pairs, keep: as in `diffsim.load`.

    Returns:
      The model, which is also a `diffsim.Model`.

    Raises:
      UnsupportedError: the model uses a feature that diffsim lacks; the message says which.
      ValueError: `impl` is another implementation.
    """
    _only_jax(impl)
    return _on(device, Model(**vars(from_mujoco(m, max_contacts, max_pairs, keep))))


def make_data(
    m: Any,
    device: Any = None,
    impl: Impl | str | None = None,
    _full_compat: bool = False,
    nconmax: int | None = None,
    naconmax: int | None = None,
    naccdmax: int | None = None,
    njmax: int | None = None,
    keepalive_refs: Any = None,
) -> Data:
    """Makes Data at qpos0, without contacts and with zeros in all computed fields.

    Args:
      m: an `mujoco.MjModel`, or a model from `put_model`.
      device, impl, keepalive_refs: as in `put_model`.
      nconmax, naconmax, naccdmax, njmax: sizes of buffers of other implementations; ignored.

    Returns:
      Data of one world.

    Raises:
      UnsupportedError, ValueError: as in `put_model`.
    """
    _only_jax(impl)
    model = cast(Model, m) if isinstance(m, models.Model) else put_model(m)
    state = make_state(model)
    inputs = make_inputs(model)
    key = jax.tree.structure(model), state.qpos.dtype

    def computed(*arguments: Any) -> tuple[records.Data, Paths]:
        data = forward(*arguments)
        return data, paths_of(model, data)

    if key not in _SHAPES:
        _SHAPES[key] = jax.eval_shape(computed, model, state, inputs)
    empty, paths = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), _SHAPES[key])
    contact = contact_buffer(model, empty.contact, empty.efc)
    # as in MJX, empty slots have a large distance and geoms of -1
    contact = dataclasses.replace(contact, dist=contact.dist + 1e10, geom=contact.geom - 1)
    fields = {**vars(empty), **vars(paths), **vars(state), **vars(inputs), "contact": contact}
    data = Data(
        **fields,
        qfrc_inverse=jnp.zeros_like(state.qvel),
        dropped=empty.contact.ncon_dropped,
        topology=model.topology,
    )
    return _on(device, data)


def put_data(
    m: Any,
    d: Any,
    device: Any = None,
    impl: Impl | str | None = None,
    nconmax: int | None = None,
    naconmax: int | None = None,
    njmax: int | None = None,
    dummy_arg_for_batching: Any = None,
    keepalive_refs: Any = None,
) -> Data:
    """Converts an `mujoco.MjData` to Data: state, inputs, contacts and computed fields.

    The constraint rows `efc_*` are computed again, in numpy. If the same rows are active as in MuJoCo, their residuals,
    weights, reference accelerations and forces are copied from MuJoCo; otherwise the forces follow from `qacc`.

    Args:
      m: a compiled `mujoco.MjModel`.
      d: an `mujoco.MjData` of this model.
      device, impl, nconmax, naconmax, njmax, keepalive_refs: as in `make_data`.

    Returns:
      Data of one world.

    Raises:
      UnsupportedError: the model uses a feature that diffsim lacks; the message says which.
      ValueError: `impl` is another implementation, or there are more contacts than slots.
    """
    _only_jax(impl)
    model = put_model(m)
    blank = make_data(model)
    fields: dict[str, Any] = {}
    for field in blank.fields():
        old = getattr(blank, field.name)
        new = getattr(d, _MJDATA.get(field.name, field.name), None)
        if isinstance(old, Array) and new is not None and np.size(new) == old.size:
            fields[field.name] = jnp.asarray(np.reshape(new, old.shape), old.dtype)
    # MuJoCo stores these matrices sparse, and M as its lower triangle
    fields["ten_J"] = _dense(d.ten_J, m.ten_J_rownnz, m.ten_J_rowadr, m.ten_J_colind, m.nv)
    fields["actuator_moment"] = _dense(d.actuator_moment, d.moment_rownnz, d.moment_rowadr, d.moment_colind, m.nv)
    lower = np.tril(_dense(d.M, m.M_rownnz, m.M_rowadr, m.M_colind, m.nv))
    inertia = diagonal_of(blank.M.blocks, jnp.asarray(lower + np.tril(lower, -1).T, blank.qpos.dtype))
    contact, slots = contacts_from(d.contact, model, cast(Contact, blank.contact))
    data = blank.replace(**fields, contact=contact, M=inertia)
    # interpret the jaxpr in numpy, because compiling it would take longer than its single run
    leaves, structure = jax.tree.flatten((model, data))
    key = structure, data.qpos.dtype
    if key not in _ROWS:
        _ROWS[key] = jax.make_jaxpr(make_constraint, return_shape=True)(model, data)
    program, shape = _ROWS[key]
    data = jax.tree.unflatten(jax.tree.structure(shape), run_jaxpr(program, [np.asarray(leaf) for leaf in leaves]))
    return _on(device, with_rows(jax.tree.map(jnp.asarray, data), d, slots))


def get_data(m: Any, d: Data, keepalive_refs: Any = None) -> Any:
    """Converts Data to `mujoco.MjData`.

    Args:
      m: the `mujoco.MjModel` that Data was made for.
      d: Data of one world or of a batch.

    Returns:
      An `mujoco.MjData`, or a list with one for each world of a batch.
    """
    new = sys.modules["mujoco"].MjData
    result = [new(m) for _ in range(d.qpos.shape[0])] if d.qpos.ndim > 1 else new(m)
    get_data_into(result, m, d)
    return result


def get_data_into(result: Any, m: Any, d: Data, keepalive_refs: Any = None) -> None:
    """Writes Data into an `mujoco.MjData`, with only the active contacts and constraint rows.

    Args:
      result: an `mujoco.MjData`; for a batch a list with one for each world.
      m: the `mujoco.MjModel` that Data was made for; MuJoCo factorizes M again with it.
      d: Data of one world or of a batch.

    Raises:
      ValueError: `result` is a list and Data is one world, or the other way round; or Data belongs to another model.
    """
    if isinstance(result, list) != (d.qpos.ndim > 1):
        raise ValueError("for a batch of Data pass a list of MjData, and for one world a single MjData")
    if isinstance(result, list):
        for index, world in enumerate(result):
            get_data_into(world, m, d[index])
        return
    host: Any = jax.device_get(d)
    for field in d.fields():
        name = _MJDATA.get(field.name, field.name)
        old = getattr(result, name, None)
        new = getattr(host, field.name)
        if not (isinstance(new, np.ndarray) and new.shape and isinstance(old, np.ndarray)):
            continue
        if old.size == new.size:
            old[:] = new.reshape(old.shape)
        elif field.name in _STATE_MAP.values():
            raise ValueError(f"Input field {name} has shape {new.shape}, but output has shape {old.shape}")
    result.time = float(host.time)
    _write_sparse(result.ten_J, host.ten_J, m.ten_J_rowadr, m.ten_J_rownnz, m.ten_J_colind)
    # MuJoCo stores the nonzeros of actuator_moment, so its sparsity depends on the state
    result.moment_rownnz[:] = np.count_nonzero(host.actuator_moment, axis=1)
    result.moment_rowadr[:] = np.cumsum(result.moment_rownnz) - result.moment_rownnz
    result.moment_colind[: result.moment_rownnz.sum()] = np.nonzero(host.actuator_moment)[1]
    moment_rows = (result.moment_rowadr, result.moment_rownnz, result.moment_colind)
    _write_sparse(result.actuator_moment, host.actuator_moment, *moment_rows)
    _write_sparse(result.M, host.qM, m.M_rowadr, m.M_rownnz, m.M_colind)
    _write_other_forms(result, m, host)
    write_constraints(result, m, host)
    sys.modules["mujoco"].mj_factorM(m, result)


def _write_other_forms(result: Any, m: Any, d: Data) -> None:
    """Writes qM, which MjData has until MuJoCo 3.8, and the quaternions of frames, which it has since 4.0."""
    for dof, first in enumerate(m.dof_Madr if hasattr(result, "qM") else ()):
        # a row of the legacy format of qM has the columns of the dof and of its ancestors, up to the root
        row = []
        other = dof
        while other >= 0:
            row.append(d.qM[dof, other])
            other = m.dof_parentid[other]
        result.qM[first : first + len(row)] = row
    if not hasattr(result, "xiquat"):
        return
    # for each kind of frame: where to write, the bodies of the frames, and their fixed rotations
    frames = (
        (result.xiquat, np.arange(m.nbody), m.body_iquat),
        (result.geom_xquat, m.geom_bodyid, m.geom_quat),
        (result.site_xquat, m.site_bodyid, m.site_quat),
    )
    for into, bodies, quaternions in frames:
        for to, body, quat in zip(into, bodies, quaternions, strict=True):
            sys.modules["mujoco"].mju_mulQuat(to, result.xquat[body], quat)


def state_size(m: Model, spec: Any) -> int:
    """The size of the state vector of the components in a bit mask (`mjtState`)."""
    return state_vectors.state_size(m, int(spec))


def get_state(m: Model, d: Data, spec: Any) -> Array:
    """Concatenates the components `spec` (`mjtState`) of a state, in the order of the bits."""
    return state_vectors.get_state(m, state_of(d), inputs_of(d), int(spec))


def set_state(m: Model, d: Data, state: Array, spec: Any) -> Data:
    """Replaces the components `spec` of a state by the values of a vector from `get_state`."""
    parts = state_vectors.set_state(m, state_of(d), inputs_of(d), jnp.asarray(state), int(spec))
    return dataclasses.replace(d, **{name: value for part in parts for name, value in vars(part).items()})


def _only_jax(impl: Impl | str | None) -> None:
    """Raises ValueError if `impl` is not JAX, unless diffsim is installed in place of MJX."""
    if sys.modules.get("mujoco.mjx") is sys.modules["diffsim.mjx"]:
        return
    if impl is not None and Impl(impl.lower() if isinstance(impl, str) else impl) != Impl.JAX:
        raise ValueError(f"impl={impl!r} is not supported: diffsim has one implementation, impl='jax'")


def _on(device: Any, tree: Any) -> Any:
    """Puts a pytree on a device; returns it unchanged if `device` is None."""
    return tree if device is None else jax.device_put(tree, device)


def _dense(values: Any, count: Any, start: Any, column: Any, width: int) -> np.ndarray:
    """Converts a matrix (n, width) from MuJoCo's sparse rows (values, number, first entry, columns) to dense."""
    matrix = np.zeros((len(count), width))
    for row, (number, first) in enumerate(zip(count, start, strict=True)):
        matrix[row, column[first : first + number]] = values[first : first + number]
    return matrix


def _write_sparse(to: Any, matrix: np.ndarray, start: Any, count: Any, column: Any) -> None:
    """Writes a matrix (n, width) into MuJoCo's sparse rows: only the entries that they store."""
    for row, (first, number) in enumerate(zip(start, count, strict=True)):
        to[first : first + number] = matrix[row, column[first : first + number]]

"""put_model, make_data, put_data, get_data: between `mujoco` and here, with MJX's signatures.

What other implementations of MJX take is accepted where it means the same or nothing here: `impl` ("jax" or None; after
`install` any, for packages name one in their settings: MuJoCo Playground "warp"), `device`, and the sizes of Warp's
buffers (`nconmax`, `naconmax`, `naccdmax`, `njmax`), which have no counterpart: the contact buffer has the size that
the model asks for (`diffsim.load`), and what does not fit is counted in `data.ncon_dropped`.
"""

import dataclasses
import sys
from collections.abc import Collection
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.compiler.convert import from_mujoco
from diffsim.compiler.host.interpret import run_jaxpr
from diffsim.math.linalg import diagonal_of
from diffsim.mjx.lists import contacts_from, with_forces, write_constraints
from diffsim.mjx.stages import contact_buffer, inputs_of, make_constraint, paths_of, state_of
from diffsim.mjx.types import Contact, Data, Impl, Model, Paths
from diffsim.simulate.forward import forward
from diffsim.support import state_vectors
from diffsim.types import data as records
from diffsim.types import model as models
from diffsim.types.state import make_inputs, make_state

Array = jax.Array


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
    """A model of MuJoCo as one of diffsim.

    Args:
      m: a compiled `mujoco.MjModel`.
      device: where its arrays are; None for the default.
      impl: "jax" or None; after `diffsim.mjx.install()` any.
      graph_mode, keepalive_refs: of other implementations; without meaning here.
      max_contacts, max_pairs, keep: as for `diffsim.load`.

    Raises:
      UnsupportedError: a feature that diffsim lacks; it says which. ValueError: another `impl`.
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
    """Data at qpos0 with all that is computed zero, and no contacts; of an `MjModel` or a model from `put_model`.

    The other arguments are those of `put_model` and sizes of buffers that there are none of here.
    """
    _only_jax(impl)
    model = cast(Model, m) if isinstance(m, models.Model) else put_model(m)
    state, inputs = make_state(model), make_inputs(model)
    key = jax.tree.structure(model), state.qpos.dtype

    def computed(*given: Any) -> tuple[records.Data, Paths]:
        data = forward(*given)
        return data, paths_of(model, data)

    if key not in _SHAPES:
        _SHAPES[key] = jax.eval_shape(computed, model, state, inputs)
    empty, paths = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), _SHAPES[key])
    contact = contact_buffer(model, empty.contact)
    contact = dataclasses.replace(contact, dist=contact.dist + 1e10, geom=contact.geom - 1)
    fields = {**vars(empty), **vars(paths), **vars(state), **vars(inputs), "contact": contact}
    return _on(device, Data(**fields, qfrc_inverse=jnp.zeros_like(state.qvel), topology=model.topology))


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
    """The Data of an `mujoco.MjData`: its state, its inputs, its contacts and what is computed from them.

    The constraint rows `efc_*` are made from the rest, by numpy; their forces are MuJoCo's, or those at `qacc` where
    other rows act there.
    """
    _only_jax(impl)
    model = put_model(m)
    blank = make_data(model)
    fields: dict[str, Any] = {}
    for field in blank.fields():
        old, new = getattr(blank, field.name), getattr(d, _MJDATA.get(field.name, field.name), None)
        if isinstance(old, jax.Array) and new is not None and np.size(new) == old.size:
            fields[field.name] = jnp.asarray(np.reshape(new, old.shape), old.dtype)
    fields["ten_J"] = _dense(d.ten_J, m.ten_J_rownnz, m.ten_J_rowadr, m.ten_J_colind, m.nv)
    fields["actuator_moment"] = _dense(d.actuator_moment, d.moment_rownnz, d.moment_rowadr, d.moment_colind, m.nv)
    lower = np.tril(_dense(d.M, m.M_rownnz, m.M_rowadr, m.M_colind, m.nv))
    inertia = diagonal_of(blank.M.blocks, jnp.asarray(lower + np.tril(lower, -1).T, blank.qpos.dtype))
    contact, slots = contacts_from(d.contact, model, cast(Contact, blank.contact))
    data = blank.replace(**fields, contact=contact, M=inertia)
    leaves, structure = jax.tree.flatten((model, data))
    key = structure, data.qpos.dtype
    if key not in _ROWS:
        _ROWS[key] = jax.make_jaxpr(make_constraint, return_shape=True)(model, data)
    program, shape = _ROWS[key]
    made = jax.tree.unflatten(jax.tree.structure(shape), run_jaxpr(program, [np.asarray(leaf) for leaf in leaves]))
    return _on(device, with_forces(jax.tree.map(jnp.asarray, made), d, slots))


def get_data(m: Any, d: Data, keepalive_refs: Any = None) -> Any:
    """An `mujoco.MjData` with what Data holds, or, of a batch, a list of them."""
    new = sys.modules["mujoco"].MjData
    result = [new(m) for _ in range(d.qpos.shape[0])] if d.qpos.ndim > 1 else new(m)
    get_data_into(result, m, d)
    return result


def get_data_into(result: Any, m: Any, d: Data, keepalive_refs: Any = None) -> None:
    """Writes what Data holds into an `mujoco.MjData`, or, of a batch, into a list of as many.

    Contacts and constraint rows are those that act; factors of M are computed again.

    Raises:
      ValueError: a batch and no list, or the other way round; Data of another model.
    """
    if isinstance(result, list) != (d.qpos.ndim > 1):
        raise ValueError("a batch of Data goes into a list of MjData, and one world into one MjData")
    if isinstance(result, list):
        for index, each in enumerate(result):
            get_data_into(each, m, d[index])
        return
    host: Any = jax.device_get(d)
    for field in d.fields():
        name = _MJDATA.get(field.name, field.name)
        old, new = getattr(result, name, None), getattr(host, field.name)
        if not (isinstance(new, np.ndarray) and new.shape and isinstance(old, np.ndarray)):
            continue
        if old.size == new.size:
            old[:] = new.reshape(old.shape)
        elif field.name in COMPONENT_NAMES:
            raise ValueError(f"Input field {name} has shape {new.shape}, but output has shape {old.shape}")
    result.time = float(host.time)
    _write_sparse(result.ten_J, host.ten_J, m.ten_J_rowadr, m.ten_J_rownnz, m.ten_J_colind)
    # which of its entries are stored depends on the state
    result.moment_rownnz[:] = np.count_nonzero(host.actuator_moment, axis=1)
    result.moment_rowadr[:] = np.cumsum(result.moment_rownnz) - result.moment_rownnz
    result.moment_colind[: result.moment_rownnz.sum()] = np.nonzero(host.actuator_moment)[1]
    moment_rows = (result.moment_rowadr, result.moment_rownnz, result.moment_colind)
    _write_sparse(result.actuator_moment, host.actuator_moment, *moment_rows)
    _write_sparse(result.M, host.qM, m.M_rowadr, m.M_rownnz, m.M_colind)
    write_constraints(result, m, host)
    sys.modules["mujoco"].mj_factorM(m, result)


def state_size(m: Model, spec: Any) -> int:
    """How many numbers the components of a state have that a bit mask (`mjtState`) chooses."""
    return state_vectors.state_size(m, int(spec))


def get_state(m: Model, d: Data, spec: Any) -> Array:
    """The chosen components as one vector, in the order of the bits."""
    return state_vectors.get_state(m, state_of(d), inputs_of(d), int(spec))


def set_state(m: Model, d: Data, state: Array, spec: Any) -> Data:
    """Data with the chosen components taken from a vector as `get_state` makes it."""
    parts = state_vectors.set_state(m, state_of(d), inputs_of(d), jnp.asarray(state), int(spec))
    return dataclasses.replace(d, **{name: value for part in parts for name, value in vars(part).items()})


def _only_jax(impl: Impl | str | None) -> None:
    """Refuses what asks for another implementation than this one, unless this one is installed in its place."""
    if sys.modules.get("mujoco.mjx") is sys.modules["diffsim.mjx"]:
        return
    if impl is not None and Impl(impl.lower() if isinstance(impl, str) else impl) != Impl.JAX:
        raise ValueError(f"impl={impl!r} is another implementation of MJX; diffsim has one, which is impl='jax'")


def _on(device: Any, tree: Any) -> Any:
    """A pytree on a device."""
    return tree if device is None else jax.device_put(tree, device)


# the program of `make_constraint` and the shape of what it gives, for each structure of a model
_ROWS: dict[Any, Any] = {}
# what is computed, in shapes, for each structure of a model
_SHAPES: dict[Any, tuple[records.Data, Paths]] = {}
# fields of State and Inputs
COMPONENT_NAMES = {name for _, name in state_vectors.COMPONENTS.values()}
# mjData's name of a field, where it is another one
_MJDATA = {"eq_activity": "eq_active"}


def _dense(values: Any, count: Any, start: Any, column: Any, width: int) -> np.ndarray:
    """A matrix (n, width) from the rows that MuJoCo stores of it."""
    matrix = np.zeros((len(count), width))
    for row, (number, first) in enumerate(zip(count, start, strict=True)):
        matrix[row, column[first : first + number]] = values[first : first + number]
    return matrix


def _write_sparse(to: Any, matrix: np.ndarray, start: Any, count: Any, column: Any) -> None:
    """The entries of a matrix (n, width) that MuJoCo stores."""
    for row, (first, number) in enumerate(zip(start, count, strict=True)):
        to[first : first + number] = matrix[row, column[first : first + number]]

"""put_model, make_data, put_data, get_data: between `mujoco` and here, with MJX's signatures; and `install`.

What other implementations of MJX take is accepted where it means the same or nothing here: `impl` ("jax" or None; after
`install` any, for packages name one in their settings: MuJoCo Playground "warp"), `device`, and the sizes of Warp's
buffers (`nconmax`, `naconmax`, `naccdmax`, `njmax`), which have no counterpart: the contact buffer has the size that
the model asks for (`diffsim.load`), and what does not fit is counted in `data.ncon_dropped`.
"""

import dataclasses
import importlib
import sys
from collections.abc import Collection
from types import ModuleType
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.enums import ConstraintType
from diffsim.collision.layout import layout_of
from diffsim.compiler.convert import from_mujoco
from diffsim.compiler.host.interpret import run_jaxpr
from diffsim.math.linalg import diagonal_of
from diffsim.mjx.rows import COLUMNS, column, first_rows, row_force_from, row_keys, row_order, with_columns
from diffsim.mjx.stages import contact_buffer, inputs_of, make_constraint, paths_of, state_of
from diffsim.mjx.types import Contact, Data, Impl, Model, Paths
from diffsim.simulate.forward import forward
from diffsim.support import state_vectors
from diffsim.types import data as records
from diffsim.types import model as models
from diffsim.types.state import make_inputs, make_state

# the program of `make_constraint` and the shape of what it gives, for each structure of a model
_ROWS: dict[Any, Any] = {}
# what is computed, in shapes, for each structure of a model
_SHAPES: dict[Any, tuple[records.Data, Paths]] = {}
# fields of State and Inputs, by their bits
_STATE_MAP = {bit: name for bit, (_, name) in state_vectors.COMPONENTS.items()}
# mjData's name of a field, where it is another one
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
    """A model of MuJoCo as one of diffsim.

    Args:
      m: a compiled `mujoco.MjModel`.
      device: where its arrays are; None for the default.
      impl: "jax" or None; after `diffsim.mjx.install()` any.
      graph_mode, keepalive_refs: of other implementations; without meaning here.
      max_contacts, max_pairs, keep: as for `diffsim.load`.

    Returns:
      The model, a `diffsim.Model` too.

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
    """Data at qpos0 with zeros for all that is computed, and without contacts.

    Args:
      m: an `mujoco.MjModel`, or a model from `put_model`.
      device, impl, keepalive_refs: as for `put_model`.
      nconmax, naconmax, naccdmax, njmax: sizes of buffers of other implementations; without meaning here.

    Returns:
      Data of one world.

    Raises:
      UnsupportedError, ValueError: as for `put_model`.
    """
    _only_jax(impl)
    model = cast(Model, m) if isinstance(m, models.Model) else put_model(m)
    state, inputs = make_state(model), make_inputs(model)
    key = jax.tree.structure(model), state.qpos.dtype

    def computed(*arguments: Any) -> tuple[records.Data, Paths]:
        data = forward(*arguments)
        return data, paths_of(model, data)

    if key not in _SHAPES:
        _SHAPES[key] = jax.eval_shape(computed, model, state, inputs)
    empty, paths = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), _SHAPES[key])
    contact = contact_buffer(model, empty.contact, empty.efc)
    contact = dataclasses.replace(contact, dist=contact.dist + 1e10, geom=contact.geom - 1)
    fields = {**vars(empty), **vars(paths), **vars(state), **vars(inputs), "contact": contact}
    more = {"dropped": empty.contact.ncon_dropped, "topology": model.topology}
    return _on(device, Data(**fields, qfrc_inverse=jnp.zeros_like(state.qvel), **more))


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
    """Data from an `mujoco.MjData`: its state, its inputs, its contacts and what is computed from them.

    The constraint rows `efc_*` are made from the rest, by numpy. Where the same rows act as in MuJoCo, their residuals,
    weights, reference accelerations and forces are those of MuJoCo; else the forces are those that belong to `qacc`.

    Args:
      m: a compiled `mujoco.MjModel`.
      d: an `mujoco.MjData` of it.
      device, impl, nconmax, naconmax, njmax, keepalive_refs: as for `make_data`.

    Returns:
      Data of one world.

    Raises:
      UnsupportedError: a feature that diffsim lacks; it says which.
      ValueError: another `impl`, or more contacts than the model has slots for.
    """
    _only_jax(impl)
    model = put_model(m)
    blank = make_data(model)
    fields: dict[str, Any] = {}
    for field in blank.fields():
        old, new = getattr(blank, field.name), getattr(d, _MJDATA.get(field.name, field.name), None)
        if isinstance(old, Array) and new is not None and np.size(new) == old.size:
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
    data = jax.tree.unflatten(jax.tree.structure(shape), run_jaxpr(program, [np.asarray(leaf) for leaf in leaves]))
    return _on(device, with_rows(jax.tree.map(jnp.asarray, data), d, slots))


def get_data(m: Any, d: Data, keepalive_refs: Any = None) -> Any:
    """MuJoCo's own data from Data.

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
    """Write what Data holds into an `mujoco.MjData`. Contacts and constraint rows are those that act.

    Args:
      result: an `mujoco.MjData`; for a batch a list with one for each world.
      m: the `mujoco.MjModel` that Data was made for. The factors of M are computed again with it.
      d: Data of one world or of a batch.

    Raises:
      ValueError: a batch and no list, or the other way round; Data of another model.
    """
    if isinstance(result, list) != (d.qpos.ndim > 1):
        raise ValueError("a batch of Data goes into a list of MjData, and one world into one MjData")
    if isinstance(result, list):
        for index, world in enumerate(result):
            get_data_into(world, m, d[index])
        return
    host: Any = jax.device_get(d)
    for field in d.fields():
        name = _MJDATA.get(field.name, field.name)
        old, new = getattr(result, name, None), getattr(host, field.name)
        if not (isinstance(new, np.ndarray) and new.shape and isinstance(old, np.ndarray)):
            continue
        if old.size == new.size:
            old[:] = new.reshape(old.shape)
        elif field.name in _STATE_MAP.values():
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
    for dof, first in enumerate(m.dof_Madr):
        # each dof and those that it hangs on
        row, other = [], dof
        while other >= 0:
            row.append(host.qM[dof, other])
            other = m.dof_parentid[other]
        result.qM[first : first + len(row)] = row
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


def contacts_from(contacts: Any, model: Model, blank: Contact) -> tuple[Contact, np.ndarray]:
    """The buffer with the contacts of an `mujoco.MjData`, each in a slot of its dimension and, if that has any, pair;
    and the slots that they are in.

    Raises:
      ValueError: there are more contacts of a dimension than slots.
    """
    layout = layout_of(model)
    free: dict[tuple[int, ...], list[int]] = {}
    for slot, (dim, geoms) in enumerate(zip(layout.dim, layout.geom, strict=True)):
        free.setdefault((int(dim), *sorted(map(int, geoms))), []).append(slot)
    slots = []
    for index, (dim, geoms) in enumerate(zip(contacts.dim, contacts.geom, strict=True)):
        slots_left = free.get((int(dim), *sorted(map(int, geoms)))) or free.get((int(dim), -1, -1))
        if not slots_left:
            raise ValueError(f"no slot is left for contact {index}, of dimension {dim}; see max_contacts of put_model")
        slots.append(slots_left.pop(0))
    changed: dict[str, Any] = {"margin": contacts.includemargin}
    changed |= {f.name: getattr(contacts, f.name) for f in blank.fields() if hasattr(contacts, f.name)}
    fields = {}
    for name, values in changed.items():
        if getattr(blank, name) is None:
            continue
        old = np.array(getattr(blank, name))
        old[slots] = np.reshape(values, (len(slots), *old.shape[1:]))
        fields[name] = jnp.asarray(old)
    # MuJoCo lists contacts in the order of their keys
    key = np.arange(len(blank.dims), dtype=np.int32) + len(slots)
    key[slots] = np.arange(len(slots))
    return blank.replace(**fields, sort_key=jnp.asarray(key, blank.sort_key.dtype)), np.array(slots, int)


def with_rows(data: Data, d: Any, slots: np.ndarray) -> Data:
    """Data with the rows of an `mujoco.MjData`, whose contacts are in some slots; as it is, where other rows act.

    After `mj_step` they are of the state before, and positions and velocities have gone on.
    """
    frictionless = int(ConstraintType.CONTACT_FRICTIONLESS)
    ids = np.where(d.efc_type < frictionless, d.efc_id, np.append(slots, -1)[np.minimum(d.efc_id, len(slots))])
    listed = np.stack([np.minimum(d.efc_type, frictionless), ids], axis=1)
    order = np.lexsort(listed.T[::-1])
    acts = np.asarray(column(data, "efc_D")) != 0
    acting = row_keys(data.topology, data.efc)[row_order(data.topology, data.efc)][acts, :2]
    if not np.array_equal(acting, listed[order]):
        return data

    def spread(name: str) -> Array:
        values = np.array(column(data, name))
        values[acts] = getattr(d, name)[order]
        return row_force_from(data, jnp.asarray(values, data.row_force.dtype))

    rows = with_columns(data.efc, *map(spread, ("efc_pos", "efc_aref", "efc_D")))
    return data.replace(row_force=spread("efc_force"), efc=rows)


def write_constraints(result: Any, m: Any, d: Data) -> None:
    """Writes the contacts that are there and the rows that act, each in the order in which Data has them."""
    mujoco, contact, kinds = sys.modules["mujoco"], cast(Contact, d.contact), d.efc_type
    columns = {name: np.asarray(column(d, name)) for name in COLUMNS}
    acts = columns["efc_D"] != 0
    there = np.flatnonzero((contact.geom[:, 0] >= 0) & (contact.dist < contact.margin))
    sparse = bool(mujoco.mj_isSparse(m))
    counts = {"ncon": len(there), "nefc": int(acts.sum())}
    entries = int(np.sum(columns["efc_J"] != 0)) if sparse else counts["nefc"] * m.nv
    mujoco._functions._realloc_con_efc(result, **counts, nJ=entries)
    result.ne, result.nf, result.nl = (int(np.sum(acts & np.isin(kinds, types))) for types in ((0,), (1, 2), (3, 4)))
    jacobian = columns.pop("efc_J")[acts].astype(float)
    if sparse:
        mujoco.mju_dense2sparse(result.efc_J, jacobian, result.efc_J_rownnz, result.efc_J_rowadr, result.efc_J_colind)
    else:
        result.efc_J[:] = jacobian.reshape(result.efc_J.shape)
    result.efc_type[:] = kinds[acts]
    for name, values in columns.items():
        getattr(result, name)[:] = values[acts]
    for name in ("dist", "pos", "frame", "includemargin", "friction", "solref", "solreffriction", "solimp", "dim"):
        to = getattr(result.contact, name)
        to[:] = getattr(contact, name)[there].reshape(to.shape)
    result.contact.geom[:] = contact.geom[there]
    first = first_rows(d.efc, d.ncon)[there]
    acting = (first >= 0) & acts[first]
    result.contact.efc_address[:] = np.where(acting, np.cumsum(acts)[first] - 1, -1)


# of `mujoco.mjx._src`, and where their names are here
_MODULES = {
    "math": ("math",),
    "types": ("types",),
    "dataclasses": ("types",),
    "io": ("io",),
    "support": ("support",),
    "ray": ("support",),
    **dict.fromkeys(
        ("smooth", "forward", "inverse", "constraint", "passive", "sensor", "derivative"), ("stages", "support")
    ),
    **dict.fromkeys(("solver", "collision_driver"), ("stages",)),
}


def install() -> None:
    """Makes `from mujoco import mjx` mean `diffsim.mjx` in this process. Call it before anything imports MJX.

    Raises:
      ImportError: the package `mujoco` is not installed. RuntimeError: MJX has been imported already.
    """
    ours: Any = sys.modules["diffsim.mjx"]
    there = sys.modules.get("mujoco.mjx")
    if there is ours:
        return
    if there is not None:
        raise RuntimeError("mujoco.mjx has been imported already; call diffsim.mjx.install() before what imports it")
    mujoco: Any = importlib.import_module("mujoco")
    inside: Any = ModuleType("mujoco.mjx._src", "Modules of MJX, by diffsim.")
    inside.__path__ = []
    for name, sources in _MODULES.items():
        module = ModuleType(f"mujoco.mjx._src.{name}", f"mujoco.mjx._src.{name}, by diffsim.")
        for source in sources:
            held = vars(sys.modules[f"{ours.__name__}.{source}"])
            vars(module).update({key: value for key, value in held.items() if not key.startswith("__")})
        setattr(inside, name, module)
        sys.modules[module.__name__] = module
    sys.modules["mujoco.mjx"], sys.modules["mujoco.mjx._src"] = ours, inside
    mujoco.mjx, ours._src = ours, inside

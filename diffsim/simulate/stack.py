"""stack: one batch of models from several that differ in shapes and numbers, such as the objects that a hand grasps.

    models, axes = diffsim.stack(diffsim.load(scene(name)) for name in objects)
    states = jax.vmap(diffsim.step, in_axes=(axes, 0))(models, states)

A program depends on a model's topology, which contains the tables of its meshes. So the meshes of all models go into
one table (geometry/mesh_library.py), and each world has the numbers of its meshes (`Model.variant_mesh`). A pair
function reads the hull at such a number; its arrays have room for the largest hull. Everything else that follows from a
shape (masses, inertias, bounding volumes, poses of geoms) is a leaf of the model already, and differs between worlds.
"""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.base.enums import GeomType, ObjType, SensorType
from diffsim.base.errors import ArgumentError, UnsupportedError
from diffsim.geometry.mesh_library import PREFIXES, MeshFields, MeshLibrary, without_meshes
from diffsim.simulate.absent_geoms import padded
from diffsim.simulate.arguments import model_axes
from diffsim.types import Model
from diffsim.types.topology import Topology


def _if_equal(values: list[np.ndarray]) -> np.ndarray:
    """The values that are equal in all models, elsewhere 0."""
    return np.where(np.all(np.equal(values, values[0]), axis=0), values[0], 0)


# fields of a topology that may differ, and how they are joined. Frames coincide (sameframe), and a body is simple, if
# it is so in every model; a geom may span as many cells of a height field as in any model.
JOINED: dict[str, Callable[[list[np.ndarray]], np.ndarray]] = {
    "body_sameframe": _if_equal,
    "body_simple": lambda values: np.min(values, axis=0),
    "geom_sameframe": _if_equal,
    "site_sameframe": _if_equal,
    "geom_fieldcells": lambda values: np.max(values, axis=0),
    "geom_dataid": lambda values: values[0],
}
MAY_DIFFER = (
    "; stacked models may differ in meshes, heights of height fields and all floats, and may leave out the last meshes "
    "of a body"
)


def stack(models: Iterable[Model]) -> tuple[Model, Model]:
    """Joins models to a batch with one world for each, in which one program simulates all of them.

    The models must have the same bodies, joints, geoms and so on, in the same order. They may differ in the meshes of
    their geoms, in the heights of height fields with equal numbers of rows and columns, and in all floats: sizes,
    masses, poses, colours. A body may have fewer geoms than in other models, if these additional geoms come last in
    their body and are meshes, such as the convex parts of an object. In each world, results equal those of its model,
    up to rounding. With `implicitfast` in a medium, or with tendons or actuators that act on a body whose frame is at
    its inertia in some models alone, steps can differ from MuJoCo's.

    Args:
      models: the models. They are read one after another, so that a generator need not hold all of them.

    Returns:
      (models, axes): a Model in which the leaves that differ have a leading axis of worlds, and its `in_axes` for
      `vmap`. Meshes are stored once, however many worlds have them.

    Raises:
      ArgumentError: no models, or models that differ in something else; the message says in what.
      UnsupportedError: meshes differ beside distance fields or tactile sensors, or geoms are left out beside flexes.

    Example:
      models, axes = diffsim.stack([diffsim.load(path) for path in paths])
      states = jax.vmap(diffsim.make_state, in_axes=(axes,))(models)
    """
    if isinstance(models, Model):
        raise ArgumentError("stack: models is one Model, expected several, such as a list")
    library = MeshLibrary()
    listed = list[Model]()
    for number, model in enumerate(models):
        _check_one(model, number)
        listed.append(without_meshes(_renumbered(model, library.add(model))))
    if not listed:
        raise ArgumentError("stack: give at least one model")
    # a model with the most geoms has all geoms that exist in some world
    fullest = max(listed, key=lambda model: model.topology.ngeom)
    listed = [padded(model, fullest) for model in listed]
    for number, model in enumerate(listed):
        _check_equal(listed[0], model, number)
    return _joined(listed, library.fields())


def on_batched(function: Callable[[jax.Array], jax.Array], models: Model, axes: Model) -> Model:
    """A batch of models with a function of its leaves that have an axis of worlds, such as `lambda x: x[0]`."""
    return jax.tree.map(
        lambda axis, values: values if axis is None else function(values),
        axes,
        models,
        is_leaf=lambda axis: axis is None,
    )


def _check_one(model: Any, number: int) -> None:
    """Refuses what is not one model."""
    if not isinstance(model, Model):
        raise ArgumentError(f"stack: models[{number}] is a {type(model).__name__}, expected a Model of diffsim.load")
    if model.topology.nvariant or jax.tree.leaves(model_axes(model)):
        raise ArgumentError(f"stack: models[{number}] is a batch of models already; stack takes single models")


def _renumbered(model: Model, ids: np.ndarray) -> Model:
    """The model with the numbers (nmesh,) of its meshes in a library in place of its own numbers."""
    topology = model.topology
    geom_dataid, sensor_objid = topology.geom_dataid.copy(), topology.sensor_objid.copy()
    meshes = np.isin(topology.geom_type, (GeomType.MESH, GeomType.SDF)) & (geom_dataid >= 0)
    geom_dataid[meshes] = ids[geom_dataid[meshes]]
    tactile = topology.sensor_objtype == ObjType.MESH
    sensor_objid[tactile] = ids[sensor_objid[tactile]]
    return dataclasses.replace(
        model, topology=dataclasses.replace(topology, geom_dataid=geom_dataid, sensor_objid=sensor_objid)
    )


def _joined(models: list[Model], meshes: MeshFields) -> tuple[Model, Model]:
    """The batch of models without meshes that are equal otherwise, and its axes."""
    topology, chosen = _topology([model.topology for model in models], meshes)
    names, leaves, tree = _leaves(dataclasses.replace(models[0], topology=topology))
    stacked: dict[str, np.ndarray] = meshes.floats
    for name, columns in zip(names, zip(*(_leaves(model)[1] for model in models), strict=True), strict=True):
        # leaves that are equal in all models have no axis of worlds
        if name not in stacked and any(not np.array_equal(column, columns[0]) for column in columns[1:]):
            stacked[name] = np.stack([np.asarray(column) for column in columns])
    if topology.nvariant:
        stacked["variant_mesh"] = chosen
    dtype = models[0].qpos0.dtype
    values = [
        jnp.asarray(stacked[name], dtype) if name in stacked else leaf for name, leaf in zip(names, leaves, strict=True)
    ]
    joined = jax.tree_util.tree_unflatten(tree, values)
    return joined, model_axes(joined)


def _topology(topologies: list[Topology], meshes: MeshFields) -> tuple[Topology, np.ndarray]:
    """The common topology, and the mesh of each geom whose mesh differs, for each model; -1: it has no such geom."""
    assets = np.array([topology.geom_dataid for topology in topologies])
    geoms = np.flatnonzero(np.any(assets != assets[:1], axis=0))
    first = topologies[0]
    for geom in geoms.tolist():
        kind = GeomType(int(first.geom_type[geom]))
        if kind != GeomType.MESH:
            name = first.name("geom", geom) or geom
            raise ArgumentError(f"stack: geom {name!r} of type {kind.name.lower()} has several meshes or height fields")
    _check_readers(first, geoms, bool(np.any(assets < 0)))
    variants = [tuple(np.unique(assets[:, geom]).tolist()) for geom in geoms]
    usual = assets.max(axis=0)
    joined = {name: join([getattr(topology, name) for topology in topologies]) for name, join in JOINED.items()}
    present = {
        name: np.asarray(np.any([topology.present[name] for topology in topologies], axis=0)) for name in first.present
    }
    topology = dataclasses.replace(
        first,
        **(joined | meshes.integers | {"geom_dataid": np.where(assets[0] < 0, usual, assets[0])}),
        present=present,
        names={**first.names, "mesh": meshes.names},
        variant_geomid=tuple(geoms.tolist()),
        variant_meshid=tuple(variants),
    )
    return topology, assets[:, geoms]


def _check_readers(topology: Topology, geoms: np.ndarray, absent: bool) -> None:
    """Refuses what reads the mesh of the first model alone, in models in which the meshes of these geoms differ."""
    if not geoms.size:
        return
    reason = ""
    for kind, numbers, what in (
        ("geom", np.flatnonzero(topology.geom_type == GeomType.SDF), "is a distance field"),
        ("sensor", np.flatnonzero(topology.sensor_type == SensorType.TACTILE), "is tactile"),
    ):
        if numbers.size:
            reason = f"{kind} {topology.name(kind, int(numbers[0])) or numbers[0]!r} {what}"
    if absent and topology.nflex:
        reason = "there are flexes, and some models leave out geoms"
    if reason:
        name = topology.name("geom", int(geoms[0])) or int(geoms[0])
        raise UnsupportedError.of("stack", f"geom {name!r} has several meshes, and {reason}; stack models without it")


def _leaves(model: Model) -> tuple[list[str], list[Any], Any]:
    """The paths of a model's leaves, such as "opt.timestep", the leaves, and the structure."""
    paths, tree = jax.tree_util.tree_flatten_with_path(model)
    return [".".join(key.name for key in path) for path, _ in paths], [leaf for _, leaf in paths], tree


def _check_equal(first: Model, model: Model, number: int) -> None:
    """Raises ArgumentError if a model differs from the first one in what stacked models must share."""
    # sizes come first among the fields, so that a message says that a geom is missing, not that an array is shorter
    for field in dataclasses.fields(Topology):
        if field.name in JOINED or field.name == "present" or field.name.startswith(PREFIXES):
            continue
        value, expected = getattr(model.topology, field.name), getattr(first.topology, field.name)
        if field.name == "names":
            value, expected = ({**names, "mesh": ()} for names in (value, expected))
        if not (np.array_equal(value, expected) if isinstance(value, np.ndarray) else value == expected):
            detail = f" ({value}, not {expected})" if isinstance(value, int) else ""
            raise ArgumentError(f"stack: models[{number}] differs from models[0] in {field.name}{detail}{MAY_DIFFER}")
    for place, record, other in (("opt.", first.opt, model.opt), ("", first, model)):
        for field in dataclasses.fields(record):
            legal = not field.metadata.get("static") or field.name == "topology"
            if not legal and getattr(record, field.name) != getattr(other, field.name):
                raise ArgumentError(f"stack: models[{number}] differs from models[0] in {place}{field.name}")

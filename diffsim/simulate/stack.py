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

from diffsim.base.enums import GeomType, ObjType
from diffsim.base.errors import ArgumentError
from diffsim.geometry.mesh_library import MeshFields, MeshLibrary
from diffsim.simulate.arguments import model_axes
from diffsim.types import Model
from diffsim.types.topology import Topology

# fields of a topology that may differ, and how they are joined. A frame counts as coincident (sameframe), and a body as
# simple, if it is in every model; a geom may span as many cells of a height field as in any model.
JOINED: dict[str, Callable[[list[np.ndarray]], np.ndarray]] = {
    "body_sameframe": lambda values: np.min(values, axis=0),
    "body_simple": lambda values: np.min(values, axis=0),
    "geom_sameframe": lambda values: np.min(values, axis=0),
    "geom_fieldcells": lambda values: np.max(values, axis=0),
    "geom_dataid": lambda values: values[0],
}
# the fields that describe meshes
PREFIXES = ("mesh_", "nmesh", "oct_", "noct")
MAY_DIFFER = "; stacked models may differ in meshes, heights of height fields and all floats"


def stack(models: Iterable[Model]) -> tuple[Model, Model]:
    """Joins models to a batch with one world for each, in which one program simulates all of them.

    The models must have the same bodies, joints, geoms and so on, in the same order. They may differ in the meshes of
    their geoms, in the heights of height fields with equal numbers of rows and columns, and in all floats: sizes,
    masses, poses, colours. In each world, results equal those of its model, up to rounding.

    Args:
      models: the models. They are read one after another, so that a generator need not hold all of them.

    Returns:
      (models, axes): a Model in which the leaves that differ have a leading axis of worlds, and its `in_axes` for
      `vmap`. Meshes are stored once, however many worlds have them.

    Raises:
      ArgumentError: no models, or models that differ in something else; the message says in what.

    Example:
      models, axes = diffsim.stack([diffsim.load(path) for path in paths])
      states = jax.vmap(diffsim.make_state, in_axes=(axes,))(models)
    """
    library, all_models = MeshLibrary(), _Stacked()
    for number, model in enumerate(models):
        _check_one(model, number)
        all_models.add(_renumbered(model, library.add(model)), number)
    if not all_models.topologies:
        raise ArgumentError("stack: give at least one model")
    return all_models.joined(library)


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


class _Stacked:
    """The models so far, without their meshes."""

    def __init__(self) -> None:
        self.topologies: list[Topology] = []
        self._leaves: list[dict[str, np.ndarray]] = []
        self._first: Model

    def add(self, model: Model, number: int) -> None:
        """Adds a model; raises ArgumentError if it differs from the first one in what all must share."""
        if not self.topologies:
            self._first = model
        _check_equal(self._first, model, number)
        self.topologies.append(model.topology)
        names, leaves, _ = _leaves(model)
        # meshes are in the library
        kept = {
            name: np.asarray(leaf) for name, leaf in zip(names, leaves, strict=True) if not name.startswith(PREFIXES)
        }
        self._leaves.append(kept)

    def joined(self, library: MeshLibrary) -> tuple[Model, Model]:
        """The batch of models and its axes."""
        meshes = library.fields()
        topology, chosen = self._topology(meshes)
        names, leaves, tree = _leaves(dataclasses.replace(self._first, topology=topology))
        stacked: dict[str, np.ndarray] = meshes.floats
        for name in self._leaves[0]:
            values = np.array([of_model[name] for of_model in self._leaves])
            # leaves that are equal in all models have no axis of worlds
            if np.any(values != values[:1]):
                stacked[name] = values
        if topology.nvariant:
            stacked["variant_mesh"] = chosen
        dtype = self._first.qpos0.dtype
        values = [
            jnp.asarray(stacked[name], dtype) if name in stacked else leaf
            for name, leaf in zip(names, leaves, strict=True)
        ]
        models = jax.tree_util.tree_unflatten(tree, values)
        return models, model_axes(models)

    def _topology(self, meshes: MeshFields) -> tuple[Topology, np.ndarray]:
        """The common topology, and the mesh of each geom whose mesh differs, for each model."""
        first = self.topologies[0]
        assets = np.array([topology.geom_dataid for topology in self.topologies])
        geoms = np.flatnonzero(np.any(assets != assets[:1], axis=0))
        for geom in geoms.tolist():
            kind = GeomType(int(first.geom_type[geom]))
            if kind != GeomType.MESH:
                name = first.name("geom", geom) or geom
                raise ArgumentError(
                    f"stack: geom {name!r} of type {kind.name.lower()} has several meshes or height fields"
                )
        joined = {
            name: join([getattr(topology, name) for topology in self.topologies]) for name, join in JOINED.items()
        }
        present = {
            name: np.asarray(np.any([topology.present[name] for topology in self.topologies], axis=0))
            for name in first.present
        }
        topology = dataclasses.replace(
            first,
            **meshes.integers,
            **joined,
            present=present,
            names={**first.names, "mesh": meshes.names},
            variant_geomid=tuple(geoms.tolist()),
            variant_meshid=tuple(tuple(np.unique(assets[:, geom]).tolist()) for geom in geoms),
        )
        return topology, assets[:, geoms]


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

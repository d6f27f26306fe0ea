"""pack: makes a Model from a table of numpy arrays under mjModel's names.

The compiler's passes and `from_mujoco` fill the same table. Only this module converts numpy arrays to JAX arrays.
"""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

import jax
import numpy as np

from diffsim.actuator.laws import state_slots
from diffsim.base import changes
from diffsim.base.enums import Cone, EnableBit, Integrator, Jacobian, Solver, WrapType
from diffsim.compiler.elements.plugins import own_states
from diffsim.compiler.precision import WATCHED, condition
from diffsim.flex.rest_shape import element_reach
from diffsim.geometry.hfield import cells_spanned
from diffsim.simulate.sleep import AWAKE
from diffsim.types.energy import energy_masks
from diffsim.types.model import Headlight, Model, Option, Statistic, Visual, switch_fields
from diffsim.types.topology import Topology

Fields = Mapping[str, Any]

# fields of Topology that mjModel does not have
OWN = {
    "names",
    "texts",
    "max_contacts",
    "max_pairs",
    "present",
    "actuator_actslots",
    "wrap_sideid",
    "geom_fieldcells",
    "sdf_names",
    "plugins",
    "nsleep",
    "nfrozen",
    "tree_asleep0",
    "sensordata_asleep0",
    "variant_geomid",
    "variant_meshid",
}

# options that are enums
CHOICES = {"integrator": Integrator, "cone": Cone, "jacobian": Jacobian, "solver": Solver}


def pack(
    fields: Fields,
    names: Mapping[str, tuple[str, ...]],
    texts: tuple[str, ...] = (),
    max_contacts: int | None = None,
    max_pairs: int | None = None,
    keep: Collection[str] = (),
    like: Topology | None = None,
    draft: bool = False,
) -> Model:
    """Makes a Model.

    Args:
      fields: all sizes and all integer and float fields of `Topology` and `Model`, by mjModel's name and shape;
        options, statistics and the headlight are mappings `fields["opt"]`, `fields["stat"]` and `fields["headlight"]`.
      names: names by kind (`diffsim.types.kinds.KINDS`), one for each object; empty for objects without a name.
      texts: contents of the custom texts.
      max_contacts, max_pairs: capacities; None for the rule of `diffsim.collision`.
      keep: names of switch fields that stay in the program even if they are zero. The terms of other switch fields are
        left out where they are zero.
      like: an earlier topology, which is used again if it has the same content.
      draft: whether the leaves are numpy arrays, in float64 except for arrays of meshes, which keep their precision.
        This saves copies of large arrays where the model only gives derived constants (`derive`).

    Returns:
      The Model, with floats on the default device and in the default precision.

    Raises:
      ValueError: `keep` has a name that is not a switch field.
    """
    integers: dict[str, Any] = {f.name: fields[f.name] for f in dataclasses.fields(Topology) if f.name not in OWN}
    for name, value in integers.items():
        integers[name] = np.asarray(value) if isinstance(value, np.ndarray | list | tuple) else int(value)
    # for actuator_actslots: for each state variable of an actuator's law, its index in act
    kinds, numbers = (np.asarray(fields[f"actuator_{name}"]).reshape(-1) for name in ("dyntype", "actnum"))
    dynprm, gainprm = (np.asarray(fields[f"actuator_{name}"]).reshape(-1, 10) for name in ("dynprm", "gainprm"))
    # indices of side sites, which mjModel stores among the float parameters of a wrap
    around = np.isin(fields["wrap_type"], (WrapType.SPHERE, WrapType.CYLINDER))
    sides = np.where(around, np.rint(fields["wrap_prm"]), -1).astype(np.int32)
    reach = np.concatenate([np.asarray(fields["geom_rbound"], float).ravel(), element_reach(fields)])
    content = dict(
        **integers,
        names=dict(names),
        texts=tuple(texts),
        max_contacts=max_contacts,
        max_pairs=max_pairs,
        present=present(fields, keep),
        actuator_actslots=state_slots(kinds, numbers, dynprm, gainprm, own_states(fields)),
        wrap_sideid=sides,
        geom_fieldcells=cells_spanned(fields, reach),
        sdf_names=fields["sdf_names"],
        plugins=tuple(fields["plugins"]),
        nsleep=0,
        nfrozen=0,
        tree_asleep0=fields.get("tree_asleep0", np.full(int(fields["ntree"]), AWAKE)),
        sensordata_asleep0=fields.get("sensordata_asleep0", np.zeros(int(fields["nsensordata"]))),
    )
    topology = Topology(**content) if like is None else like.changed(content)
    if int(fields["opt"]["enableflags"]) & EnableBit.SLEEP:
        topology = topology.sleeping()
    opt, stat = fields["opt"], fields["stat"]
    static = [f.name for f in dataclasses.fields(Option) if f.metadata.get("static")]
    choices: dict[str, Any] = {name: int(opt[name]) for name in static if name in opt}
    # the version of MuJoCo whose semantics the model has
    choices["mujoco"] = fields.get("mujoco", changes.DEFAULT)
    choices.update({name: kind(choices[name]) for name, kind in CHOICES.items()})
    leaves: dict[str, Any] = {}
    placed: dict[str, Any]
    for field in _leaves(Model):
        array = np.asarray(fields[field.name])
        sizes = [getattr(topology, s, -1) if isinstance(s, str) else s for s in field.metadata["shape"]]
        # sizes that the topology does not have follow from the array
        leaves[field.name] = array.reshape([len(array) if size < 0 else size for size in sizes])
    if draft:
        placed = {
            name: array if name.startswith("mesh_") else np.asarray(array, float) for name, array in leaves.items()
        }
    else:
        placed = dict(zip(leaves, _on_device(*leaves.values()), strict=True))
    return Model(
        topology=topology,
        opt=Option(**_placed(Option, opt), **choices),
        stat=Statistic(**_placed(Statistic, stat)),
        vis=Visual(headlight=Headlight(**_placed(Headlight, fields["headlight"]))),
        **placed,
    )


def present(fields: Fields, keep: Collection[str]) -> dict[str, np.ndarray]:
    """For each switch field, a mask of the elements for which the program needs code."""
    unknown = set(keep) - set(switch_fields())
    if unknown:
        raise ValueError(f"keep: {sorted(unknown)[0]!r} is not a switch field; these are: {', '.join(switch_fields())}")
    tables = {Model: fields, Option: fields["opt"]}
    values = {name: np.asarray(tables[cls][name]) for name, cls in switch_fields().items()}
    masks = {name: np.asarray((value != 0) | (name in keep)) for name, value in values.items()}
    # programs of models with an ill-conditioned inertia matrix have more code (solver/conditioning.py)
    measure = condition(fields)
    masks["ill_conditioned"] = np.full(len(measure), np.any(measure > WATCHED))
    # integrators that are implicit in velocity solve with another factorization (simulate/integrate/integrators.py)
    masks |= energy_masks(fields)
    # the metric of the integrator `discrete` can couple trees (simulate/metric.py)
    masks["one_block"] = np.full(1, int(fields["opt"]["integrator"]) == Integrator.DISCRETE)
    return masks


def _leaves(cls: type) -> list[dataclasses.Field]:
    return [f for f in dataclasses.fields(cls) if "shape" in f.metadata]


def _placed(cls: type, values: Fields) -> dict[str, jax.Array]:
    """The leaves of a small record, by name, on the default device."""
    names = [field.name for field in _leaves(cls)]
    return dict(zip(names, _on_device(*(values[name] for name in names)), strict=True))


def _on_device(*arrays: Any) -> list[jax.Array]:
    """Copies on the default device in the default precision; `jnp.asarray` would compile 10 ms for each new shape."""
    kind = jax.dtypes.canonicalize_dtype(float)
    # only infinite ranges overflow here: all other numbers have been checked
    with np.errstate(over="ignore"):
        return jax.device_put([np.array(array, kind) for array in arrays])

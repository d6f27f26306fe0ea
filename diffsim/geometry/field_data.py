"""Data of geoms of type sdf: the parameters of their field, a box around it, and how contacts are searched.

Each geom has its own. Which function a field is stands in the class of its record (`FIELD_OF`), so that a program
knows it; parameters are numbers of the model.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.geometry.field_functions import FUNCTIONS
from diffsim.geometry.primitive_fields import Field
from diffsim.types.model import Model
from diffsim.types.topology import Topology

Array = jax.Array
Sizes = tuple[int, ...]


class FieldData(NamedTuple):
    """A distance field in the frame of its geom.

    `parameters` (5,) of its function. `box` (6,): center and half sides, m, of a box around its surface. `starts`
    (s, 3), from 0 to 1: where in a box searches begin. `steps` (k,): of each search.
    """

    parameters: Array
    box: Array
    starts: Array
    steps: Array


RECORDS: dict[str, type[FieldData]] = {
    name: type(name.split(".")[-1].title() + "Data", (FieldData,), {"__slots__": ()}) for name in FUNCTIONS
}
FIELD_OF: dict[type, Field] = {RECORDS[name]: function.field for name, function in FUNCTIONS.items()}


def field_number(topology: Topology, geom: int) -> Sizes:
    """The number of a geom's function, in place of padded sizes: geoms with the same function share a program."""
    return (int(topology.geom_sdf[geom]),)


def fields(model: Model, geoms: tuple[int, ...], sizes: Sizes) -> FieldData:
    """The fields of some geoms, stacked."""
    index = np.array(geoms)
    starts = jnp.asarray(halton(model.opt.sdf_initpoints), model.geom_aabb.dtype)
    search = (starts, jnp.arange(model.opt.sdf_iterations))
    each = (jnp.broadcast_to(part, (len(index), *part.shape)) for part in search)
    return list(RECORDS.values())[sizes[0]](model.geom_sdfparam[index], model.geom_aabb[index], *each)


def halton(count: int) -> np.ndarray:
    """The first points (count, 3) of Halton's sequence with bases 2, 3 and 5; the first is 0."""
    points = np.zeros((count, 3))
    for axis, base in enumerate((2, 3, 5)):
        number, digit = np.arange(count), 1 / base
        while number.any():
            points[:, axis] += digit * (number % base)
            number, digit = number // base, digit / base
    return points

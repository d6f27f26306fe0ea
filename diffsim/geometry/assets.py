"""The mesh or height field of each geom. Meshes may differ between the worlds of a batch (simulate/stack.py)."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.types.model import Model


def geom_assets(model: Model) -> np.ndarray | Array:
    """The mesh or height field of each geom (ngeom,), -1 for none; an Array if meshes differ between worlds."""
    topology = model.topology
    if not topology.nvariant:
        return topology.geom_dataid
    chosen = jax.lax.stop_gradient(model.variant_mesh).astype(jnp.int32)
    return jnp.asarray(topology.geom_dataid).at[np.array(topology.variant_geomid)].set(chosen)

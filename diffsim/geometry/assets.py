"""The mesh or height field of each geom, and which geoms exist.

Both may differ between the worlds of a batch (simulate/stack.py).
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.types.model import Model


def geom_assets(model: Model) -> np.ndarray | Array:
    """The mesh or height field of each geom (ngeom,), -1 for none; an Array if meshes differ between worlds.

    A geom that does not exist in this world gets any of its meshes.
    """
    topology = model.topology
    if not topology.nvariant:
        return topology.geom_dataid
    geoms = np.array(topology.variant_geomid)
    chosen = jax.lax.stop_gradient(model.variant_mesh).astype(jnp.int32)
    chosen = jnp.where(chosen >= 0, chosen, topology.geom_dataid[geoms])
    return jnp.asarray(topology.geom_dataid).at[geoms].set(chosen)


def geoms_exist(model: Model) -> Array | None:
    """Which geoms (ngeom,) exist in this world; None if all geoms exist in all worlds."""
    topology = model.topology
    if not any(-1 in meshes for meshes in topology.variant_meshid):
        return None
    chosen = jax.lax.stop_gradient(model.variant_mesh)
    return jnp.ones(topology.ngeom, bool).at[np.array(topology.variant_geomid)].set(chosen >= 0)

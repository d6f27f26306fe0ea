"""Hooks: the user's own forces, laws, sensors, distance fields and contact filter, as pure functions of the program.

    model = model.replace(hooks=Hooks(passive=lambda model, state, data: -0.1 * state.qvel))

Hooks are static: the same functions share a compilation, new ones start another. They see the model, the state, and
a Data that holds what has been computed so far (positions and velocities); the rest of it is None.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

# (topology, geom1, geom2) -> truths
Filter = Callable[[Any, np.ndarray, np.ndarray], np.ndarray]
# (model, state, data) -> array
Hook = Callable[[Any, Any, Any], jax.Array]
# (model, state, inputs, data) -> array
DrivenHook = Callable[[Any, Any, Any, Any], jax.Array]
# (point, parameters) -> distance
DistanceField = Callable[[jax.Array, jax.Array], jax.Array]
NamedFields = tuple[tuple[str, DistanceField], ...]


@dataclasses.dataclass(frozen=True)
class Hooks:
    """Callables of the user; None where there is none (MuJoCo's mjcb_*).

    Attributes:
      passive: (nv,) force added to qfrc_passive, N or N m.
      act_dyn: (na,) d act / dt, per second, of which those of actuators with dyntype `user` are used.
      act_gain: (nu,) force per signal (control or activation), of which those with gaintype `user` are used.
      act_bias: (nu,) force, N or N m, of which those with biastype `user` are used.
      sensor: (nsensordata,) of which those of sensors of type `user` are used, before their cutoff; its Data holds all
        but sensors. Without it they read zero.
      contact_filter: (n,) bool, True for pairs of geoms that shall not touch, from (topology, geom1, geom2) with ids in
        numpy: called once for a program, with the pairs that their bodies allow; stands in for contype and conaffinity
        of geoms (mjcb_contactfilter). Explicit pairs are not asked about. The buffer has no room for what is left out.
      sdf: signed distance fields of sdf geoms whose `<plugin>` is not MuJoCo's, by the name of the plugin. Each takes a
        point (3,), m, in the frame in which the mesh of the geom is written, and the numbers (k,) of the plugin's
        `<config>`s in their order; it returns the distance (), m, negative inside, which grows by at most 1 m a metre.
        Mass, bounds, pictures and contacts with planes are the mesh's. Kept as pairs of names and functions.
    """

    passive: Hook | None = None
    act_dyn: DrivenHook | None = None
    act_gain: DrivenHook | None = None
    act_bias: DrivenHook | None = None
    sensor: DrivenHook | None = None
    contact_filter: Filter | None = None
    sdf: Mapping[str, DistanceField] | NamedFields | None = None

    def __post_init__(self) -> None:
        if self.sdf is not None:
            object.__setattr__(self, "sdf", tuple(sorted(dict(self.sdf).items())))

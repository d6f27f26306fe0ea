"""Hooks: the user's own forces, actuator laws and sensors, as pure functions that become part of the program.

    model = model.replace(hooks=Hooks(passive=lambda model, state, data: -0.1 * state.qvel))

Hooks are static: the same functions share a compilation, new ones start another. They see the model, the state, and
a Data that holds what has been computed so far (positions and velocities); the rest of it is None.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax

# (model, state, data) -> array
Hook = Callable[[Any, Any, Any], jax.Array]
# (model, state, inputs, data) -> array
DrivenHook = Callable[[Any, Any, Any, Any], jax.Array]


@dataclasses.dataclass(frozen=True)
class Hooks:
    """Callables of the user; None where there is none (MuJoCo's mjcb_passive, mjcb_act_*, mjcb_sensor).

    Attributes:
      passive: (nv,) force added to qfrc_passive, N or N m.
      act_dyn: (na,) d act / dt, per second, of which those of actuators with dyntype `user` are used.
      act_gain: (nu,) force per signal (control or activation), of which those with gaintype `user` are used.
      act_bias: (nu,) force, N or N m, of which those with biastype `user` are used.
      sensor: (nsensordata,) of which those of sensors of type `user` are used, before their cutoff; its Data holds all
        but sensors. Without it they read zero.
    """

    passive: Hook | None = None
    act_dyn: DrivenHook | None = None
    act_gain: DrivenHook | None = None
    act_bias: DrivenHook | None = None
    sensor: DrivenHook | None = None

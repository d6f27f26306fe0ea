"""Contacts felt from a distance, by derivatives only: soft rows for contact slots that are apart by less than a reach.

Before touch a contact has no force and no derivative, and an optimizer that has to make a contact learns nothing. Here
a slot at distance 0 < dist < reach acts as a weak contact whose surface lies `reach` further out: its violation is
dist - margin - reach, and its impedance falls from SOFTEST at touch to almost nothing at the reach. Slots that really
touch are as they were. The forward pass never sees these rows (solver/felt.py). Source: Paulus et al. 2025, "Hard
contacts with soft gradients" (contacts from distance).
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from diffsim.constraint.assemble import assemble
from diffsim.constraint.rows import RawRows, Sources
from diffsim.types.constraints import Law, RowGroup

Array = jax.Array

# impedance at touch, and the power with which it falls
SOFTEST, POWER = 0.01, 2.0


def with_distant(source: Sources, family: str, law: Law, raw: RawRows, start: int) -> RowGroup:
    """A group of contacts, with soft rows in the place of those that are apart by less than `source.reach` (m)."""
    assert source.reach is not None
    near = assemble(source, family, law, _distant(raw, source.reach), start)
    touching = assemble(source, family, law, raw, start)

    def choose(name: str) -> Array:
        return jnp.where(raw.active[None], getattr(touching, name), getattr(near, name))

    return dataclasses.replace(touching, D=choose("D"), aref=choose("aref"))


def _distant(raw: RawRows, reach: float) -> RawRows:
    """The same slots with their surfaces moved out, soft, and off where they touch or are too far away."""
    surface = raw.margin + reach
    soft: Any = jnp.asarray([0.0, SOFTEST, reach, 0.5, POWER], raw.solimp.dtype)
    return raw._replace(
        margin=surface,
        active=~raw.active & (raw.pos < surface),
        solimp=jnp.broadcast_to(soft[None], raw.solimp.shape),
    )

"""Contacts felt from a distance, by derivatives only: soft rows for contact slots that are apart by less than a reach.

Before touch a contact has no force and no derivative, and an optimizer that has to make a contact learns nothing. Here
a slot at distance 0 < dist < reach has one more row, along its normal and without friction: the same contact, whose
surface lies `reach` further out and whose impedance rises far more slowly, over SLOWER reaches. At r = reach - dist
that is d = 2 dmax (r / (SLOWER reach))^2, 1% at touch. Stiffness K and damping B stay those of the contact, so that
bodies of mass m push each other by about m d (K d r - B v): weak beside the forces that the motion has, as it must be,
since the motion knows nothing of it. (With a dmax of 1%, K and B would be 10^4 and 10^2 times as large, and edges of
pyramids are stiffer by 1 / mu^2: derivatives then grow exponentially.) The forward pass never sees these rows
(solver/contact_reach.py). Source: Paulus et al. 2025, "Hard contacts with soft gradients" (contacts from distance).
"""

import jax
import jax.numpy as jnp

from diffsim.base.errors import Problem, UnsupportedError
from diffsim.constraint.rows import RawRows
from diffsim.math.linalg import BlockColumns

Array = jax.Array

# reaches over which the impedance rises to its own dmax, the midpoint and the power of this rise
SLOWER, MIDPOINT, POWER = 14.0, 0.5, 2.0


def distant(contacts: RawRows, reach: float) -> RawRows:
    """The normal rows of slots that do not act and are nearer than `reach` (m), as weak contacts without friction.

    Raises:
      UnsupportedError: contacts of flexes.
    """
    if not isinstance(contacts.jacobian, BlockColumns):
        reason = "contacts of flexes are not felt from a distance; set contact_reach to 0"
        raise UnsupportedError([Problem("", 0, "<option contact_reach>", reason, unsupported=True)])
    surface, dmax = contacts.margin + reach, contacts.solimp[:, 1]
    width, midpoint, power = (jnp.full_like(dmax, value) for value in (SLOWER * reach, MIDPOINT, POWER))
    count, blocks = contacts.pos.size, contacts.jacobian.blocks
    return RawRows(
        pos=contacts.pos,
        margin=surface,
        active=~contacts.active & (contacts.pos < surface),
        diagonal=contacts.diagonal,
        solref=contacts.solref,
        solimp=jnp.stack([jnp.zeros_like(dmax), dmax, width, midpoint, power], axis=1),
        joins=contacts.joins,
        # normals come first
        jacobian=BlockColumns(blocks, tuple(part[:, :count] for part in contacts.jacobian.parts)),
    )

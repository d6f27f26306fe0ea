"""Contact detection: candidate pairs, pair functions, the contact buffer and its parameters."""

from diffsim.collision.capacity import capacities_of_numerics
from diffsim.collision.colliding import colliding_frames
from diffsim.collision.layout import ContactLayout, contact_layout
from diffsim.collision.narrowphase import collide
from diffsim.collision.pairs import unsupported_pairs

__all__ = [
    "ContactLayout",
    "capacities_of_numerics",
    "collide",
    "colliding_frames",
    "contact_layout",
    "unsupported_pairs",
]

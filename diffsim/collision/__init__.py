"""Contact detection: candidate pairs, pair functions, the contact buffer and its parameters."""

from diffsim.collision.flex_contacts import collide_flexes
from diffsim.collision.flex_slots import slots_of
from diffsim.collision.layout import ContactLayout, contact_layout
from diffsim.collision.narrowphase import collide, colliding_frames
from diffsim.collision.pairs import capacities_of_numerics, unsupported_pairs

__all__ = [
    "ContactLayout",
    "capacities_of_numerics",
    "collide",
    "collide_flexes",
    "colliding_frames",
    "contact_layout",
    "slots_of",
    "unsupported_pairs",
]

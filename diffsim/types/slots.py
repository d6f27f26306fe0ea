"""The static layout of the contact buffer: the contact dimension, bodies and flexes of each slot.

collision/ makes the layout. Slots for contacts of geoms come first, then slots for contacts of flexes; both are ordered
by contact dimension. Constraint rows, islands and views read this layout and the buffer, and do not depend on how
contacts are found.
"""

import dataclasses
from typing import NamedTuple

import jax
import numpy as np


class Slots(NamedTuple):
    """The slots [start, stop) of the buffer, whose contacts have the dimension `dim`.

    `deepest_first`: whether contacts compete for these slots, and are sorted by depth; else each slot has its own pair.
    """

    dim: int
    start: int
    stop: int
    deepest_first: bool = False


class Meeting(NamedTuple):
    """A flex and a body whose geoms can touch it: all m possible contacts, in MuJoCo's order.

    Attributes:
      flex: the flex.
      geoms: (n,) the geoms of the body.
      geom, vert, elem: (m,) geom, vertex and element of each possible contact, -1 for none. For height fields and
        distance fields, vertices and elements are -1, because they are known only at run time.
      corner: (4, m) the vertices that move each contact, as indices among the vertices of all flexes, -1 for none.
      touching: the elements among which contacts are searched.
    """

    flex: int
    geoms: np.ndarray
    geom: np.ndarray
    vert: np.ndarray
    elem: np.ndarray
    corner: np.ndarray
    touching: np.ndarray

    @property
    def searched(self) -> bool:
        """Whether the elements of some contacts are known only at run time."""
        return bool(np.any((self.vert < 0) & (self.elem < 0)))


class FlexMeeting(NamedTuple):
    """Two flexes that can touch, or a flex and itself.

    With `internal`, the slots are only for contacts between the flex's vertices and the elements next to them.
    """

    first: int
    flex: int
    internal: bool = False


class FlexSlots(NamedTuple):
    """The slots [start, stop) for the contacts of a flex with a body or with a flex, all with the dimension `dim`.

    Contacts that are `passive` act as springs and not as constraints.
    """

    meeting: Meeting | FlexMeeting
    passive: bool
    dim: int
    start: int
    stop: int

    @property
    def flexes(self) -> tuple[int, int]:
        """The flexes on both sides of the contacts, -1 for a geom."""
        return (self.meeting.first if isinstance(self.meeting, FlexMeeting) else -1), self.meeting.flex

    @property
    def size(self) -> int:
        """Number of slots."""
        return self.stop - self.start


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True, eq=False)
class ContactSlots:
    """The layout of a model's contact buffer.

    Attributes:
      geoms: slots for contacts of geoms, one entry per contact dimension.
      body: (n, 2) the two bodies of each of these slots; None if pairs of bodies share slots.
      flexes: slots for contacts of flexes.
    """

    geoms: tuple[Slots, ...]
    body: np.ndarray | None
    flexes: tuple[FlexSlots, ...]

    @property
    def dim(self) -> np.ndarray:
        """(ncon,) contact dimension of each slot."""
        runs = [np.full(run.stop - run.start, run.dim, np.int32) for run in (*self.geoms, *self.flexes)]
        return np.concatenate([np.zeros(0, np.int32), *runs])

    def of_flexes(self, passive: bool = False) -> list[tuple[FlexSlots, ...]]:
        """Slots for contacts of flexes, grouped by contact dimension: those that are `passive`, or all others."""
        runs = [run for run in self.flexes if run.passive == passive]
        return [tuple(run for run in runs if run.dim == dim) for dim in sorted({run.dim for run in runs})]

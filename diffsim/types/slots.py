"""What each slot of the contact buffer is for: its dimension, bodies and flexes. Static; collision/ makes it.

Slots of geoms come first, then slots of flexes; both are ordered by contact dimension. Rows of contacts, islands and
views read this and the buffer, and do not depend on how contacts are found.
"""

import dataclasses
from typing import NamedTuple

import jax
import numpy as np


class Slots(NamedTuple):
    """Slots [start, stop) of the buffer have dimension `dim`."""

    dim: int
    start: int
    stop: int


class Meeting(NamedTuple):
    """A flex and a body with geoms that touch it: all possible contacts, in MuJoCo's order.

    Attributes:
      flex, geoms: the flex, and the geoms (n,) of the body.
      geom, vert, elem: (m,) the geom, vertex and element of each contact, -1 for none. Contacts with height fields and
        distance fields have neither vertex nor element until they are found.
      corner: (4, m) the vertices that move each contact, by their index among all vertices, -1 for none.
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
        """Whether the elements of some contacts are found at run time."""
        return bool(np.any((self.vert < 0) & (self.elem < 0)))


class FlexMeeting(NamedTuple):
    """Two flexes that meet, or a flex and itself; `internal`: only its vertices and the elements next to them."""

    first: int
    flex: int
    internal: bool = False


class FlexSlots(NamedTuple):
    """Slots [start, stop) for one contact dimension of a meeting, after the slots of geoms; `passive`: for springs."""

    meeting: Meeting | FlexMeeting
    passive: bool
    dim: int
    start: int
    stop: int

    @property
    def flexes(self) -> tuple[int, int]:
        """The flexes of both sides, -1 for a geom."""
        return (self.meeting.first if isinstance(self.meeting, FlexMeeting) else -1), self.meeting.flex

    @property
    def size(self) -> int:
        """Number of slots."""
        return self.stop - self.start


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True, eq=False)
class ContactSlots:
    """The contact buffer of a model.

    Attributes:
      geoms: runs of slots, each of one dimension.
      body: (n, 2) the bodies of these slots; None unless each slot belongs to one pair of bodies.
      flexes: slots of contacts of flexes, after those of geoms.
    """

    geoms: tuple[Slots, ...]
    body: np.ndarray | None
    flexes: tuple[FlexSlots, ...]

    @property
    def dim(self) -> np.ndarray:
        """(ncon,) contact dimensions."""
        runs = [np.full(run.stop - run.start, run.dim, np.int32) for run in (*self.geoms, *self.flexes)]
        return np.concatenate([np.zeros(0, np.int32), *runs])

    def of_flexes(self, passive: bool = False) -> list[tuple[FlexSlots, ...]]:
        """Slots of contacts of flexes by dimension: contacts that are springs (`passive`), or all others."""
        runs = [run for run in self.flexes if run.passive == passive]
        return [tuple(run for run in runs if run.dim == dim) for dim in sorted({run.dim for run in runs})]

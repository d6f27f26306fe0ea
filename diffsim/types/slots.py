"""What each slot of the contact buffer is for: which dimension, which bodies, which flexes. Static, made by collision/.

Slots of geoms come first, then those of flexes; both are ordered by contact dimension. Rows of contacts, islands and
views read this and the buffer, and need not know how contacts are found.
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
    """A flex and a body, whose geoms (n,) touch it: all rows of contacts that there can be, in MuJoCo's order.

    Of each row (m,) the geom, vertex and element, -1 for none, and the vertices (4, m) by their number among all, -1
    for none. Rows of height fields and distance fields have none of either until they are found, among the `touching`
    elements.
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
        """Whether elements of some rows are found when it runs."""
        return bool(np.any((self.vert < 0) & (self.elem < 0)))


class FlexMeeting(NamedTuple):
    """Two flexes that meet, or one and itself; `internal`: only its vertices and the elements beside them."""

    first: int
    flex: int
    internal: bool = False


class FlexSlots(NamedTuple):
    """Slots [start, stop), behind those of geoms, for one contact dimension of a meeting; `passive`: for springs."""

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
        """How many slots these are."""
        return self.stop - self.start


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True, eq=False)
class ContactSlots:
    """The contact buffer of a model.

    `geoms`: runs of slots of one dimension each. `body` (n, 2): the bodies of these slots, where each always belongs to
    one pair, else None. `flexes`: slots of contacts of flexes, behind.
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
        """Slots of contacts of flexes by dimension: those that are springs, or all others."""
        runs = [run for run in self.flexes if run.passive == passive]
        return [tuple(run for run in runs if run.dim == dim) for dim in sorted({run.dim for run in runs})]

"""Rollout: what many steps in a row give."""

from collections.abc import Iterator
from typing import Any

import jax

from diffsim.types.record import Record, child, leaf, record
from diffsim.types.state import State

Array = jax.Array


@record
class Rollout(Record):
    """The final state and the readouts of all steps, which it unpacks to: `final, readouts = diffsim.rollout(...)`.

    `status` has the bits of `diffsim.base.enums.Status` that any of the steps has set, explained by `diffsim.check`.
    """

    final: State = child()
    readouts: Any = child()
    status: Array = leaf(dtype=int)

    def __iter__(self) -> Iterator[Any]:
        return iter((self.final, self.readouts))

    def __getitem__(self, index: int) -> Any:
        return (self.final, self.readouts)[index]

    def __len__(self) -> int:
        return 2

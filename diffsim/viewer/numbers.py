"""Numbers: arrays in one buffer of bytes, to which a header of plain values points."""

import dataclasses
from typing import Any

import numpy as np


@dataclasses.dataclass
class Numbers:
    """A buffer that arrays are put into, one after another."""

    parts: list[bytes] = dataclasses.field(default_factory=list)
    size: int = 0

    def put(self, array: np.ndarray) -> dict[str, Any]:
        """Appends an array; says where it is: its type, first byte and number of elements."""
        place = {"kind": str(array.dtype), "start": self.size, "count": int(array.size)}
        data = np.ascontiguousarray(array).tobytes()
        # typed arrays of a browser begin at multiples of their element's size
        data += bytes(-len(data) % 4)
        self.parts.append(data)
        self.size += len(data)
        return place

    def put_quaternions(self, quat: np.ndarray) -> dict[str, Any]:
        """Appends unit quaternions, as int16."""
        return self.put(np.round(32767 * np.clip(quat, -1, 1)).astype(np.int16))

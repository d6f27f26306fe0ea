"""A warp (warp.py) that is interpreted: its instructions on numpy arrays, where there is no GPU.

A value is an array (worlds, 32), or (worlds, 1) of what is in all lanes. Memory is (worlds, size).
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from diffsim.xla.kernels.warp import LANES, Kernel

# operations by JAX's names of them
NUMPY: dict[str, Callable[..., np.ndarray]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "neg": np.negative,
    "abs": np.abs,
    "sqrt": np.sqrt,
    "max": np.maximum,
    "min": np.minimum,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "not": np.logical_not,
    "select_n": lambda truth, otherwise, value: np.where(truth, value, otherwise),
    "convert_element_type": lambda x: x.astype(np.float32),
}


def interpret(
    kernel: Kernel, operands: Sequence[Any], results: Sequence[jax.ShapeDtypeStruct]
) -> list[np.ndarray]:
    """What `warp.call` computes."""
    worlds = results[0].shape[0]
    arrays = [np.broadcast_to(np.asarray(x).reshape(len(x), -1), (worlds, math.prod(x.shape[1:]))) for x in operands]
    # what is not written is not a number
    with np.errstate(all="ignore"):
        written = [np.full((worlds, math.prod(x.shape[1:])), np.nan).astype(x.dtype) for x in results]
        kernel(Interpreter(worlds), *arrays, *written)
    return [x.reshape(result.shape) for x, result in zip(written, results, strict=True)]


class Interpreter:
    """The machine of some worlds."""


    def __init__(self, worlds: int) -> None:
        self.worlds = worlds

    def zero(self) -> np.ndarray:
        return np.zeros((self.worlds, LANES), np.float32)

    def load(self, array: np.ndarray, start: int, count: int) -> np.ndarray:
        count = min(count, LANES)
        value = np.zeros((self.worlds, LANES), array.dtype)
        value[:, :count] = array[:, start : start + count]
        return value

    def scalar(self, array: np.ndarray, place: int) -> np.ndarray:
        return array[:, place : place + 1]

    def store(self, array: np.ndarray, start: int, count: int, value: np.ndarray) -> None:
        count = min(count, LANES)
        array[:, start : start + count] = value[:, :count]

    def moved(self, array: np.ndarray, index: int, stride: int) -> np.ndarray:
        return array[:, index * stride :]

    def _wide(self, value: np.ndarray) -> np.ndarray:
        return np.broadcast_to(value, (self.worlds, LANES))

    def lane(self, value: np.ndarray, lane: int) -> np.ndarray:
        return self._wide(value)[:, lane : lane + 1]

    def lanes(self, value: np.ndarray) -> list[np.ndarray]:
        return [self.lane(value, lane) for lane in range(LANES)]

    def sum(self, value: np.ndarray) -> np.ndarray:
        return np.sum(self._wide(value), axis=1, keepdims=True)

    def put(self, value: np.ndarray, lane: int, number: np.ndarray) -> np.ndarray:
        return np.where(np.arange(LANES) == lane, number, value)

    def from_lane_on(self, value: np.ndarray, lane: int) -> np.ndarray:
        return np.where(np.arange(LANES) >= lane, value, np.float32(0))

    def at_least(self, value: np.ndarray, least: np.ndarray) -> np.ndarray:
        return np.where(value < least, least, value)

    def rsqrt(self, value: np.ndarray) -> np.ndarray:
        return np.float32(1) / np.sqrt(value)

    def loop(self, count: int, body: Callable[[Any, list[Any]], list[Any]], carry: list[Any]) -> list[Any]:
        for index in range(count):
            carry = body(index, carry)
        return carry

    def repeat(
        self, unfinished: Callable[[list[Any]], Any], advance: Callable[[list[Any]], list[Any]], carry: list[Any]
    ) -> list[Any]:
        # a world that is done stays as it is while others go on
        goes_on = np.ones((self.worlds, 1), bool)
        while np.any(goes_on := goes_on & unfinished(carry)):
            carry = [np.where(goes_on, later, now) for now, later in zip(carry, advance(carry), strict=True)]
        return carry

    def elementwise(self, operation: str, *values: Any) -> np.ndarray:
        return NUMPY[operation](*values)

    def constant(self, numbers: np.ndarray) -> np.ndarray:
        return np.broadcast_to(numbers, (self.worlds, numbers.size))

    def shuffled(self, value: np.ndarray, source: np.ndarray) -> np.ndarray:
        return self._wide(value)[:, source]

    def chosen(self, here: np.ndarray, value: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
        return np.where(here, value, otherwise)

    def all(self, truth: np.ndarray) -> np.ndarray:
        return np.all(self._wide(truth), axis=1, keepdims=True)

    def sums(self, values: Sequence[np.ndarray]) -> np.ndarray:
        sums = [np.sum(self._wide(value), axis=1) for value in values]
        return np.stack([*sums, *[np.zeros(self.worlds, np.float32)] * (LANES - len(sums))], axis=1)

    def scratch(self, count: int) -> np.ndarray:
        return np.zeros((self.worlds, count), np.float32)

    def meet(self) -> None:
        pass

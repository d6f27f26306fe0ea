"""A warp, 32 threads of a GPU that work in step, as an instruction set, and its meaning in numpy.

A kernel is a function of a machine and of the arrays of a world; each world has a warp of its own, which keeps all of
its numbers in registers. A value is one number, or one truth, in each of the 32 lanes. Values have +, - and * like
arrays, and 1 / value; for the rest there are the machine's functions. `Ptx` (ptx.py) writes the program of the threads
for a GPU. `Interpreter` runs the same function on numpy arrays, so that a kernel is tested where there is no GPU.

Loops over rows of a matrix are Python's, and so written out; `loop` and `repeat` are loops that the program has.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax
import numpy as np

from diffsim.xla.numpy_rules import rule_of

# threads of a warp
LANES = 32


class Machine(Protocol):
    """What a warp can do besides arithmetic. Arrays are of one world; places in them count numbers."""

    def zero(self) -> Any:
        """0 in all lanes."""
        ...

    def load(self, array: Any, start: int, count: int, stride: int = 1) -> Any:
        """Number `start + stride * lane` of an array, and 0 in lanes from `count` on."""
        ...

    def scalar(self, array: Any, place: int) -> Any:
        """One number of an array, in all lanes."""
        ...

    def scalars(self, array: Any, start: int, count: int) -> Sequence[Any]:
        """Numbers of an array of `scratch`, each in all lanes; `start` is a multiple of four."""
        ...

    def store(self, array: Any, start: int, count: int, value: Any) -> None:
        """Writes the first `count` lanes to an array from `start` on."""
        ...

    def moved(self, array: Any, index: Any, stride: int) -> Any:
        """The array from place `index * stride` on, for the index of a loop."""
        ...

    def lane(self, value: Any, lane: int) -> Any:
        """The number of one lane, in all lanes."""
        ...

    def lanes(self, value: Any) -> Sequence[Any]:
        """The number of each lane, in all lanes."""
        ...

    def sum(self, value: Any) -> Any:
        """The sum over lanes, in all lanes."""
        ...

    def put(self, value: Any, lane: int, number: Any) -> Any:
        """The value with another number in one lane."""
        ...

    def from_lane_on(self, value: Any, lane: int) -> Any:
        """The value, and 0 in lanes before one."""
        ...

    def at_least(self, value: Any, least: Any) -> Any:
        """The larger of two, and nan where the value is."""
        ...

    def rsqrt(self, value: Any) -> Any:
        """1 / sqrt(value) to 2 units in the last place."""
        ...

    def elementwise(self, operation: str, *values: Any) -> Any:
        """The result of an operation on numbers or truths, by JAX's name of it, as `add`, `lt` or `select_n`."""
        ...

    def constant(self, numbers: np.ndarray) -> Any:
        """Known numbers or truths: (32,) one in each lane, or () the same in all lanes."""
        ...

    def shuffled(self, value: Any, source: np.ndarray) -> Any:
        """In each lane the number or truth of the lane that `source` (32,) names."""
        ...

    def chosen(self, here: np.ndarray, value: Any, otherwise: Any) -> Any:
        """One value in the lanes that `here` (32,) names, another in the rest."""
        ...

    def all(self, truth: Any) -> Any:
        """Whether it is true in all lanes, in all lanes."""
        ...

    def sums(self, values: Sequence[Any]) -> Any:
        """In lane k the sum over lanes of value number k, of up to 32 values; 0 in lanes without one."""
        ...

    def scratch(self, count: int) -> Any:
        """An array of the warp's own; what is stored is loaded after `meet`, and stored again after another."""
        ...

    def meet(self) -> None:
        """Waits for all lanes: what any of them has stored is seen by all."""
        ...

    def repeat(
        self, unfinished: Callable[[list[Any]], Any], advance: Callable[[list[Any]], list[Any]], carry: list[Any]
    ) -> list[Any]:
        """`carry = advance(carry)` while `unfinished(carry)`, a truth that all lanes share; each warp by itself."""
        ...

    def loop(self, count: int, body: Callable[[Any, list[Any]], list[Any]], carry: list[Any]) -> list[Any]:
        """`carry = body(index, carry)` for each index."""
        ...


# of a machine, and of the arrays of a world: operands, then results
Kernel = Callable[..., None]


def elementwise(operation: str, *values: np.ndarray) -> np.ndarray:
    """The result of an elementwise operation in numpy, by JAX's name of it; a conversion is to float32."""
    params = {"new_dtype": np.float32} if operation == "convert_element_type" else {}
    rule = rule_of(operation, params)
    assert rule is not None, operation
    return rule(*values)


class Interpreter:
    """The machine of some worlds.

    A value is an array (worlds, 32), or (worlds, 1) of what is in all lanes. Memory is (worlds, size).
    """

    def __init__(self, worlds: int) -> None:
        self.worlds = worlds

    def zero(self) -> np.ndarray:
        return np.zeros((self.worlds, LANES), np.float32)

    def load(self, array: np.ndarray, start: int, count: int, stride: int = 1) -> np.ndarray:
        count = min(count, LANES)
        value = np.zeros((self.worlds, LANES), array.dtype)
        value[:, :count] = array[:, start : start + stride * count : stride]
        return value

    def scalars(self, array: np.ndarray, start: int, count: int) -> list[np.ndarray]:
        return [self.scalar(array, start + place) for place in range(count)]

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
        return elementwise(operation, *values)

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


def interpret(kernel: Kernel, operands: Sequence[Any], results: Sequence[jax.ShapeDtypeStruct]) -> list[np.ndarray]:
    """What `ptx.call` computes, by numpy."""
    worlds = results[0].shape[0]
    arrays = [np.broadcast_to(np.asarray(x).reshape(len(x), -1), (worlds, math.prod(x.shape[1:]))) for x in operands]
    # what is not written is not a number
    with np.errstate(all="ignore"):
        written = [np.full((worlds, math.prod(x.shape[1:])), np.nan).astype(x.dtype) for x in results]
        kernel(Interpreter(worlds), *arrays, *written)
    return [x.reshape(result.shape) for x, result in zip(written, results, strict=True)]

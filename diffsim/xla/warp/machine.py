"""The instruction set of a warp, which is 32 threads ("lanes") of a GPU that work in step; and its meaning in numpy.

A kernel is a function of a machine and of the arrays of one world; each world has its own warp. A value is a register:
one number or boolean in each of the 32 lanes. Values support +, -, * and 1 / value; all other operations are methods of
the machine. There are two machines. `Ptx` (ptx.py) writes a program for a GPU. `Interpreter` runs the same function
with numpy arrays, so that kernels can be tested without a GPU.

Python's loops in a kernel are unrolled; `loop` and `repeat` become loops of the program.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax
import numpy as np

from diffsim.xla.numpy_rules import rule_of

# number of threads of a warp
LANES = 32


class Machine(Protocol):
    """The instructions of a warp. Arrays belong to one world, and positions in them count elements."""

    def zero(self) -> Any:
        """0 in all lanes."""
        ...

    def load(self, array: Any, start: int, count: int, stride: int = 1) -> Any:
        """Element `start + stride * lane` of an array, and 0 in lanes from `count` on."""
        ...

    def scalar(self, array: Any, place: int) -> Any:
        """One element of an array, in all lanes."""
        ...

    def scalars(self, array: Any, start: int, count: int) -> Sequence[Any]:
        """Elements of an array of `scratch`, each in all lanes; `start` is a multiple of four."""
        ...

    def store(self, array: Any, start: int, count: int, value: Any) -> None:
        """Writes the first `count` lanes of a value to an array, from element `start` on."""
        ...

    def moved(self, array: Any, index: Any, stride: int) -> Any:
        """The array from element `index * stride` on, where `index` is the index of a `loop`."""
        ...

    def lane(self, value: Any, lane: int) -> Any:
        """The value of one lane, in all lanes."""
        ...

    def lanes(self, value: Any) -> Sequence[Any]:
        """32 values, of which the k-th has the value of lane k in all lanes."""
        ...

    def sum(self, value: Any) -> Any:
        """The sum over all lanes, in all lanes."""
        ...

    def put(self, value: Any, lane: int, number: Any) -> Any:
        """The value with `number` in one lane."""
        ...

    def from_lane_on(self, value: Any, lane: int) -> Any:
        """The value, with 0 in the lanes before `lane`."""
        ...

    def at_least(self, value: Any, least: Any) -> Any:
        """The larger of the two, and NaN where the value is NaN."""
        ...

    def rsqrt(self, value: Any) -> Any:
        """1 / sqrt(value) to 2 units in the last place."""
        ...

    def elementwise(self, operation: str, *values: Any) -> Any:
        """The result of an elementwise operation, given by JAX's name, such as `add`, `lt` or `select_n`."""
        ...

    def constant(self, numbers: np.ndarray) -> Any:
        """Constants: (32,) one in each lane, or () the same in all lanes."""
        ...

    def shuffled(self, value: Any, source: np.ndarray) -> Any:
        """In each lane the value of the lane `source[lane]`."""
        ...

    def chosen(self, here: np.ndarray, value: Any, otherwise: Any) -> Any:
        """`value` in the lanes where `here` (32,) is True, and `otherwise` in the others."""
        ...

    def all(self, truth: Any) -> Any:
        """Whether a boolean is True in all lanes; the result is in all lanes."""
        ...

    def sums(self, values: Sequence[Any]) -> Any:
        """In lane k the sum over lanes of `values[k]`, for up to 32 values; 0 in the remaining lanes."""
        ...

    def scratch(self, count: int) -> Any:
        """An array in the warp's own memory. Call `meet` between a store and a load, and between a load and a store."""
        ...

    def meet(self) -> None:
        """Waits for all lanes, so that each sees what the others have stored."""
        ...

    def repeat(
        self, unfinished: Callable[[list[Any]], Any], advance: Callable[[list[Any]], list[Any]], carry: list[Any]
    ) -> list[Any]:
        """The last carry of a loop: `carry = advance(carry)` while `unfinished(carry)`, which is equal in all lanes."""
        ...

    def loop(self, count: int, body: Callable[[Any, list[Any]], list[Any]], carry: list[Any]) -> list[Any]:
        """The last carry of a loop: `carry = body(index, carry)` for each index below `count`."""
        ...


# a function of a machine and of the arrays of a world, first the operands and then the results
Kernel = Callable[..., None]


def elementwise(operation: str, *values: np.ndarray) -> np.ndarray:
    """The result of an elementwise operation in numpy, given by JAX's name; conversions are to float32."""
    params = {"new_dtype": np.float32} if operation == "convert_element_type" else {}
    rule = rule_of(operation, params)
    assert rule is not None, operation
    return rule(*values)


class Interpreter:
    """The machine in numpy, for several worlds at once.

    A value is an array (worlds, 32), or (worlds, 1) if it is the same in all lanes. An array in memory is
    (worlds, size).
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
        """The value as (worlds, 32)."""
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
        # a world whose loop has ended keeps its carry while others go on
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
    """The results of a kernel, computed in numpy; arguments and results as in `ptx.call`."""
    worlds = results[0].shape[0]
    arrays = [np.broadcast_to(np.asarray(x).reshape(len(x), -1), (worlds, math.prod(x.shape[1:]))) for x in operands]
    # results start as NaN, so that tests find elements that a kernel does not write
    with np.errstate(all="ignore"):
        written = [np.full((worlds, math.prod(x.shape[1:])), np.nan).astype(x.dtype) for x in results]
        kernel(Interpreter(worlds), *arrays, *written)
    return [x.reshape(result.shape) for x, result in zip(written, results, strict=True)]

"""A warp, 32 threads of a GPU that work in step, as an instruction set with two meanings: PTX text, and numpy.

A kernel is a function of a machine and of the arrays of a world; each world has a warp of its own, which keeps all of
its numbers in registers. A value is one number in each of the 32 lanes. Values have +, - and * like arrays, and
1 / value; for the rest there are the machine's functions. `Ptx` writes the program of the threads in NVIDIA's virtual
assembly, which XLA has compiled for the card and launches without help (`call`). `Interpreter` runs the same function
on numpy arrays (worlds, 32), so that a kernel is tested where there is no GPU.

Loops over rows of a matrix are Python's, and so written out; `loop` is one that the program has.
Source: PTX ISA 7.0, sec. 9.7 (shfl.sync, bar.warp.sync); XLA's custom call for PTX.
"""

import functools
import math
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

Shaped = jax.Array | np.ndarray

# threads of a warp, and warps of a block, which share nothing but a place on the device
LANES, WARPS = 32, 4
FULL = "0xffffffff"


class Machine(Protocol):
    """What a warp can do besides arithmetic. Arrays are of one world; places in them count numbers."""

    def zero(self) -> Any:
        """0 in all lanes."""
        ...

    def load(self, array: Any, start: int, count: int) -> Any:
        """Number `start + lane` of an array, and 0 in lanes from `count` on."""
        ...

    def scalar(self, array: Any, place: int) -> Any:
        """One number of an array, in all lanes."""
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

    def loop(self, count: int, body: Callable[[Any, list[Any]], list[Any]], carry: list[Any]) -> list[Any]:
        """`carry = body(index, carry)` for each index."""
        ...


# of a machine, and of the arrays of a world: operands, then results
Kernel = Callable[..., None]


class Register:
    """A value of a PTX program, or a number that the program knows."""

    def __init__(self, program: "Ptx", name: str) -> None:
        self.program, self.name = program, name

    def __add__(self, other: Any) -> "Register":
        return self.program.value("add.f32", self, other)

    def __sub__(self, other: Any) -> "Register":
        return self.program.value("sub.f32", self, other)

    def __mul__(self, other: Any) -> "Register":
        return self.program.value("mul.f32", self, other)

    def __rtruediv__(self, other: Any) -> "Register":
        return self.program.value("div.rn.f32", other, self)

    __rmul__ = __mul__


class Pointer(NamedTuple):
    """Registers with the address of a world's array, and with that of this lane's number of it."""

    array: str
    lane: str


def _literal(value: Any) -> str:
    """A register's name, or a number as PTX writes it."""
    return value.name if isinstance(value, Register) else f"0f{struct.pack('>f', value).hex()}"


class Ptx:
    """Writes a program, line by line, each result in a register of its own; compiling assigns real ones."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.count, self.stores = 0, 0

    def new(self, kind: str) -> str:
        """A register: `f` of a float, `r` of an integer, `d` of an address, `p` of a truth."""
        self.count += 1
        return f"%{kind}{self.count}"

    def line(self, instruction: str, *operands: str) -> None:
        """Writes an instruction."""
        self.lines.append(f"{instruction} {', '.join(operands)};")

    def value(self, instruction: str, *operands: Any) -> Register:
        """The result of an instruction."""
        result = Register(self, self.new("f"))
        self.line(instruction, result.name, *map(_literal, operands))
        return result

    def zero(self) -> Register:
        return self.value("mov.f32", 0.0)

    def load(self, array: Pointer, start: int, count: int) -> Register:
        result = self.zero() if count < LANES else Register(self, self.new("f"))
        self.line(f"{self._first(count)}ld.global.f32", result.name, f"[{array.lane}+{4 * start}]")
        return result

    def scalar(self, array: Pointer, place: int) -> Register:
        result = Register(self, self.new("f"))
        self.line("ld.global.f32", result.name, f"[{array.array}+{4 * place}]")
        return result

    def store(self, array: Pointer, start: int, count: int, value: Register) -> None:
        self.line(f"{self._first(count)}st.global.f32", f"[{array.lane}+{4 * start}]", value.name)

    def _first(self, count: int) -> str:
        """The guard of an instruction that only the first lanes carry out."""
        if count >= LANES:
            return ""
        self.line("setp.lt.u32", guard := self.new("p"), "%lane", str(count))
        return f"@{guard} "

    def moved(self, array: Pointer, index: str, stride: int) -> Pointer:
        moved = Pointer(self.new("d"), self.new("d"))
        for name, base in zip(moved, array, strict=True):
            self.line("mad.wide.u32", name, index, str(4 * stride), base)
        return moved

    def lane(self, value: Register, lane: int) -> Register:
        result = Register(self, self.new("f"))
        self.line("shfl.sync.idx.b32", result.name, value.name, str(lane), "31", FULL)
        return result

    def lanes(self, value: Register) -> list[Register]:
        # by way of shared memory, which delivers four numbers at a time; two buffers in turn, so that none is
        # overwritten before all lanes have read it
        buffer = 4 * LANES * (self.stores % 2)
        self.stores += 1
        self.line("st.shared.f32", f"[%shared_lane+{buffer}]", value.name)
        self.line("bar.warp.sync", FULL)
        found = [Register(self, self.new("f")) for _ in range(LANES)]
        for start in range(0, LANES, 4):
            four = ", ".join(register.name for register in found[start : start + 4])
            self.line("ld.shared.v4.f32", f"{{{four}}}", f"[%shared+{buffer + 4 * start}]")
        return found

    def sum(self, value: Register) -> Register:
        for distance in (16, 8, 4, 2, 1):
            other = Register(self, self.new("f"))
            self.line("shfl.sync.bfly.b32", other.name, value.name, str(distance), "31", FULL)
            value = value + other
        return value

    def put(self, value: Register, lane: int, number: Register) -> Register:
        self.line("setp.eq.u32", here := self.new("p"), "%lane", str(lane))
        return self._select(number, value, here)

    def from_lane_on(self, value: Register, lane: int) -> Register:
        self.line("setp.ge.u32", here := self.new("p"), "%lane", str(lane))
        return self._select(value, 0.0, here)

    def at_least(self, value: Register, least: Register) -> Register:
        self.line("setp.lt.f32", below := self.new("p"), value.name, least.name)
        return self._select(least, value, below)

    def _select(self, value: Any, otherwise: Any, condition: str) -> Register:
        result = Register(self, self.new("f"))
        self.line("selp.f32", result.name, _literal(value), _literal(otherwise), condition)
        return result

    def rsqrt(self, value: Register) -> Register:
        return self.value("rsqrt.approx.f32", value)

    def loop(self, count: int, body: Callable[[Any, list[Any]], list[Any]], carry: list[Any]) -> list[Any]:
        index, label, again = self.new("r"), f"loop_{self.count}", self.new("p")
        self.line("mov.u32", index, "0")
        kept = [self.value("mov.f32", value) for value in carry]
        self.lines.append(f"{label}:")
        for register, value in zip(kept, body(index, kept), strict=True):
            self.line("mov.f32", register.name, _literal(value))
        # the next turn may write the buffer that was read last
        self.line("bar.warp.sync", FULL)
        self.line("add.u32", index, index, "1")
        self.line("setp.lt.u32", again, index, str(count))
        self.line(f"@{again} bra", label)
        return kept

    @classmethod
    @functools.cache
    def text(cls, name: str, kernel: Kernel, shapes: tuple[tuple[int, ...], ...]) -> str:
        """The program of a kernel, which is asked for again and again.

        Args:
          name: of the program.
          kernel: what each warp does for its world.
          shapes: (worlds, ...) of each array, operands and then the result.
        """
        worlds, sizes = shapes[0][0], [math.prod(shape[1:]) for shape in shapes]
        program = cls()
        arrays = []
        for number, size in enumerate(sizes):
            array, address, lane = program.new("d"), program.new("d"), program.new("d")
            program.line("ld.param.u64", array, f"[{name}_{number}]")
            program.line("cvta.to.global.u64", array, array)
            program.line("mad.wide.u32", address, "%world", str(4 * size), array)
            program.line("mad.wide.u32", lane, "%lane", "4", address)
            arrays.append(Pointer(address, lane))
        kernel(program, *arrays)
        parameters = ", ".join(f".param .u64 {name}_{number}" for number in range(len(sizes)))
        body = "\n".join(program.lines)
        return f""".version 7.0
.target sm_70
.address_size 64
.visible .entry {name}({parameters})
.maxntid {LANES * WARPS}, 1, 1
{{
.reg .f32 %f<{program.count + 1}>;
.reg .u32 %r<{program.count + 1}>;
.reg .u64 %d<{program.count + 1}>;
.reg .pred %p<{program.count + 1}>;
.reg .u32 %thread, %lane, %warp, %world, %shared, %shared_lane;
.reg .pred %beyond;
.shared .align 16 .b8 pool[{WARPS * 2 * 4 * LANES}];
mov.u32 %thread, %tid.x;
and.b32 %lane, %thread, {LANES - 1};
shr.u32 %warp, %thread, 5;
mov.u32 %world, %ctaid.x;
mad.lo.u32 %world, %world, {WARPS}, %warp;
setp.ge.u32 %beyond, %world, {worlds};
@%beyond ret;
mov.u32 %shared, pool;
mad.lo.u32 %shared, %warp, {2 * 4 * LANES}, %shared;
mad.lo.u32 %shared_lane, %lane, 4, %shared;
{body}
ret;
}}
"""


def call(name: str, kernel: Kernel, operands: Sequence[Shaped], out: tuple[int, ...], interpret: bool) -> Any:
    """Runs a kernel, each world by a warp.

    Args:
      name: of the program, as a profiler shows it.
      kernel: a function of a machine, the arrays of a world and its result, which is written.
      operands: arrays (worlds, ...) of float32.
      out: the shape (worlds, ...) of the result.
      interpret: runs it with numpy, without a GPU.
    """
    if interpret:
        arrays = [np.asarray(x).reshape(len(x), -1) for x in operands]
        result = np.full((out[0], math.prod(out[1:])), np.nan, np.float32)
        with np.errstate(all="ignore"):
            kernel(Interpreter(out[0]), *arrays, result)
        return result.reshape(out)
    shapes = (*(x.shape for x in operands), out)
    grid = {f"grid_{axis}": np.int32(size) for axis, size in zip("xyz", (-(-out[0] // WARPS), 1, 1), strict=True)}
    block = {f"block_{axis}": np.int32(size) for axis, size in zip("xyz", (LANES * WARPS, 1, 1), strict=True)}
    launch = jax.ffi.ffi_call("__gpu$xla.gpu.ptx", jax.ShapeDtypeStruct(out, np.float32))
    return launch(
        *operands,
        name=name,
        kernel_type="ptx",
        kernel_data=Ptx.text(name, kernel, shapes),
        shared_mem_bytes=np.int32(0),
        output_indices=(np.int32(len(operands)),),
        **grid,
        **block,
    )


class Interpreter:
    """The same instructions on arrays (worlds, 32), or (worlds, 1) of what is in all lanes.

    Memory is (worlds, size).
    """

    def __init__(self, worlds: int) -> None:
        self.worlds = worlds

    def zero(self) -> np.ndarray:
        return np.zeros((self.worlds, LANES), np.float32)

    def load(self, array: np.ndarray, start: int, count: int) -> np.ndarray:
        value = self.zero()
        value[:, :count] = array[:, start : start + min(count, LANES)]
        return value

    def scalar(self, array: np.ndarray, place: int) -> np.ndarray:
        return array[:, place : place + 1]

    def store(self, array: np.ndarray, start: int, count: int, value: np.ndarray) -> None:
        count = min(count, LANES)
        array[:, start : start + count] = value[:, :count]

    def moved(self, array: np.ndarray, index: int, stride: int) -> np.ndarray:
        return array[:, index * stride :]

    def lane(self, value: np.ndarray, lane: int) -> np.ndarray:
        return value[:, lane : lane + 1]

    def lanes(self, value: np.ndarray) -> list[np.ndarray]:
        return [value[:, lane : lane + 1] for lane in range(LANES)]

    def sum(self, value: np.ndarray) -> np.ndarray:
        return np.sum(value, axis=1, keepdims=True)

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

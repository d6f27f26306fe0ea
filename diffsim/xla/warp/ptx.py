"""The instructions of a warp (machine.py) as text in PTX, NVIDIA's virtual assembly, and calls of such programs.

XLA compiles the text for the GPU and launches it (`call`). A block of threads consists of a few warps, which are
independent of each other and use separate parts of the block's shared memory.
Source: PTX ISA 7.0, sec. 9.7 (shfl.sync, bar.warp.sync, vote.sync); XLA's custom call for PTX.
"""

import functools
import math
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from diffsim.xla.warp.machine import LANES, Kernel

# the largest number of warps in a block: 128 threads
WARPS = 4
# how much shared memory a block can have on every GPU, in bytes
POOL = 48 * 1024
# the mask of all lanes
FULL = "0xffffffff"
# PTX's names of operations on floats, integers and booleans
FLOATS = {"add": "add", "sub": "sub", "mul": "mul", "div": "div.rn", "neg": "neg", "abs": "abs", "sqrt": "sqrt.rn"}
INTEGERS = {"add": "add", "sub": "sub", "mul": "mul.lo", "neg": "neg"}
TRUTHS = ("and", "or", "not")
# comparisons; with NaN all are False except `ne`
ORDERS = {"lt": "lt", "le": "le", "gt": "gt", "ge": "ge", "eq": "eq", "ne": "neu"}
# the operations of `elementwise` for floats, integers and booleans, by the letters of numpy's dtype kinds
ANY = ("select_n", "convert_element_type")
KNOWN = {
    "f": {*FLOATS, *ORDERS, "sign", "max", "min", *ANY},
    "i": {*INTEGERS, *ORDERS, "max", "min", *ANY},
    "b": {*TRUTHS, "eq", "ne", *ANY},
}
# for the letter of each type of register, the type in a move instruction
TYPES = {"f": "f32", "r": "u32", "p": "pred"}


class Register:
    """A register of a PTX program. The letter in its name is its type: f for floats, r for integers, p for booleans."""

    def __init__(self, program: "Ptx", name: str) -> None:
        self.program = program
        self.name = name

    @property
    def kind(self) -> str:
        """The letter of the type."""
        return self.name[1]

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
    """A world's array in memory.

    Attributes:
      array: the register with its address.
      lane: the register with the address of this lane's element.
      dtype: the dtype of its elements.
      space: PTX's state space: `.global`, or `.shared` for memory of the warp.
    """

    array: str
    lane: str
    dtype: np.dtype
    space: str = ".global"


def _literal(value: Any) -> str:
    """The name of a register, or a number in PTX's notation."""
    return value.name if isinstance(value, Register) else f"0f{struct.pack('>f', value).hex()}"


class Ptx:
    """The machine that writes a PTX program, line by line. Each result has a new register; PTX has arbitrarily many."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        # number of registers so far
        self.count = 0
        # number of calls of `lanes`, which use two buffers alternately
        self.stores = 0
        # number of elements of shared memory that `scratch` has reserved
        self.room = 0
        # the declarations of constant tables with 32 elements, and their names
        self.tables: dict[str, str] = {}

    def new(self, kind: str) -> str:
        """The name of a new register: `f` for a float, `r` for an integer, `d` for an address, `p` for a boolean."""
        self.count += 1
        return f"%{kind}{self.count}"

    def line(self, instruction: str, *operands: str) -> None:
        """Writes one instruction."""
        self.lines.append(f"{instruction} {', '.join(operands)};")

    def value(self, instruction: str, *operands: Any, kind: str = "f") -> Register:
        """The result of an instruction, in a new register of a kind."""
        result = Register(self, self.new(kind))
        self.line(instruction, result.name, *(x if isinstance(x, str) else _literal(x) for x in operands))
        return result

    def zero(self) -> Register:
        return self.value("mov.f32", 0.0)

    def load(self, array: Pointer, start: int, count: int, stride: int = 1) -> Register:
        lane = array.lane
        size = array.dtype.itemsize
        if stride > 1:
            lane = self.new("d")
            self.line("mad.wide.u32", lane, "%lane", str(size * stride), array.array)
        return self._read(array, f"[{lane}+{size * start}]", count)

    def scalar(self, array: Pointer, place: int) -> Register:
        return self._read(array, f"[{array.array}+{array.dtype.itemsize * place}]", LANES)

    def _read(self, array: Pointer, address: str, count: int) -> Register:
        """The value at an address in the first `count` lanes, and 0 in the others."""
        kind, read = {"f": ("f", "f32"), "i": ("r", "u32"), "b": ("r", "u8")}[array.dtype.kind]
        zero = "0" if kind == "r" else _literal(0.0)
        result = self.value(f"mov.{TYPES[kind]}", zero, kind=kind) if count < LANES else Register(self, self.new(kind))
        self.line(f"{self._first(count)}ld{array.space}.{read}", result.name, address)
        return self.value("setp.ne.u32", result, "0", kind="p") if array.dtype.kind == "b" else result

    def store(self, array: Pointer, start: int, count: int, value: Register) -> None:
        written = {"f": "f32", "r": "u32", "p": "u8"}[value.kind]
        name = self.value("selp.u32", "1", "0", value, kind="r").name if value.kind == "p" else value.name
        address = f"[{array.lane}+{array.dtype.itemsize * start}]"
        self.line(f"{self._first(count)}st{array.space}.{written}", address, name)

    def _first(self, count: int) -> str:
        """The guard of an instruction that only the first `count` lanes execute."""
        if count >= LANES:
            return ""
        return f"@{self.value('setp.lt.u32', '%lane', str(count), kind='p').name} "

    def moved(self, array: Pointer, index: Any, stride: int) -> Pointer:
        moved = array._replace(array=self.new("d"), lane=self.new("d"))
        for name, base in ((moved.array, array.array), (moved.lane, array.lane)):
            self.line("mad.wide.u32", name, index, str(array.dtype.itemsize * stride), base)
        return moved

    def lane(self, value: Register, lane: int) -> Register:
        return self._exchange("idx", value, str(lane))

    def _exchange(self, how: str, value: Register, by: str) -> Register:
        """The value of another lane, by a shuffle instruction."""
        if value.kind == "p":
            number = self._exchange(how, self.value("selp.u32", "1", "0", value, kind="r"), by)
            return self.value("setp.ne.u32", number, "0", kind="p")
        return self.value(f"shfl.sync.{how}.b32", value, by, "31", FULL, kind=value.kind)

    def lanes(self, value: Register) -> list[Register]:
        # The value goes through shared memory, from which a lane reads four elements at a time. Two buffers are used
        # alternately, so that none is overwritten before all lanes have read it.
        buffer = 4 * LANES * (self.stores % 2)
        self.stores += 1
        self.line("st.shared.f32", f"[%shared_lane+{buffer}]", value.name)
        self.meet()
        return self._by_four("%shared", buffer // 4, LANES)

    def scalars(self, array: Pointer, start: int, count: int) -> list[Register]:
        return self._by_four(array.array, start, count)

    def _by_four(self, base: str, start: int, count: int) -> list[Register]:
        """Elements of shared memory, each in all lanes; one instruction reads four of them."""
        found = [Register(self, self.new("f")) for _ in range(-(-count // 4) * 4)]
        for place in range(0, count, 4):
            four = ", ".join(register.name for register in found[place : place + 4])
            self.line("ld.shared.v4.f32", f"{{{four}}}", f"[{base}+{4 * (start + place)}]")
        return found

    def meet(self) -> None:
        self.line("bar.warp.sync", FULL)

    def scratch(self, count: int) -> Pointer:
        array = self.new("d")
        lane = self.new("d")
        start = 4 * self.room
        # arrays are aligned for reads of four elements
        self.room += -(-count // 4) * 4
        self.line("add.u64", array, "%scratch", str(start))
        self.line("mad.wide.u32", lane, "%lane", "4", array)
        return Pointer(array=array, lane=lane, dtype=np.dtype(np.float32), space=".shared")

    def sum(self, value: Register) -> Register:
        for distance in (16, 8, 4, 2, 1):
            value = value + self._exchange("bfly", value, str(distance))
        return value

    def sums(self, values: Sequence[Register]) -> Register:
        # Lanes and values are halved together: one half of the lanes goes on with one half of the values, to which it
        # adds the same values of the other half of the lanes.
        left: list[Any] = [*values, *[0.0] * (LANES - len(values))]
        for distance in (16, 8, 4, 2, 1):
            bit = self.value("and.b32", "%lane", str(distance), kind="r")
            upper = self.value("setp.ne.u32", bit, "0", kind="p")
            halves = list(zip(left[:distance], left[distance:], strict=True))
            left = [0.0 if a == b == 0.0 else self._halved(a, b, upper, distance) for a, b in halves]
        return left[0]

    def _halved(self, low: Any, high: Any, upper: Register, distance: int) -> Register:
        """The value `low` in lower lanes and `high` in upper lanes, plus the same value of the lane at a distance."""
        kept = self.value("selp.f32", high, low, upper)
        sent = self.value("selp.f32", low, high, upper)
        return kept + self._exchange("bfly", sent, str(distance))

    def all(self, truth: Register) -> Register:
        return self.value("vote.sync.all.pred", truth, FULL, kind="p")

    def put(self, value: Register, lane: int, number: Register) -> Register:
        here = self.value("setp.eq.u32", "%lane", str(lane), kind="p")
        return self.elementwise("select_n", here, value, number)

    def from_lane_on(self, value: Register, lane: int) -> Register:
        here = self.value("setp.ge.u32", "%lane", str(lane), kind="p")
        return self.value("selp.f32", value, 0.0, here)

    def at_least(self, value: Register, least: Register) -> Register:
        return self.elementwise("select_n", self.elementwise("lt", value, least), value, least)

    def rsqrt(self, value: Register) -> Register:
        return self.value("rsqrt.approx.f32", value)

    def elementwise(self, operation: str, *values: Any) -> Register:
        kind = values[0 if operation != "select_n" else 1].kind
        if operation == "select_n":
            truth, otherwise, value = values
            if kind != "p":
                return self.value(f"selp.{TYPES[kind]}", value, otherwise, truth, kind=kind)
            untrue = self.value("not.pred", truth, kind="p")
            if_true = self.value("and.pred", truth, value, kind="p")
            if_false = self.value("and.pred", untrue, otherwise, kind="p")
            return self.value("or.pred", if_true, if_false, kind="p")
        if operation in ("max", "min"):
            # choose the first value if it is NaN, too
            first = self.elementwise("gt" if operation == "max" else "lt", *values)
            either = self.value("or.pred", first, self.elementwise("ne", values[0], values[0]), kind="p")
            return self.elementwise("select_n", either, values[1], values[0])
        if operation == "sign":
            above, below = (self.elementwise(order, *values, 0.0) for order in ("gt", "lt"))
            negative = self.value("selp.f32", -1.0, *values, below)
            return self.value("selp.f32", 1.0, negative, above)
        if kind == "p" and operation in ("eq", "ne"):
            apart = self.value("xor.pred", *values, kind="p")
            return apart if operation == "ne" else self.value("not.pred", apart, kind="p")
        if operation in ORDERS:
            order = f"{ORDERS[operation]}.f32" if kind == "f" else f"{operation}.s32"
            return self.value(f"setp.{order}", *values, kind="p")
        if operation == "convert_element_type":
            if kind == "p":
                return self.value("selp.f32", 1.0, 0.0, *values)
            return self.value("cvt.rn.f32.s32" if kind == "r" else "mov.f32", *values)
        if kind == "p":
            return self.value(f"{operation}.pred", *values, kind="p")
        name = f"{FLOATS[operation]}.f32" if kind == "f" else f"{INTEGERS[operation]}.s32"
        return self.value(name, *values, kind=kind)

    def constant(self, numbers: np.ndarray) -> Register:
        if numbers.dtype == bool:
            number = self.constant(numbers.astype(np.int32))
            return self.value("setp.ne.u32", number, "0", kind="p")
        kind = "f" if numbers.dtype.kind == "f" else "r"
        written = [_literal(float(x)) if kind == "f" else str(int(x)) for x in numbers.reshape(-1)]
        if len(set(written)) == 1:
            return self.value(f"mov.{TYPES[kind]}", written[0], kind=kind)
        name = self.tables.setdefault(f".{TYPES[kind]} ?[{LANES}] = {{{', '.join(written)}}}", f"table_{self.count}")
        table, lane = self.new("d"), self.new("d")
        self.line("mov.u64", table, name)
        self.line("mad.wide.u32", lane, "%lane", "4", table)
        return self.value(f"ld.global.nc.{TYPES[kind]}", f"[{lane}]", kind=kind)

    def shuffled(self, value: Register, source: np.ndarray) -> Register:
        return self._exchange("idx", value, self.constant(source.astype(np.int32)).name)

    def chosen(self, here: np.ndarray, value: Register, otherwise: Register) -> Register:
        bits = sum(1 << int(lane) for lane in np.flatnonzero(here))
        mine = self.value("shr.b32", self.value("mov.u32", str(bits), kind="r"), "%lane", kind="r")
        truth = self.value("setp.ne.u32", self.value("and.b32", mine, "1", kind="r"), "0", kind="p")
        return self.elementwise("select_n", truth, otherwise, value)

    def loop(self, count: int, body: Callable[[Any, list[Any]], list[Any]], carry: list[Any]) -> list[Any]:
        index = self.new("r")
        label = f"loop_{self.count}"
        again = self.new("p")
        self.line("mov.u32", index, "0")
        kept = self._copies(carry)
        self.lines.append(f"{label}:")
        self._become(kept, body(index, kept))
        # the next iteration may write to the buffer that was read last
        self.meet()
        self.line("add.u32", index, index, "1")
        self.line("setp.lt.u32", again, index, str(count))
        self.line(f"@{again} bra.uni", label)
        return kept

    def repeat(
        self, unfinished: Callable[[list[Any]], Any], advance: Callable[[list[Any]], list[Any]], carry: list[Any]
    ) -> list[Any]:
        kept = self._copies(carry)
        number = self.count
        self.lines.append(f"again_{number}:")
        self.meet()
        self.line(f"@!{unfinished(kept).name} bra.uni", f"end_{number}")
        self._become(kept, advance(kept))
        self.line("bra.uni", f"again_{number}")
        self.lines.append(f"end_{number}:")
        self.meet()
        return kept

    def _copies(self, values: list[Register]) -> list[Register]:
        """New registers with the same values."""
        return [self.value(f"mov.{TYPES[value.kind]}", value, kind=value.kind) for value in values]

    def _become(self, kept: list[Register], values: list[Register]) -> None:
        """Moves values to the registers `kept`, by way of copies: some values may be these registers themselves."""
        for register, value in zip(kept, self._copies(values), strict=True):
            self.line(f"mov.{TYPES[register.kind]}", register.name, value.name)

    @classmethod
    @functools.lru_cache(maxsize=64)
    def text(
        cls, name: str, kernel: Kernel, worlds: int, arrays: tuple[tuple[tuple[int, ...], str], ...]
    ) -> tuple[str, int]:
        """The text of a kernel's program (cached, because it is needed several times), and the warps per block.

        Args:
          name: name of the program.
          kernel: the function that each warp executes for its world.
          worlds: number of worlds.
          arrays: shape and dtype of each array, first operands and then results. The shape is (worlds, ...), or
            (1, ...) for an array that all worlds share.
        """
        program = cls()
        pointers = []
        for number, (shape, kind) in enumerate(arrays):
            dtype = np.dtype(kind)
            address = program.new("d")
            lane = program.new("d")
            array = program.new("d")
            program.line("ld.param.u64", array, f"[{name}_{number}]")
            program.line("cvta.to.global.u64", array, array)
            apart = dtype.itemsize * math.prod(shape[1:]) if shape[0] == worlds else 0
            program.line("mad.wide.u32", address, "%world", str(apart), array)
            program.line("mad.wide.u32", lane, "%lane", str(dtype.itemsize), address)
            pointers.append(Pointer(array=address, lane=lane, dtype=dtype))
        kernel(program, *pointers)
        parameters = ", ".join(f".param .u64 {name}_{number}" for number in range(len(arrays)))
        tables = "\n".join(f".global .align 4 {numbers.replace('?', x)};" for numbers, x in program.tables.items())
        body = "\n".join(program.lines)
        # bytes of shared memory for each warp: the two buffers of `lanes`, then the arrays of `scratch`
        stride = 4 * (2 * LANES + program.room)
        warps = min(WARPS, POOL // stride)
        text = f""".version 7.0
.target sm_70
.address_size 64
{tables}
.visible .entry {name}({parameters})
.maxntid {LANES * warps}, 1, 1
{{
.reg .f32 %f<{program.count + 1}>;
.reg .u32 %r<{program.count + 1}>;
.reg .u64 %d<{program.count + 1}>;
.reg .pred %p<{program.count + 1}>;
.reg .u32 %thread, %lane, %warp, %world, %shared, %shared_lane;
.reg .u64 %scratch;
.reg .pred %beyond;
.shared .align 16 .b8 pool[{warps * stride}];
mov.u32 %thread, %tid.x;
and.b32 %lane, %thread, {LANES - 1};
shr.u32 %warp, %thread, 5;
mov.u32 %world, %ctaid.x;
mad.lo.u32 %world, %world, {warps}, %warp;
setp.ge.u32 %beyond, %world, {worlds};
@%beyond bra.uni done;
mov.u32 %shared, pool;
mad.lo.u32 %shared, %warp, {stride}, %shared;
mad.lo.u32 %shared_lane, %lane, 4, %shared;
mov.u64 %scratch, pool;
mad.wide.u32 %scratch, %warp, {stride}, %scratch;
add.u64 %scratch, %scratch, {8 * LANES};
{body}
done:
ret;
}}
"""
        return text, warps


# an operand of a kernel
Shaped = jax.Array | np.ndarray


def call(name: str, kernel: Kernel, operands: Sequence[Shaped], results: Sequence[jax.ShapeDtypeStruct]) -> list[Any]:
    """The results of a kernel, in which each warp works on one world.

    Args:
      name: name of the program, which a profiler shows.
      kernel: a function of a machine, the arrays of a world, and its results, which it writes.
      operands: arrays of float32, int32 or bool, (worlds, ...), or (1, ...) for one that all worlds share.
      results: shapes (worlds, ...) and dtypes of the results.
    """
    worlds = results[0].shape[0]
    arrays = tuple((x.shape, np.dtype(x.dtype).name) for x in (*operands, *results))
    text, warps = Ptx.text(name, kernel, worlds, arrays)
    grid = {f"grid_{axis}": np.int32(size) for axis, size in zip("xyz", (-(-worlds // warps), 1, 1), strict=True)}
    block = {f"block_{axis}": np.int32(size) for axis, size in zip("xyz", (LANES * warps, 1, 1), strict=True)}
    launch = jax.ffi.ffi_call("__gpu$xla.gpu.ptx", list(results))
    return list(
        launch(
            *operands,
            name=name,
            kernel_type="ptx",
            kernel_data=text,
            shared_mem_bytes=np.int32(0),
            output_indices=tuple(np.int32(len(operands) + number) for number in range(len(results))),
            **grid,
            **block,
        )
    )

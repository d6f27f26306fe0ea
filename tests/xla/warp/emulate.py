"""What a program in PTX does, without a GPU: the instructions that ptx.py writes, on 32 lanes in step.

It also finds what lanes in step would hide: a branch that lanes disagree on, a number of shared memory that another
lane wrote or read since the last meeting of all, registers that are read before they are written.
Source: PTX ISA 7.0, sec. 9.7.
"""

import re
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from diffsim.xla.warp.machine import LANES, Kernel
from diffsim.xla.warp.ptx import Ptx

TYPES = {"f32": np.float32, "u32": np.uint32, "s32": np.int32, "b32": np.uint32, "u64": np.uint64, "u8": np.uint8}
ORDERS = {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal}
ORDERS |= {"ne": np.not_equal, "neu": np.not_equal}
ARITHMETIC = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "and": np.bitwise_and}
ARITHMETIC |= {"neg": np.negative, "abs": np.abs, "sqrt": np.sqrt, "or": np.logical_or, "not": np.logical_not}
ARITHMETIC |= {"xor": np.logical_xor, "shr": np.right_shift, "rsqrt": lambda x: np.float32(1) / np.sqrt(x)}
# an array has this many addresses
ROOM = 1 << 32


def call(name: str, kernel: Kernel, operands: Sequence[Any], results: Sequence[jax.ShapeDtypeStruct]) -> list[Any]:
    """What `ptx.call` computes, and the same arguments."""
    arrays = [np.array(x, x.dtype, order="C") for x in operands] + [np.zeros(x.shape, x.dtype) for x in results]
    worlds = results[0].shape[0]
    text, warps = Ptx.text(name, kernel, worlds, tuple((x.shape, x.dtype.name) for x in arrays))
    emulate(text, arrays, warps, worlds)
    return arrays[len(operands) :]


def emulate(text: str, arrays: Sequence[np.ndarray], warps: int, worlds: int) -> None:
    """Runs all warps of a program; results are written to their arrays, which follow the operands."""
    for block in range(-(-worlds // warps)):
        pool = _Shared(int(re.search(r"pool\[(\d+)\]", text)[1]))  # type: ignore[index]
        for warp in range(warps):
            with np.errstate(all="ignore"):
                _Warp(text, arrays, pool, block, warp).run()


class _Shared:
    """Memory of a block: bytes, and for each number who wrote and read it last, at which meeting."""

    def __init__(self, size: int) -> None:
        self.bytes = np.zeros(size, np.uint8)
        self.written, self.read = np.full((size // 4, 2), -1), np.full((size // 4, 2), -1)

    def check(self, place: int, lane: int, meeting: int, writes: bool) -> None:
        """Refuses what depends on which of two lanes comes first."""
        for who, when in (self.written[place], *([self.read[place]] if writes else [])):
            assert when < meeting or who == lane, f"lanes {who} and {lane} meet at number {place} of shared memory"
        last = (self.written if writes else self.read)[place]
        # several readers are none of the lanes
        last[:] = lane if writes or last[1] < meeting or last[0] == lane else -2, meeting


class _Warp:
    """A warp: its registers by name, each of 32 lanes."""

    def __init__(self, text: str, arrays: Sequence[np.ndarray], pool: _Shared, block: int, warp: int) -> None:
        self.pool, self.meeting, self.warp = pool, 0, warp
        self.memory = [array.reshape(-1).view(np.uint8) for array in arrays]
        self.values: dict[str, np.ndarray] = {"pool": np.zeros(LANES, np.uint64)}
        self.values["%tid.x"] = np.arange(LANES, dtype=np.uint32) + np.uint32(LANES * warp)
        self.values["%ctaid.x"] = np.full(LANES, block, np.uint32)
        for kind, name, numbers in re.findall(r"\.global \.align 4 \.(\w+) (\w+)\[32\] = \{(.*?)\};", text):
            self.values[name] = np.full(LANES, ROOM * (1 + len(self.memory)), np.uint64)
            table = np.array([self._number(x, TYPES[kind]) for x in numbers.split(", ")], TYPES[kind])
            self.memory.append(table.view(np.uint8))
        lines = text[text.index("mov.u32 %thread") :].splitlines()
        self.lines = [line.rstrip(";") for line in lines]
        self.labels = {line[:-1]: number for number, line in enumerate(lines) if line.endswith(":")}

    @staticmethod
    def _number(text: str, dtype: Any) -> Any:
        if text.startswith("0f"):
            return np.array(int(text[2:], 16), np.uint32).view(np.float32)[()]
        return dtype(int(text, 0) & 0xFFFFFFFF) if dtype is np.uint32 else dtype(int(text, 0))

    def _value(self, name: str, kind: str) -> np.ndarray:
        """An operand: a register, as a type of as many bits, or a number."""
        if name in self.values:
            value = self.values[name]
            return value if kind == "pred" else value.astype(TYPES[kind]) if kind == "u64" else self._as(value, kind)
        assert name[0] != "%", f"{name} is read before it is written"
        return np.full(LANES, self._number(name, TYPES[kind]))

    def _as(self, value: np.ndarray, kind: str) -> np.ndarray:
        return value.astype(np.uint32) if value.dtype == np.uint64 else value.view(TYPES[kind])

    def run(self) -> None:
        """Carries out all lines."""
        place = 0
        while (line := self.lines[place]) != "ret":
            place += 1
            if not line or line.endswith(":") or line == "}":
                continue
            guard, instruction = re.fullmatch(r"(?:@(!?%\w+) )?(.*)", line).groups()  # type: ignore[union-attr]
            here = np.ones(LANES, bool)
            if guard:
                here = ~self.values[guard[1:]] if guard[0] == "!" else self.values[guard]
            operation, _, rest = instruction.partition(" ")
            operands = re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+", rest)
            name, *parts = operation.split(".")
            if name == "bra":
                assert np.all(here == here[0]), f"lanes disagree: {line}"
                place = self.labels[operands[0]] if here[0] else place
            elif operation == "bar.warp.sync":
                self.meeting += 1
            elif name in ("ld", "st"):
                self._access(name, parts, operands, here)
            else:
                self._assign(operands[0], self._compute(name, parts, operands[1:]), here)

    def _assign(self, name: str, value: np.ndarray, here: np.ndarray) -> None:
        self.values[name] = value if np.all(here) else np.where(here, value, self.values[name])

    def _compute(self, name: str, parts: list[str], operands: list[str]) -> np.ndarray:
        """The result of an instruction between registers."""
        kind = parts[-1]
        if name == "setp":
            a, b = (self._value(x, kind) for x in operands)
            return ORDERS[parts[0]](a, b)
        if name == "selp":
            a, b = (self._value(x, kind) for x in operands[:2])
            return np.where(self.values[operands[2]], a, b)
        if name == "shfl":
            value, by = self._value(operands[0], kind), self._value(operands[1], "u32")
            assert operands[2:] == ["31", "0xffffffff"]
            lane = np.arange(LANES, dtype=np.uint32)
            return value[(lane ^ by if parts[1] == "bfly" else by) % LANES]
        if name == "vote":
            return np.full(LANES, np.all(self.values[operands[0]]))
        if name == "mad":
            wide = parts[0] == "wide"
            a, b = (self._value(x, "u32").astype(np.uint64) for x in operands[:2])
            total = a * b + self._value(operands[2], "u64" if wide else "u32").astype(np.uint64)
            return total if wide else total.astype(np.uint32)
        if name == "cvt":
            return self._value(operands[0], "s32").astype(np.float32)
        if name == "mov":
            return self._value(operands[0], kind).copy()
        if name == "cvta":
            return self.values[operands[0]]
        result = ARITHMETIC[name](*(self._value(x, kind) for x in operands))
        return result if kind == "pred" else result.astype(TYPES[kind])

    def _access(self, name: str, parts: list[str], operands: list[str], here: np.ndarray) -> None:
        """Loads or stores, at an address in brackets."""
        space, kind = parts[0], parts[-1]
        register, address = operands if name == "ld" else operands[::-1]
        base, _, offset = address[1:-1].partition("+")
        if space == "param":
            number = int(base.rsplit("_", 1)[1])
            self.values[register] = np.full(LANES, ROOM * (1 + number), np.uint64)
            return
        places = self.values[base].astype(np.uint64) + np.uint64(int(offset or 0))
        names, size = register.strip("{}").split(", "), np.dtype(TYPES[kind]).itemsize
        for number, one in enumerate(names):
            value = np.zeros(LANES, TYPES[kind]) if name == "ld" else self._value(one, kind if kind != "u8" else "u32")
            for lane in np.flatnonzero(here):
                place = int(places[lane]) + number * size
                if space == "shared":
                    self.pool.check(place // 4, int(lane) + LANES * self.warp, self.meeting, name == "st")
                    memory = self.pool.bytes
                else:
                    memory, place = self.memory[place // ROOM - 1], place % ROOM
                assert 0 <= place <= len(memory) - size, f"beyond its array: {name} {address}"
                if name == "ld":
                    value[lane] = memory[place : place + size].view(TYPES[kind])[0]
                else:
                    memory[place : place + size] = np.array([value[lane]]).astype(TYPES[kind]).view(np.uint8)
            if name == "ld":
                self._assign(one, value.astype(np.uint32) if kind == "u8" else value, here)

"""What a compiled TPU program does, read from its text: fusions, gathers, loops, and bytes with the padding of tiles.

The chip keeps an array in tiles of 8 x 128 over the last two axes of its layout, and fills tiles that the array does
not: f32[4096,26,3,3] with worlds first takes 208 MiB for 3.7. Arrays in `S(1)` are in the chip's own vector memory.
A loop's body is counted once, so that the bytes of a rollout are those of one step.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from tests.gpu.program import FREE, SIZES, Instruction, computations_of

# what begins or ends a copy that runs beside others, whose bytes are counted where it ends, and what moves nothing
MOVING_NOTHING = (FREE - {"copy-done"}) | {"copy-start", "slice-start", "while", "conditional", "call"}
# code in which operations are made for other code, whose lines tell more
OPERATORS = ("/xla/", "/math/", "/bench/")
HBM, VMEM = 0, 1


class Stored(NamedTuple):
    """An array in memory: its bytes, its bytes with padding, and which memory it is in (`HBM` or `VMEM`)."""

    bytes: int
    padded: int
    space: int


class Written(NamedTuple):
    """What one instruction moves: bytes with padding that it reads and writes, and those of the arrays that it writes.

    `hbm` are the bytes with padding outside of the vector memory; `line` is the line of code that asks for it. A gather
    inside of a fusion moves its rows one by one, which is counted too.
    """

    name: str
    operation: str
    type: str
    moved: int
    hbm: int
    bytes: int
    padded: int
    line: str


class Program(NamedTuple):
    """A program: all that moves bytes, and counts of operations, in fusions too."""

    written: list[Written]
    operations: Counter[str]

    @property
    def padding(self) -> float:
        """Bytes of what is written with padding over those without."""
        return sum(each.padded for each in self.written) / max(1, sum(each.bytes for each in self.written))

    def by_line(self) -> list[tuple[str, int]]:
        """Bytes moved, with padding, by lines of code, most first."""
        total: Counter[str] = Counter()
        for each in self.written:
            total[each.line] += each.moved
        return total.most_common()


def read_program(text: str) -> Program:
    """What the optimized HLO of a TPU program does."""
    computations, entry = computations_of(text)
    lines = source_lines(text)
    written: list[Written] = []
    operations: Counter[str] = Counter()
    for name in run_by(computations, entry):
        types = {each.name: each.type for each in computations[name]}
        for each in computations[name]:
            if each.operation in MOVING_NOTHING:
                operations[each.operation] += 1
                continue
            target = each.attribute(r'custom_call_target="([^"]*)"')
            if target == "AllocateBuffer":
                continue
            operations[target or each.operation] += 1
            inside = computations.get(each.attribute(r"calls=%([\w.\-]+)") or "", [])
            operations.update(one.operation for one in inside if one.operation not in FREE)
            written.append(_written(each, types, inside, lines))
    return Program(written, operations)


def run_by(computations: dict[str, list[Instruction]], name: str) -> Iterator[str]:
    """The names of computations that run as parts of one, itself first: loops, branches and calls, without fusions."""
    yield name
    for each in computations[name]:
        if each.operation in ("while", "conditional", "call"):
            called = re.findall(r"(?:body|condition|to_apply|\w+_computation)=%([\w.\-]+)", each.rest)
            branches = each.attribute(r"branch_computations=\{([^}]*)\}")
            called += re.findall(r"%([\w.\-]+)", branches or "")
            for other in called:
                yield from run_by(computations, other)


def _written(each: Instruction, types: dict[str, str], inside: list[Instruction], lines: dict[int, str]) -> Written:
    results = arrays_of(each.type)
    # the end of a copy has both sides as its operand
    wrote = [] if each.operation.endswith("-done") else results
    if inside:
        read = [array for one in inside if one.operation == "parameter" for array in _parts_read(one, inside)]
    else:
        read = [array for operand in each.operands for array in arrays_of(types.get(operand, ""))]
    # row after row, each in tiles of its own
    gathered = sum(array.padded for one in inside if one.operation == "gather" for array in arrays_of(one.type))
    frame = each.attribute(r"stack_frame_id=(\d+)")
    return Written(
        name=each.name,
        operation=each.operation,
        type=each.type,
        moved=gathered + sum(array.padded for array in read + wrote),
        hbm=sum(array.padded for array in read + wrote if array.space == HBM),
        bytes=sum(array.bytes for array in results),
        padded=sum(array.padded for array in results),
        line=lines.get(int(frame), "") if frame else "",
    )


def _parts_read(value: Instruction, body: list[Instruction]) -> list[Stored]:
    """What a fusion reads of a parameter: all of it, unless all that use it take slices."""
    whole = arrays_of(value.type)
    users = [one for one in body if value.name in one.operands]
    if value.is_root or not users or any(one.operation not in ("slice", "dynamic-slice") for one in users):
        return whole
    parts = [part for one in users for part in arrays_of(one.type)]
    # what is inside of a fusion is nowhere
    parts = [part._replace(space=whole[0].space) for part in parts]
    return parts if sum(part.padded for part in parts) < sum(array.padded for array in whole) else whole


def arrays_of(text: str) -> list[Stored]:
    """The arrays of a type such as f32[8,10]{1,0:T(8,128)} or a tuple of those."""
    stored = []
    for kind, dims, layout in re.findall(r"(\w+)\[([\d,]*)\](?:\{([^}]*)\})?", text):
        shape = [int(dim) for dim in filter(None, dims.split(","))]
        order = [int(axis) for axis in filter(None, layout.split(":")[0].split(","))]
        full, tile = list(shape), re.search(r":T\(([\d,]+)\)", layout)
        if tile and order:
            sides = [int(side) for side in tile[1].split(",")]
            for axis, side in zip(order, reversed(sides), strict=False):
                full[axis] = -(-full[axis] // side) * side
        space = VMEM if "S(1)" in layout else HBM
        size = SIZES.get(kind, 0)
        stored.append(Stored(size * math.prod(shape), size * math.prod(full), space))
    return stored


def source_lines(text: str) -> dict[int, str]:
    """The line of diffsim that each stack frame comes from: of its callers the last one that is no operator's code."""
    names = text.partition("\nFileNames\n")[2].partition("\n\n")[0]
    files = dict(re.findall(r'^(\d+) "(.*)"$', names, re.MULTILINE))
    places = re.findall(r"^(\d+) \{file_name_id=(\d+) function_name_id=\d+ line=(\d+)", text, re.MULTILINE)
    at = {int(number): (files.get(file, ""), line) for number, file, line in places}
    frames = re.findall(r"^(\d+) \{file_location_id=(\d+)(?: parent_frame_id=(\d+))?", text, re.MULTILINE)
    # numbers of parents count from one more, so that 1 is none
    above = {int(number): (at.get(int(place), ("", "")), int(parent or 1) - 1) for number, place, parent in frames}

    def line_of(frame: int) -> str:
        innermost = ""
        while frame in above:
            (file, line), parent = above[frame]
            if "diffsim/" in file:
                here = f"{file.rsplit('diffsim/', 1)[1]}:{line}"
                if not any(part in file for part in OPERATORS):
                    return here
                innermost = innermost or here
            frame = parent if parent != frame else 0
        return innermost

    return {frame: line_of(frame) for frame in above}

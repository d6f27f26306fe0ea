"""What a compiled GPU program does: kernels, bytes, library calls, loops and CUDA graphs, read from its text.

Each instruction of optimized HLO that computes is one kernel or one library call. The bytes of a kernel are what it
reads and writes of global memory: of an operand that it only slices, the slice.
"""

import re
from typing import NamedTuple

SIZES = {"pred": 1, "s8": 1, "u8": 1, "f16": 2, "bf16": 2, "s32": 4, "u32": 4, "f32": 4, "s64": 8, "u64": 8, "f64": 8}
# instructions that launch nothing
FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "opt-barrier"}
FREE |= {"copy-done", "fusion-done"}
CALLS = {"call", "conditional", "async-start"}
# instructions whose result is a part of their first operand
TAKING = {"bitcast", "slice", "dynamic-slice", "gather"}
# custom calls into libraries end a CUDA graph
LIBRARY = re.compile("cusolver|cublas|cudnn|cub", re.IGNORECASE)
WARP = "__gpu$xla.gpu.ptx"


class Instruction(NamedTuple):
    """One line of HLO: name, type, operation, names of operands, and the rest of the line."""

    name: str
    type: str
    operation: str
    operands: tuple[str, ...]
    rest: str
    is_root: bool

    def attribute(self, pattern: str) -> str | None:
        """The first group of a pattern in the rest of the line."""
        found = re.search(pattern, self.rest)
        return found[1] if found else None


class Kernel(NamedTuple):
    """A launch: name, what kind (an operation, or the target of a custom call), bytes of one, how often in a run.

    `result` is the type of what it computes, `times` counts dynamic loops by the trips that were assumed, and
    `instructions` are those that all warps of a kernel in PTX carry out, 0 of others.
    """

    name: str
    kind: str
    bytes: int
    times: float
    result: str
    instructions: float = 0.0

    @property
    def is_library(self) -> bool:
        """Whether it is a call of a library."""
        return bool(LIBRARY.search(self.kind)) and self.kind != WARP


class Loop(NamedTuple):
    """A loop: its trips, assumed if it is dynamic, and how deep it is inside others."""

    name: str
    trips: float
    is_dynamic: bool
    depth: int


Trips = tuple[float | tuple[float, ...], ...]


class Program(NamedTuple):
    """All launches and loops of a program."""

    kernels: list[Kernel]
    loops: list[Loop]


def read_program(text: str, trips: Trips = (), iterations: float = 1.0) -> Program:
    """The launches and loops of optimized HLO.

    Args:
      text: of the module.
      trips: how often dynamic loops run, by their depth among dynamic loops, several if such loops follow one another;
        the last one for deeper ones, 1 for none.
      iterations: of loops that warps run by themselves, the mean of all worlds.
    """
    computations, entry = computations_of(text)
    program = Program([], [])
    _visit(computations, entry, (1.0, 0, 0), trips or (1.0,), program)
    bodies = {each.name: each.rest for body in computations.values() for each in body if WARP in each.rest}
    kernels = [
        k._replace(instructions=_instructions(bodies[k.name], iterations)) if k.kind == WARP else k
        for k in program.kernels
    ]
    return Program(kernels, program.loops)


def _instructions(call: str, iterations: float) -> float:
    """How many instructions all warps of a kernel in PTX carry out, by the line of HLO that calls it."""
    blocks, threads = (int(re.search(rf"{key}_x = (\d+)", call)[1]) for key in ("grid", "block"))  # type: ignore[index]
    lines = re.search(r'kernel_data = "(.*?)(?<!\\)"', call)[1].split(r"\0A")  # type: ignore[index]
    begins = {line[:-1]: number for number, line in enumerate(lines) if line.endswith(":")}
    times = [1.0] * len(lines)
    for number, line in enumerate(lines):
        back = re.match(r"(?:@%p\d+ )?bra.uni ((loop|again)_\d+);", line)
        if back:
            count = float(lines[number - 1].split(", ")[-1].rstrip(";")) if back[2] == "loop" else iterations
            for inside in range(begins[back[1]], number + 1):
                times[inside] *= count
    return (
        blocks
        * threads
        / 32
        * sum(t for t, line in zip(times, lines, strict=True) if line.endswith(";") and line[0] != ".")
    )


def _visit(
    computations: dict[str, list[Instruction]],
    name: str,
    place: tuple[float, int, int],
    trips: Trips,
    program: Program,
) -> None:
    """Adds what a computation launches; `place` is how often it runs, and in how many loops and dynamic loops it is."""
    times, depth, dynamic = place
    types = {each.name: each.type for each in computations[name]}
    for each in computations[name]:
        if each.operation == "while":
            known = each.attribute(r"known_trip_count[^\d]*(\d+)")
            here = trips[min(dynamic, len(trips) - 1)]
            before = sum(loop.is_dynamic and loop.depth == depth for loop in program.loops)
            several = here if isinstance(here, tuple) else (here,)
            count = float(known) if known else several[min(before, len(several) - 1)]
            program.loops.append(Loop(each.name, count, known is None, depth))
            inside = depth + 1, dynamic + (known is None)
            body, condition = (str(each.attribute(rf"{key}=%([\w.\-]+)")) for key in ("body", "condition"))
            _visit(computations, body, (times * count, *inside), trips, program)
            if known is None:
                _visit(computations, condition, (times * (count + 1), *inside), trips, program)
        elif each.operation in CALLS:
            for called in re.findall(r"(?:to_apply|calls|\w+_computation)=%([\w.\-]+)", each.rest):
                _visit(computations, called, place, trips, program)
        elif each.operation not in FREE:
            moved = _bytes_of(each, types, computations)
            # nothing is launched for arrays without entries
            if size_of(each.type):
                program.kernels.append(Kernel(each.name, _kind(each), moved, times, each.type))


def _kind(each: Instruction) -> str:
    if each.operation == "custom-call":
        return str(each.attribute(r'custom_call_target="([^"]*)"'))
    return str(each.attribute(r"kind=(\w+)")) if each.operation == "fusion" else each.operation


def _bytes_of(each: Instruction, types: dict[str, str], computations: dict[str, list[Instruction]]) -> int:
    """What one run reads and writes."""
    if each.operation != "fusion":
        return sum(size_of(types.get(name, "")) for name in each.operands) + size_of(each.type)
    body = computations[str(each.attribute(r"calls=%([\w.\-]+)"))]
    inside = {one.name: one for one in body}
    read = sum(_read_of(one, body) for one in body if one.operation == "parameter")
    return read + sum(_written(one, inside) for one in body if one.is_root)


def _read_of(value: Instruction, body: list[Instruction]) -> int:
    """What is read of a parameter of a fusion: all of it, unless all that use it take slices, or slices of slices."""
    if value.is_root:
        return size_of(value.type)
    total = 0
    for user in (one for one in body if value.name in one.operands):
        if user.operation in TAKING and user.operands[0] == value.name:
            total += _read_of(user, body)
        elif not (user.operation == "dynamic-update-slice" and user.operands[0] == value.name):
            return size_of(value.type)
    return min(total, size_of(value.type))


def _written(root: Instruction, inside: dict[str, Instruction]) -> int:
    """What a fusion writes: of an array that is updated in place, the update."""
    if root.operation == "tuple":
        return sum(_written(inside[name], inside) for name in root.operands)
    if root.operation == "bitcast":
        return _written(inside[root.operands[0]], inside)
    return size_of(inside[root.operands[1]].type if root.operation == "dynamic-update-slice" else root.type)


def size_of(text: str) -> int:
    """Bytes of a type, such as f32[8192,27]{1,0} or a tuple of those."""
    total = 0
    for kind, dims in re.findall(r"(\w+)\[([\d,]*)\]", text):
        size = SIZES.get(kind, 0)
        for dim in filter(None, dims.split(",")):
            size *= int(dim)
        total += size
    return total


def computations_of(text: str) -> tuple[dict[str, list[Instruction]], str]:
    """The instructions of each computation, and the name of the one that is run."""
    computations: dict[str, list[Instruction]] = {}
    entry = current = ""
    for line in text.splitlines():
        head = re.match(r"(ENTRY )?%([\w.\-]+) \(.*\) -> .* \{$", line)
        if head:
            current = head[2]
            computations[current] = []
            entry = current if head[1] else entry
        elif current and (made := _instruction(line)):
            computations[current].append(made)
    return computations, entry


def _instruction(line: str) -> Instruction | None:
    found = re.match(r"\s+(ROOT )?%([\w.\-]+) = (.*)", line)
    if not found:
        return None
    root, name, rest = found.groups()
    end = _closing(rest) + 1 if rest.startswith("(") else rest.index(" ")
    kind, rest = re.sub(r"/\*.*?\*/", "", rest[:end]), rest[end:].lstrip()
    # one that runs beside others is the same work
    operation = rest[: rest.index("(")].replace("fusion-start", "fusion")
    end = _closing(rest)
    operands = tuple(re.findall(r"%([\w.\-]+)", rest[:end]))
    return Instruction(name, kind, operation, operands, rest[end + 1 :], bool(root))


def _closing(text: str) -> int:
    """Where the first bracket that is opened in a text is closed."""
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == ")" and depth == 0:
            return place
    return len(text)


class Graphs(NamedTuple):
    """How launches are sent: graphs, names of kernels inside, how many others, and loops that the host runs.

    Of these it waits only for those whose trips are not known in advance.
    """

    graphs: int
    inside: frozenset[str]
    outside: int
    host_loops: int


def read_graphs(launches: str) -> Graphs:
    """From the launch list that XLA dumps; what stands deeper than a graph is in it."""
    graphs = outside = host_loops = 0
    inside: set[str] = set()
    edge: int | None = None
    for line in launches.splitlines():
        found = re.match(r"(\s*)\d+: (k\w+)\s+\[.*?\] ?(\S*)", line)
        if not found:
            continue
        indent, kind, name = len(found[1]), found[2], found[3]
        if edge is not None and indent <= edge:
            edge = None
        if kind == "kCommandBuffer":
            graphs, edge = graphs + 1, indent
        elif edge is not None:
            inside.update([name] if name else [])
        else:
            outside += kind not in ("kWhile", "kConditional", "kSequential")
            host_loops += kind == "kWhile"
    return Graphs(graphs, frozenset(inside), outside, host_loops)

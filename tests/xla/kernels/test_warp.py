"""What a warp is told in PTX: registers are written before they are read, shared memory is not overwritten early."""

import re

import pytest

from diffsim.xla.kernels import warp_kernels as kernels
from diffsim.xla.kernels.warp import LANES, Ptx

WORLDS = 5


def program(name: str, n: int) -> list[str]:
    """The instructions of a kernel of matrices of n rows; `solve_gram` has nine constraints of three rows and one."""
    square, row = (WORLDS, n, n), (WORLDS, n)
    groups = ((0, 3, 9), (27, 1, 1))
    shapes = {
        "factor": (kernels._sized(kernels._factor_kernel, n=n), (square, square)),
        "solve": (kernels._sized(kernels._solve_kernel, n=n, count=2), (square, (WORLDS, 2, n), (WORLDS, 2, n))),
        "solve_sum": (kernels._sized(kernels._solve_sum_kernel, n=n), (square, square, row, row, row)),
        "solve_gram": (
            kernels._sized(kernels._solve_gram_kernel, n=n, groups=groups),
            (square, row, (WORLDS, 28, n), (WORLDS, 3, 9, 3), (WORLDS, 1, 1, 1), row, row),
        ),
    }
    kernel, arrays = shapes[name]
    return Ptx.text(name, kernel, arrays).splitlines()


@pytest.mark.parametrize("n", [1, 27, LANES, 40])
@pytest.mark.parametrize("name", ["factor", "solve", "solve_sum", "solve_gram"])
def test_registers_are_written_before_they_are_read(name: str, n: int) -> None:
    # those that the hardware fills
    written = {"%tid", "%ctaid"}
    for line in program(name, n):
        if line.startswith((".", "{", "}")) or line.endswith(":"):
            continue
        *guard, instruction = re.split(r"^(@%\w+) ", line)[-2:] if line.startswith("@") else [line]
        operation, _, rest = instruction.rstrip(";").partition(" ")
        stores = operation.startswith(("st.", "bar.", "bra", "ret"))
        names = re.findall(r"%\w+", rest)
        results = (
            [] if stores else re.findall(r"%\w+", rest[: rest.index("}") + 1] if rest.startswith("{") else names[0])
        )
        for register in (*re.findall(r"%\w+", "".join(guard)), *names[len(results) :]):
            assert register in written, line
        written |= set(results)
    assert any("st.global" in line for line in program(name, n))


@pytest.mark.parametrize("name", ["factor", "solve_gram"])
def test_shared_memory_is_written_again_only_after_all_lanes_read_it(name: str) -> None:
    """Between two writes of one buffer all lanes meet twice: before it is read, and after."""
    met: dict[str, int] = {}
    meetings = 0
    for line in program(name, 27):
        meetings += line.startswith("bar.warp.sync")
        if line.startswith("st.shared"):
            place = line.split(",")[0]
            assert meetings - met.get(place, -2) >= 2, line
            met[place] = meetings

"""What a warp is told in PTX: registers are written before they are read, shared memory is not overwritten early."""

import re

import numpy as np
import pytest

from diffsim.xla.kernels import warp_kernels as kernels
from diffsim.xla.kernels.cholesky import solve_gram
from diffsim.xla.kernels.ptx import Ptx
from diffsim.xla.kernels.warp import LANES
from diffsim.xla.kernels.warp_loop import Translated

WORLDS = 5


def program(name: str, n: int) -> list[str]:
    """The instructions of a kernel of matrices of n rows; `solve_gram` has nine constraints of three rows and one."""
    square, row = (WORLDS, n, n), (WORLDS, n)
    groups = ((0, 3, 9), (27, 1, 1))
    gram = (square, row, (WORLDS, 28, n), (WORLDS, 3, 9, 3), (WORLDS, 1, 1, 1), row)
    shapes = {
        "factor": (kernels._sized(kernels._factor_kernel, n=n), (square, square)),
        "solve": (kernels._sized(kernels._solve_kernel, n=n, count=2), (square, (WORLDS, 2, n), (WORLDS, 2, n))),
        "solve_sum": (kernels._sized(kernels._solve_sum_kernel, n=n), (square, square, row, row, row)),
        "solve_gram": (kernels._sized(kernels._solve_sum_kernel, n=n, groups=groups), (*gram, row)),
    }
    kernel, arrays = loop_of(n, gram) if name == "loop" else shapes[name]
    return Ptx.text(name, kernel, WORLDS, tuple((shape, "float32") for shape in arrays))[0].splitlines()


def loop_of(n: int, shapes: tuple) -> tuple:
    """A loop that solves with the sum, and its arrays: those of the sum, and x before and after."""

    def advance(problem: list, state: list) -> list:
        m, diagonal, jacobian, *weights, b = problem
        rows = jacobian, [weight * state[0][0] for weight in weights]
        return [solve_gram(m, diagonal + state[0], rows, b)]

    one = [np.zeros(shape[1:], np.float32) for shape in shapes]
    loop = Translated.of(lambda state: state[0][0] < 1, advance, one, one[-1:])
    assert loop is not None
    return loop.kernel, (*shapes, shapes[-1], shapes[-1])


@pytest.mark.parametrize("n", [1, 27, LANES, 40])
@pytest.mark.parametrize("name", ["factor", "solve", "solve_sum", "solve_gram", "loop"])
def test_registers_are_written_before_they_are_read(name: str, n: int) -> None:
    # those that the hardware fills
    written = {"%tid", "%ctaid"}
    for line in program(name, n):
        if line.startswith((".", "{", "}")) or line.endswith(":") or not line:
            continue
        line = line.replace("@!", "@")
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


@pytest.mark.parametrize("name", ["factor", "solve_gram", "loop"])
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

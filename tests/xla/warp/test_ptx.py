"""Kernels as a GPU is told them: the text in PTX, carried out by an emulator."""

import re

import numpy as np
import pytest

from diffsim.xla.solves import probe, warp_cholesky
from diffsim.xla.solves.cholesky import solve_gram
from diffsim.xla.warp import ptx
from tests.xla.warp.emulate import call, emulate


@pytest.fixture(autouse=True)
def _emulated(monkeypatch):
    monkeypatch.setattr(probe, "WORLDS", 3)
    monkeypatch.setattr(warp_cholesky, "call", call)
    monkeypatch.setattr(ptx, "call", call)


@pytest.mark.parametrize("n", [1, 32, 34])
def test_kernels_are_right(n):
    checks = probe.check_kernels(warp_cholesky, sizes=(n,)) + probe.check_loops(solve_gram, sizes=(n,))
    assert [check for check in checks if not check.passed] == []
    assert len(checks) == 5


PROGRAM = """pool[512];
mov.u32 %thread, %tid.x;
and.b32 %lane, %thread, 31;
mov.u32 %shared, pool;
mad.lo.u32 %shared, %lane, 4, %shared;
{}
ret;"""
WRITE, MEET, READ = "st.shared.u32 [%shared], %lane;", "bar.warp.sync 0xffffffff;", "ld.shared.u32 %r1, [pool+{}];"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([WRITE, READ.format(4)], "lanes 1 and 0 meet at number 1"),
        ([WRITE, MEET, READ.format(0), WRITE], "lanes .* meet at number 0"),
        (["setp.eq.u32 %p1, %lane, 3;", "@%p1 bra.uni end;", "end:"], "lanes disagree"),
        (["and.b32 %r1, %r2, 1;"], "%r2 is read before it is written"),
        (["ld.shared.u32 %r1, [pool+512];"], "."),
    ],
)
def test_the_emulator_finds_what_a_gpu_would_not_say(lines, said):
    with pytest.raises((AssertionError, IndexError), match=said):
        emulate(PROGRAM.format("\n".join(lines)), [np.zeros(1, np.float32)], 1, 1)
    # and nothing where lanes meet
    emulate(PROGRAM.format("\n".join([WRITE, MEET, READ.format(4), MEET, WRITE])), [np.zeros(1, np.float32)], 1, 1)


@pytest.mark.parametrize("removed", range(0, 12, 3))
def test_no_meeting_is_left_out(removed, monkeypatch):
    """Without one of the first meetings of lanes some number would depend on chance."""
    text = ptx.Ptx.text

    def without_one(*arguments):
        program, warps = text(*arguments)
        places = [found.span() for found in re.finditer(r"bar\.warp\.sync \S+;\n", program)]
        start, stop = places[removed]
        return program[:start] + program[stop:], warps

    monkeypatch.setattr(ptx.Ptx, "text", without_one)
    checks = probe.check_kernels(warp_cholesky, sizes=(27,))
    assert "meet at number" in checks[0].failure

"""The kernels are asked on the GPU that is there before a program relies on them."""

import types
import warnings

import jax
import numpy as np
import pytest

from diffsim.xla.solves import probe, warp_cholesky
from diffsim.xla.warp import loop
from diffsim.xla.warp import probe as warp_probe


@pytest.fixture(autouse=True)
def _forget():
    probe.cuda_kernels.cache_clear()
    loop.cuda_loops.cache_clear()
    yield
    probe.cuda_kernels.cache_clear()
    loop.cuda_loops.cache_clear()


def kernels(**changed):
    """All kernels by the interpreter, some of them replaced."""
    names = "factor", "solve", "solve_sum", "solve_gram"

    def interpreted(name):
        return lambda *arguments: getattr(warp_cholesky, name)(*arguments, interpret=True)

    return types.SimpleNamespace(**({name: interpreted(name) for name in names} | changed))


def test_kernels_that_are_right_are_used(monkeypatch):
    right = kernels()
    checks = probe.check_kernels(right, sizes=(1, 6))
    assert [check.kernel for check in checks] == 2 * ["factor", "solve", "solve_sum", "solve_gram"]
    assert all(check.passed for check in checks)
    monkeypatch.setattr(probe, "SIZES", (1,))
    monkeypatch.setattr(warp_probe, "find_gpu", lambda: jax.devices()[0])
    monkeypatch.setattr(probe, "warp_cholesky", right)
    monkeypatch.setattr(probe, "check_kernels", lambda kernels: checks)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert probe.cuda_kernels() is right


def refuses(*arguments):
    raise NotImplementedError("no such instruction\non this card")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"solve": lambda lower, b: np.full_like(b, np.nan)}, "first solve of 6 rows .error nan"),
        ({"factor": lambda matrix: matrix}, "first factor of 6 rows .error"),
        ({"solve_gram": refuses}, "first solve_gram of 6 rows .NotImplementedError: no such instruction"),
    ],
)
def test_kernels_that_fail_are_left_out_with_one_warning(changed, said, monkeypatch):
    broken = kernels(**changed)
    checks = probe.check_kernels(broken, sizes=(6,))
    monkeypatch.setattr(warp_probe, "find_gpu", lambda: jax.devices()[0])
    monkeypatch.setattr(probe, "warp_cholesky", broken)
    monkeypatch.setattr(probe, "check_kernels", lambda kernels: checks)
    with pytest.warns(RuntimeWarning, match=said) as warned:
        assert probe.cuda_kernels() is None
        assert probe.cuda_kernels() is None
    assert len(warned) == 1


def test_loops_that_fail_leave_the_kernels(monkeypatch):
    monkeypatch.setattr(warp_probe, "find_gpu", lambda: jax.devices()[0])
    monkeypatch.setattr(probe, "check_kernels", lambda kernels: [])
    # a CPU knows no such kernel
    with pytest.warns(RuntimeWarning, match="first loop of 1 rows"):
        assert not loop.cuda_loops()
    assert probe.cuda_kernels() is warp_cholesky


def test_without_a_gpu_nothing_is_asked():
    assert probe.cuda_kernels() is warp_cholesky
    assert loop.cuda_loops()

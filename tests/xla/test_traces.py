"""Traced programs on disk: what is recalled, what is another program, and what is traced by every process."""

import contextlib
import functools
import logging
import math
import pathlib
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import diffsim
from diffsim.types.hooks import Hooks
from diffsim.xla import stored, traces
from diffsim.xla.fingerprint import fingerprint

PENDULUM = '<mujoco><worldbody><body><joint axis="0 1 0"/><geom size=".1" pos="0 0 1"/></body></worldbody></mujoco>'


@pytest.fixture
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pathlib.Path]:
    """A folder in which every trace is stored."""
    monkeypatch.setattr(traces, "WORTH_STORING", 0.0)
    stored.store_in(tmp_path, traces=True)
    yield tmp_path
    stored.store_in(None)


def digest(function: Callable, *args: Any) -> str | None:
    leaves, structure = jax.tree.flatten((args, {}))
    return fingerprint(function, structure, list(map(jax.typeof, map(jnp.asarray, leaves))))


def defined(source: str, **names: Any) -> Callable:
    """The function `f` of a source text, as in a user's script with these global variables."""
    script: dict[str, Any] = {"__name__": "__main__", "jax": jax, "jnp": jnp, "np": np, "diffsim": diffsim, **names}
    exec(textwrap.dedent(source), script)
    return script["f"]


def written(folder: pathlib.Path) -> dict[str, int]:
    """The time at which each program was written."""
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("*-trace")}


def test_a_trace_is_recalled(folder: pathlib.Path) -> None:
    """By a new function of the same code: the same values, structure and weak types."""
    source = "def f(x, key): return {'sine': jnp.sin(x) * gain, 'twice': 2.0 * x, 'draw': jax.random.normal(key)}"
    key = jax.random.key(3)
    first = diffsim.jit(defined(source, gain=jnp.ones(3)))(1.5, key=key)
    before = written(folder)
    assert len(before) == 1
    again = diffsim.jit(defined(source, gain=jnp.ones(3)))(1.5, key=key)
    assert written(folder) == before
    plain = jax.jit(defined(source, gain=jnp.ones(3)))(1.5, key=key)
    assert jax.tree.structure(again) == jax.tree.structure(plain)
    for one, two, three in zip(*map(jax.tree.leaves, (first, again, plain)), strict=True):
        np.testing.assert_array_equal(two, three)
        np.testing.assert_array_equal(one, three)
        assert two.aval == three.aval
    diffsim.jit(defined(source, gain=jnp.full(3, 2.0)))(1.5, key=key)
    assert len(written(folder)) == 2


def test_the_stored_program_runs(folder: pathlib.Path) -> None:
    """The program of a cosine under the digest of a sine gives a cosine."""
    diffsim.jit(defined("def f(x): return jnp.sin(x)"))(1.0)
    (sine,) = folder.iterdir()
    diffsim.jit(defined("def f(x): return jnp.cos(x)"))(1.0)
    (cosine,) = set(folder.iterdir()) - {sine}
    sine.write_bytes(cosine.read_bytes())
    assert float(diffsim.jit(defined("def f(x): return jnp.sin(x)"))(1.0)) == pytest.approx(math.cos(1))


def test_a_step_is_recalled(folder: pathlib.Path) -> None:
    """Also by a model with other numbers, which are arguments."""
    model = diffsim.load(PENDULUM)
    heavier = model.replace(body_mass=model.body_mass * 2)
    state = diffsim.make_state(model).replace(qpos=jnp.array([0.3]))
    plain = jax.jit(diffsim.step)
    for mechanism in (model, heavier, model):
        step = diffsim.jit(defined("def f(model, state): return diffsim.step(model, state)"))
        np.testing.assert_array_equal(step(mechanism, state).qvel, plain(mechanism, state).qvel)
    assert len(written(folder)) == 1


def test_functions_of_every_kind(folder: pathlib.Path) -> None:
    """Partial functions, lambdas, methods and functions with names that no file can have."""
    source = "def f(x, k=1): return x * k"
    odd = defined(source)
    odd.__name__ = "../odd/" * 40
    functions = [functools.partial(defined(source), k=2), functools.partial(defined(source), k=3), lambda x: x * 4, odd]
    for _ in range(2):
        assert [float(diffsim.jit(f)(1.0)) for f in functions] == [2, 3, 4, 1]
        assert float(diffsim.jit(Own().twice)(1.0)) == 2
    assert len(written(folder)) == 4


def test_a_damaged_file_is_written_again(folder: pathlib.Path) -> None:
    source = "def f(x): return jnp.cos(x)"
    diffsim.jit(defined(source))(1.0)
    (path,) = folder.iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[:50])
    assert float(diffsim.jit(defined(source))(1.0)) == pytest.approx(math.cos(1))
    assert path.read_bytes()[:50] == whole[:50]
    assert len(path.read_bytes()) > 50


def test_what_calls_python_is_traced(folder: pathlib.Path) -> None:
    source = "def f(x): return jax.pure_callback(np.cos, jax.ShapeDtypeStruct((), x.dtype), x)"
    for _ in range(2):
        assert float(diffsim.jit(defined(source))(jnp.zeros(()))) == 1
    assert not list(folder.iterdir())


def test_a_loop_compiles_once(folder: pathlib.Path) -> None:
    """Results of a program are arguments like those that it began with."""
    for _ in range(2):
        advance = diffsim.jit(defined("def f(x): return jnp.sin(x)"))
        with jax.log_compiles(True), capture() as lines:
            x = advance(jnp.ones(3))
            before = len(lines)
            assert not advance(x).committed
        assert before == len(lines) > 0


@contextlib.contextmanager
def capture() -> Iterator[list[str]]:
    """What JAX says of its compilations."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("jax")
    logger.addHandler(handler)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)


def test_a_trace_that_changed_what_it_reads_is_not_stored(folder: pathlib.Path) -> None:
    counts = np.zeros(1)
    source = "def f(x): counts[0] += 1; return x * counts[0]"
    assert float(diffsim.jit(defined(source, counts=counts))(1.0)) == 1
    assert not list(folder.iterdir())


CALL = "def g(x): return x * {}\ndef f(x): return g(x)"


@pytest.mark.parametrize(
    ("one", "two", "names"),
    [
        ("def f(x): return x * 2", "def f(x): return x * 3", {}),
        ("def f(x): return x * 1", "def f(x): return x * 1.0", {}),
        ("def f(x): return x * 0.0", "def f(x): return x * -0.0", {}),
        ("def f(x): return jnp.sin(x)", "def f(x): return jnp.cos(x)", {}),
        (CALL.format(2), CALL.format(3), {}),
        ("def f(x, k=2): return x * k", "def f(x, k=3): return x * k", {}),
        ("def f(x, *, k=2): return x * k", "def f(x, *, k=3): return x * k", {}),
        ("def g(k): return lambda x: x * k\nf = g(2)", "def g(k): return lambda x: x * k\nf = g(3)", {}),
        ("k = np.ones(2)\ndef f(x): return x * k", "k = jnp.ones(2)\ndef f(x): return x * k", {}),
        ("k = np.ones(1)\ndef f(x): return x * k", "k = np.ones(())\ndef f(x): return x * k", {}),
        ("k = jnp.int4(-1)\ndef f(x): return x * k", "k = jnp.uint4(15)\ndef f(x): return x * k", {}),
        ("k = {'a': 1}\ndef f(x): return x * k['a']", "k = {'a': 2}\ndef f(x): return x * k['a']", {}),
        ("def f(x): return x * 2\nf = jax.grad(f)", "def f(x): return x * 2\nf = jax.vmap(f)", {}),
        ("def h(x): return x\nh.k = 2\ndef f(x): return h.k", "def h(x): return x\nh.k = 3\ndef f(x): return h.k", {}),
    ],
)
def test_other_content_is_another_program(one: str, two: str, names: dict) -> None:
    first = digest(defined(one, **names), 1.0)
    assert first is not None
    assert first == digest(defined(one, **names), 1.0)
    second = digest(defined(two, **names), 1.0)
    assert second is not None
    assert first != second


def test_arguments_settings_and_hooks_make_other_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    f = defined("def f(x): return x")
    model = diffsim.load(PENDULUM)
    twice = model.replace(hooks=Hooks(passive=defined("def f(model, state, data): return -state.qvel")))
    thrice = model.replace(hooks=Hooks(passive=defined("def f(model, state, data): return -2 * state.qvel")))
    found = [digest(f, x) for x in (jnp.ones(()), jnp.ones(2), jnp.ones(2, int), (jnp.ones(2),), model, twice, thrice)]
    found.append(digest(f, model.replace(opt=model.opt.replace(iterations=3))))
    leaves, structure = jax.tree.flatten(((1.0,), {}))
    found.append(fingerprint(f, structure, list(map(jax.typeof, leaves))))
    with jax.default_matmul_precision("float32"):
        found.append(digest(f, jnp.ones(())))
    monkeypatch.setenv("DIFFSIM_KERNELS", "0")
    found.append(digest(f, jnp.ones(())))
    assert None not in found
    assert len(set(found)) == len(found)
    # numbers of a model are arguments
    monkeypatch.delenv("DIFFSIM_KERNELS")
    assert digest(f, model.replace(body_mass=2 * model.body_mass)) == digest(f, model)


class Own:
    gain = 2.0

    def twice(self, x: jax.Array) -> jax.Array:
        return self.gain * x


@pytest.mark.parametrize(
    "source",
    [
        "def f(x): import math; return x",
        "def f(x): print(x); return x",
        "def f(x): return x * np.random.uniform()",
        "def f(x): return x + np.load('x.npy')",
        "def f(x): return diffsim.load('model.xml').qpos0 + x",
        "def f(x): return open('x').read()",
        "def f(x): return getattr(np, 'ran' + 'dom').uniform() * x",
        "from numpy import load\ndef f(x): return x + load('x.npy')",
        "def g(lib): return lambda x: x + lib.load('x.npy')\nf = g(np)",
        "from collections import defaultdict\nk = defaultdict(int)\ndef f(x): return x * k['a']",
        "k = np.ones(3_000_000)\ndef f(x): return x * k",
        "def f(x):\n global y\n y = x\n return x",
        "def g():\n n = 0\n def f(x):\n  nonlocal n\n  n += 1\n  return x\n return f\nf = g()",
        "def f(x): f.seen = x; return x",
        "def f(x): return x * own.gain",
        "def f(x): return x * time.time()",
        "def f(x): return x * unknown",
        "g = jax.jit(lambda x: x)\ndef f(x): return g(x)",
        "def f(x): return x * rng.uniform()",
    ],
)
def test_what_cannot_be_listed_is_traced_by_every_process(source: str) -> None:
    names = {"own": Own(), "time": __import__("time"), "rng": np.random.default_rng(0)}
    assert digest(defined(source, **names), 1.0) is None


def test_a_patched_diffsim_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    f = defined("def f(x): return x")
    assert digest(f, 1.0) is not None
    monkeypatch.setattr("diffsim.dynamics.bias.compute_bias", lambda *_: None, raising=False)
    assert digest(f, 1.0) is None


def test_errors_of_the_function_come_through(folder: pathlib.Path) -> None:
    with pytest.raises(TypeError, match="add got incompatible shapes"):
        diffsim.jit(defined("def f(x): return x + jnp.ones(3)"))(jnp.ones(2))
    assert not list(folder.iterdir())

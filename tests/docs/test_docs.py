"""The documentation: every block of Python runs, the reference names everything public, the site builds."""

import functools
import html
import importlib.util
import inspect
import os
import pathlib
import re
import subprocess
import sys
import types

import jax
import pytest
from wide import wide

import diffsim
from diffsim import envs, math, mjx, optimize, support, viewer, viz

ROOT = pathlib.Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
# what goes through other pages once more, from end to end, or compiles for ten seconds and more what other tests do
LONG = ("tasks", "planning", "control", "looking", "identification", "linearization", "sleep", "urdf", "objects")
CACHE = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")

# pages about packages that need not be installed
NEEDS = {"pytorch": "torch", "robot": "onnxruntime"}

# what the variables of a page must say in the end
REACHED = {
    "control": (
        "bool(goal.reached)",
        "abs(floating.qpos - home.qpos).max() < 1e-3",
        "abs(tip.xpos(diffsim.forward(model, there)) - pos).max() < 2e-3",
        "abs(state.qpos[1]) < 0.05",
    )
}

# numbers of tasks.md, whose table is timed with them, and what the test puts in their place
SMALL = {"1024": "4", "(320, 180)": "(32, 24)", "(400, ": "(40, "}


def blocks(path: pathlib.Path) -> list[str]:
    text = path.read_text()
    if path.stem == "tasks":
        assert all(number in text for number in SMALL)
        text = functools.reduce(lambda text, pair: text.replace(*pair), SMALL.items(), text)
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def cases() -> list[pathlib.Path]:
    """The pages with Python; the long ones where there is time."""
    pages = [page for page in PAGES if blocks(page)]
    return [page for page in pages if page.stem not in LONG] + wide(page for page in pages if page.stem in LONG)


@pytest.mark.parametrize("path", cases(), ids=lambda page: page.stem)
def test_blocks_run(path: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if path.stem in NEEDS:
        pytest.importorskip(NEEDS[path.stem])
    monkeypatch.chdir(tmp_path)
    kept = {name: getattr(jax.config, name) for name in CACHE}
    space: dict[str, object] = {}
    try:
        with jax.numpy_rank_promotion("allow"):
            for number, block in enumerate(blocks(path)):
                exec(compile(block, f"{path.name}, block {number + 1}", "exec"), space)
        for condition in REACHED.get(path.stem, ()):
            assert eval(condition, space), condition
    finally:
        for name, value in kept.items():
            jax.config.update(name, value)


def test_no_block_is_of_another_kind() -> None:
    kinds = {kind for page in PAGES for kind in re.findall(r"^```(\w*)$", page.read_text(), re.MULTILINE)}
    # text is what cannot run here: other packages, several hosts, equations
    assert kinds <= {"", "python", "sh", "text"}


def test_the_reference_names_everything_public() -> None:
    text = "\n".join(page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md"))
    public = [name for name in vars(diffsim) if not name.startswith("_")]
    functions = [name for name in public if not isinstance(getattr(diffsim, name), types.ModuleType)]
    missing = [name for name in functions if f"::: diffsim.{name}\n" not in text + "\n"]
    assert not missing
    # whole modules are listed by their names
    for module in (envs, viz, viewer, optimize):
        assert f"::: {module.__name__}" in text


@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="mkdocs is not installed (extra docs)")
def test_the_site_builds_without_warnings(tmp_path: pathlib.Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert "set_qpos" in (tmp_path / "recipes" / "names" / "index.html").read_text()
    notebooks = [page.read_text() for page in (tmp_path / "notebooks").rglob("*.html")]
    assert len(notebooks) == 4 and all(".png" in page for page in notebooks)
    site = "\n".join(page.read_text() for page in (tmp_path / "reference").rglob("*.html"))
    titles = set(re.findall(r"<h\d[^>]*>\s*([\w.]+)\s*<", site))
    words = " ".join(html.unescape(re.sub(r"<[^>]+>", "", site)).split())
    missing = []
    for package in (diffsim, envs, viz, viewer, optimize, support, math, mjx):
        for name, value in vars(package).items():
            # constants and second names have a heading, all else its docstring too
            text = inspect.getdoc(value) if getattr(value, "__name__", "") == name else ""
            first = " ".join(re.sub(r"[`*]", "", (text or "").split("\n")[0]).split())[:50]
            title = f"{package.__name__}.{name}"
            if name[0] != "_" and not inspect.ismodule(value) and not (title in titles and first in words):
                missing.append(title)
    assert missing == []

"""The examples run, print results and leave pictures; the notebook runs from top to end.

They run with the flags of the suite, which halve compilation; `make demo` and `make examples` run them as users do. So
does tests/api/test_default_flags.py with a program of its own.
"""

import math
import os
import pathlib
import re
import subprocess
import sys

import nbclient
import nbformat
import pytest
from PIL import Image
from wide import WIDE

ROOT = pathlib.Path(__file__).parents[2]


def printed(arguments: list[str], folder: pathlib.Path) -> list[str]:
    """What Python prints, run in `folder`."""
    environment = {**os.environ, "MPLBACKEND": "Agg", "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".jax_cache")}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


def run(name: str, out: pathlib.Path, **settings: int) -> dict[str, float | str]:
    """Runs an example in a process of its own; its results by key."""
    arguments = [str(ROOT / "examples" / f"{name}.py"), "--out", str(out)]
    arguments += [text for key, value in settings.items() for text in (f"--{key}", str(value))]
    lines = printed(arguments, out)
    pairs = [line.removeprefix("RESULT ").split("=", 1) for line in lines if line.startswith("RESULT")]
    results: dict[str, float | str] = {}
    for key, value in pairs:
        try:
            results[key] = float(value)
        except ValueError:
            results[key] = value
    return results


def assert_picture(path: pathlib.Path) -> None:
    """A picture of some size that is not of one colour."""
    image = Image.open(path).convert("RGB")
    assert min(image.size) >= 300
    assert len(image.getcolors(maxcolors=1 << 24)) > 50


def test_readme() -> None:
    code = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    slope, mean = map(float, printed(["-c", code[0]], ROOT))
    assert math.isfinite(slope) and slope != 0
    assert abs(mean) < 1


def test_throw_to_target_misses_by_less_than_a_centimetre(tmp_path: pathlib.Path) -> None:
    results = run("throw_to_target", tmp_path)
    assert float(results["miss"]) < 0.01
    assert results["bounced"] == "True"
    assert_picture(tmp_path / "throw_to_target.png")


def test_demo(tmp_path: pathlib.Path) -> None:
    results = run("demo", tmp_path, worlds=64, chunks=2)
    assert float(results["gradient_relative_error"]) < 1e-5
    assert_picture(tmp_path / "demo.png")


if WIDE:

    def test_many_worlds(tmp_path: pathlib.Path) -> None:
        results = run("many_worlds", tmp_path, worlds=128, steps=30)
        assert float(results["steps_per_second"]) > 100
        assert 0.0 <= float(results["standing"]) <= 1.0
        assert_picture(tmp_path / "many_worlds.png")

    def test_identify_arm_finds_the_truth_to_two_percent(tmp_path: pathlib.Path) -> None:
        results = run("identify_arm", tmp_path, windows=8)
        assert float(results["worst_error"]) < 0.02
        assert_picture(tmp_path / "identify_arm.png")


BEGIN = """
import runpy, sys
for name in sys.argv[2:]:
    sys.argv = [name, "--help"]
    try:
        runpy.run_path(f"{sys.path[0]}/{name}.py", run_name="__main__")
    except SystemExit as end:
        assert not end.code
"""


def test_the_rest_begin(tmp_path: pathlib.Path) -> None:
    """`make examples` runs them to the end; here their imports and arguments are tried."""
    rest = ["balance", "identify_arm", "landscapes", "learn_to_reach", "look", "many_worlds", "swing_up"]
    said = printed(["-c", f"import sys; sys.path[0] = {str(ROOT / 'examples')!r}" + BEGIN, "", *rest], tmp_path)
    assert sum("--out" in line and "usage" in line for line in said) == len(rest)


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda p: p.stem)
@pytest.mark.filterwarnings("ignore")
def test_notebook(path: pathlib.Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(ROOT)}})
    client.execute()
    texts = [o.get("text", "") for cell in notebook.cells for o in cell.get("outputs", [])]
    assert any("did you mean 'damping'" in text for text in texts)
    assert any("BAD_QVEL" in text for text in texts)

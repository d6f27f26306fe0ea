"""The examples run as a user runs them, print results and leave pictures; the notebook runs from top to end."""

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

ROOT = pathlib.Path(__file__).parents[2]


def printed(arguments: list[str], folder: pathlib.Path) -> list[str]:
    """What Python prints, run with the defaults of a user in `folder`."""
    environment = {**os.environ, "MPLBACKEND": "Agg", "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".jax_cache")}
    environment.pop("XLA_FLAGS", None)
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


def test_many_worlds(tmp_path: pathlib.Path) -> None:
    results = run("many_worlds", tmp_path, worlds=256, steps=40)
    assert float(results["steps_per_second"]) > 1000
    assert 0.0 <= float(results["standing"]) <= 1.0
    assert_picture(tmp_path / "many_worlds.png")


def test_throw_to_target_misses_by_less_than_a_centimetre(tmp_path: pathlib.Path) -> None:
    results = run("throw_to_target", tmp_path)
    assert float(results["miss"]) < 0.01
    assert results["bounced"] == "True"
    assert_picture(tmp_path / "throw_to_target.png")


def test_identify_arm_finds_the_truth_to_two_percent(tmp_path: pathlib.Path) -> None:
    results = run("identify_arm", tmp_path)
    assert float(results["worst_error"]) < 0.02
    assert_picture(tmp_path / "identify_arm.png")


def test_demo(tmp_path: pathlib.Path) -> None:
    results = run("demo", tmp_path, worlds=64, chunks=2)
    assert float(results["gradient_relative_error"]) < 1e-5
    assert_picture(tmp_path / "demo.png")


@pytest.mark.parametrize("name", ["balance", "learn_to_reach", "look", "swing_up"])
def test_the_rest_begin(name: str, tmp_path: pathlib.Path) -> None:
    """`make examples` runs them to the end; here their imports and arguments are tried."""
    said = "\n".join(printed([str(ROOT / "examples" / f"{name}.py"), "--help"], tmp_path))
    assert "--out" in said


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda p: p.stem)
@pytest.mark.filterwarnings("ignore")
def test_notebook(path: pathlib.Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(ROOT)}})
    client.execute()
    texts = [o.get("text", "") for cell in notebook.cells for o in cell.get("outputs", [])]
    assert any("did you mean 'damping'" in text for text in texts)
    assert any("BAD_QVEL" in text for text in texts)

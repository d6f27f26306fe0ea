"""The wheel that `python -m build` makes works in an environment in which nothing else is."""

import pathlib
import shutil
import subprocess
import sys
import venv

import pytest

ROOT = pathlib.Path(__file__).parents[2]
NOT_SOURCE = shutil.ignore_patterns(".git", ".venv*", "out", "build", "*.egg-info", ".*_cache", "__pycache__", "tests")
USE = """
import pathlib
import sys
import jax
import diffsim

assert "site-packages" in diffsim.__file__, diffsim.__file__
folder = pathlib.Path(diffsim.__file__).parent
assert (folder / "api.md").read_text().startswith("# The API of diffsim") and (folder / "llms.txt").exists()
# packages are imported when they are first asked for
assert "diffsim.envs" not in sys.modules and "envs" in dir(diffsim)
model = diffsim.load("hopper")
state = diffsim.make_state(model)
assert float(diffsim.step(model, state).time) > 0
assert diffsim.viz.render(model, state, size=(16, 12)).shape == (12, 16, 3)
diffsim.viewer.to_html(model, jax.tree.map(lambda x: x[None], state), "page.html")
assert diffsim.envs.make("hopper").action_size == model.nu and diffsim.optimize.ilqr and diffsim.mjx.step
"""


def environment(folder: pathlib.Path) -> pathlib.Path:
    """The interpreter of a new environment."""
    venv.create(folder, with_pip=True)
    return next(folder.glob("*/python")) if sys.platform != "win32" else folder / "Scripts" / "python.exe"


def install(python: pathlib.Path, what: str) -> None:
    """Skips where packages cannot be had: the test is about ours."""
    done = subprocess.run([python, "-m", "pip", "install", "--quiet", what], capture_output=True, text=True)
    if "Could not find a version" in done.stderr or "Failed to establish" in done.stderr:
        pytest.skip(f"no package index within reach: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Built of the source distribution, as `python -m build` does."""
    folder = tmp_path_factory.mktemp("wheel")
    tools = environment(folder / "tools")
    install(tools, "build")
    shutil.copytree(ROOT, folder / "source", ignore=NOT_SOURCE)
    subprocess.run([tools, "-m", "build", "--outdir", folder, folder / "source"], check=True, capture_output=True)
    return next(folder.glob("*.whl"))


def test_the_wheel_works_in_an_empty_environment(wheel: pathlib.Path, tmp_path: pathlib.Path) -> None:
    python = environment(tmp_path / "empty")
    install(python, str(wheel))
    subprocess.run([python, "-I", "-c", USE], cwd=tmp_path, check=True)
    assert (tmp_path / "page.html").stat().st_size > 10_000
    helped = subprocess.run([python.parent / "diffsim", "--version"], check=True, capture_output=True, text=True)
    assert wheel.name.split("-")[1] in helped.stdout

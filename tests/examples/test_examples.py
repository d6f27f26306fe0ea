"""The examples run, print results and leave pictures; the notebooks run from top to end.

They run with the flags of the suite, which halve compilation; `make demo` and `make examples` run them as users do. So
does tests/api/test_default_flags.py with a program of its own.
"""

import contextlib
import io
import math
import os
import pathlib
import re
import subprocess
import sys

import jax
import matplotlib.pyplot as plt
import nbformat
import pytest
from PIL import Image
from wide import WIDE, wide

ROOT = pathlib.Path(__file__).parents[2]
TORSO = ROOT / "tests" / "models" / "torso.xml"


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


def test_demo(tmp_path: pathlib.Path) -> None:
    results = run("demo", tmp_path, worlds=8, learners=2, updates=2, steps=25)
    assert float(results["gradient_relative_error"]) < 1e-5
    assert float(results["walked_after"]) > float(results["walked_before"])
    assert_picture(tmp_path / "demo.png")


if WIDE:

    def test_throw_to_target_misses_by_less_than_a_centimetre(tmp_path: pathlib.Path) -> None:
        results = run("throw_to_target", tmp_path)
        assert float(results["miss"]) < 0.01
        assert results["bounced"] == "True"
        assert_picture(tmp_path / "throw_to_target.png")

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
    rest = ["balance", "billiard", "identify_arm", "landscapes", "learn_by_gradient", "learn_to_hop", "learn_to_reach"]
    rest += ["look", "many_worlds", "portrait", "soft_cube", "soft_gripper", "swing_up", "throw_to_target", "towel"]
    rest += ["push_box", "slide_box", "two_versions", "learn_velocity"]
    said = printed(["-c", f"import sys; sys.path[0] = {str(ROOT / 'examples')!r}" + BEGIN, "", *rest], tmp_path)
    assert sum("--out" in line and "usage" in line for line in said) == len(rest)


# what notebooks print, in the stored outputs and when run
SAYS = {
    "01_first_steps": ["did you mean 'damping'", "BAD_QVEL"],
    "02_gradients_through_contact": ["rise of the whole curve", "the puck moved 0.0 m, derivative"],
    "03_identification": ["body_mass[fore]", "not identified: "],
    "04_a_thousand_robots": ["no world went bad", "stand"],
}
# what stands in for the cell tagged "parameters"; `jupyter execute` (`make examples`) runs them as they are
SMALL: dict[str, dict[str, object]] = {
    "01_first_steps": {"robot": TORSO, "swing": {"x": 0.4}, "steps": 4, "worlds": 2},
    "02_gradients_through_contact": {"steps": 12, "speeds": 2, "samples": 2, "tries": 1, "size": (48, 32)},
    "03_identification": {"steps": 50, "window": 25, "iterations": 2},
    "04_a_thousand_robots": {"robot": TORSO, "push": 0, "worlds": 8, "steps": 4, "size": (48, 32)},
}


NOTEBOOKS = [ROOT / "notebooks" / f"{name}.ipynb" for name in SMALL]
# what they compute is tested in tests/simulate/test_split.py and tests/optimize too
LONG = ("02_gradients_through_contact", "03_identification")


def test_every_notebook_has_small_numbers() -> None:
    assert sorted((ROOT / "notebooks").glob("*.ipynb")) == NOTEBOOKS


@pytest.mark.parametrize(
    "path",
    [path for path in NOTEBOOKS if path.stem not in LONG] + wide(path for path in NOTEBOOKS if path.stem in LONG),
    ids=lambda path: path.stem,
)
@pytest.mark.filterwarnings("ignore")
def test_notebook(path: pathlib.Path) -> None:
    """Its cells run from top to end, in this process, with small numbers; outputs of the full size are stored."""
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    space: dict[str, object] = {}
    said = io.StringIO()
    with jax.numpy_rank_promotion("allow"), contextlib.redirect_stdout(said):
        for number, cell in enumerate(cells):
            exec(compile(cell.source, f"{path.name}, cell {number + 1}", "exec"), space)
            if "parameters" in cell.metadata.get("tags", []):
                assert SMALL[path.stem].keys() <= space.keys()
                space |= SMALL[path.stem]
    plt.close("all")
    texts = "".join(output.get("text", "") for cell in cells for output in cell.outputs)
    kinds = [output.output_type for cell in cells for output in cell.outputs]
    assert "display_data" in kinds and "error" not in kinds
    for text in SAYS[path.stem]:
        assert text in texts and text in said.getvalue()

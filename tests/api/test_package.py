"""What is installed: every file of the package that is no code is listed as data, or a wheel would lack it."""

import fnmatch
import pathlib
import tomllib

import diffsim

ROOT = pathlib.Path(__file__).parents[2]


def test_a_wheel_has_all_files() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["diffsim"]
    files = [path.relative_to(ROOT / "diffsim") for path in (ROOT / "diffsim").rglob("*") if path.is_file()]
    data = [str(path) for path in files if path.suffix != ".py" and "__pycache__" not in path.parts]
    assert len(data) > 8
    assert [path for path in data if not any(fnmatch.fnmatch(path, pattern) for pattern in patterns)] == []
    # setuptools finds packages by their __init__
    code = {path.parent for path in files if path.suffix == ".py" and "__pycache__" not in path.parts}
    assert [str(folder) for folder in code if not (ROOT / "diffsim" / folder / "__init__.py").exists()] == []


def test_versions_agree() -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == diffsim.__version__


def test_optional_packages_are_extras() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {"viz", "gym", "examples", "docs", "rl"} <= set(extras)

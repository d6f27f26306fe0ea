"""The table of changes: each row is asked for in one place, the page of the documentation is made from it."""

import pathlib
import re

import pytest

import diffsim
from diffsim.base import changes
from diffsim.mjcf import versions

ROOT = pathlib.Path(diffsim.__file__).parent
PAGE = ROOT.parent / "docs" / "coming" / "newer.md"
SIMPLE = "<mujoco><worldbody><body><joint/><geom size='.1'/></body></worldbody></mujoco>"


def test_every_change_is_asked_for_in_one_place() -> None:
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in ROOT.rglob("*.py")}
    del texts["base/changes.py"]
    for name, change in changes.CHANGES.items():
        question = re.compile(rf'follows\((\w+, )?"{name}"\)')
        asking = [path for path, text in texts.items() for _ in question.findall(text)]
        assert asking == [change.stage] * bool(change.stage), name
        assert change.since in changes.VERSIONS[1:]


def test_the_page_has_the_tables() -> None:
    page = PAGE.read_text()
    order = {version: place for place, version in enumerate(changes.VERSIONS)}
    rows = sorted(changes.CHANGES.values(), key=lambda change: order[change.since])
    followed = [f"| {c.since} | {c.before} | {c.now} |" for c in rows if c.stage]
    kept = [f"| {c.since} | {c.now} | {c.before} |" for c in rows if not c.stage]
    words = [
        f"| {since} | {word} | {does} |" for since, word, does in sorted(versions.words(), key=lambda w: order[w[0]])
    ]
    for table in (followed, kept, words):
        assert "\n".join(table) in page, "the page lacks this table:\n" + "\n".join(table)


@pytest.mark.parametrize("said, version", [("4.0", "4.0"), ("4.0.0", "4.0"), ("3.17", "3.17"), ("3.8", "3.8.1")])
def test_versions_are_kept(said: str, version: str, tmp_path: pathlib.Path) -> None:
    model = diffsim.load(SIMPLE, mujoco=said)
    assert model.opt.mujoco == version
    assert model.opt.follows("margin_gap") == (version != "3.8.1")
    model.save(tmp_path / "model.npz")
    assert diffsim.load(tmp_path / "model.npz").opt.mujoco == version
    spec = diffsim.mjcf.read(SIMPLE, mujoco=said)
    assert diffsim.compile(spec).opt.mujoco == version
    assert diffsim.compile(diffsim.mjcf.read(SIMPLE), mujoco=said).opt.mujoco == version


@pytest.mark.parametrize("said", ["5.0", "3.7", "new", "4"])
def test_other_versions_are_refused(said: str) -> None:
    with pytest.raises(diffsim.ArgumentError, match="is not a version of MuJoCo that diffsim can follow"):
        diffsim.load(SIMPLE, mujoco=said)


def test_a_saved_model_keeps_its_version(tmp_path: pathlib.Path) -> None:
    diffsim.load(SIMPLE).save(tmp_path / "model.npz")
    with pytest.raises(ValueError, match=r"saved with the semantics of MuJoCo 3\.8\.1"):
        diffsim.load(tmp_path / "model.npz", mujoco="4.0")

"""The texts for assistants: the API on one page is complete and short, and the index has every page."""

import importlib
import inspect
import pathlib
import re
import sys

import pytest
from wide import WIDE

ROOT = pathlib.Path(__file__).parents[2]
sys.path.append(str(ROOT / "docs"))

import llms  # type: ignore  # noqa: E402

# lines that an assistant can read at once
MOST = 300


def test_the_page_names_everything_public_with_its_docstring() -> None:
    page = llms.api()
    assert page.count("\n") <= MOST
    for section in [*llms.SECTIONS, *llms.LISTED]:
        if section in ("diffsim.torch", "diffsim.envs.vector"):
            # of optional packages
            continue
        module, text = importlib.import_module(section), page.split(f": `{section}`\n")[1].split("\n## ")[0]
        names = llms.names_of(section)
        assert names
        for name in names:
            value = getattr(module, name)
            if section in llms.LISTED:
                assert re.search(rf"\b{name}\b", text), f"{section}.{name}"
            elif getattr(value, "__name__", "") == name:
                line = re.search(rf"^- `{name}[(`].*$", text, re.MULTILINE)
                assert line, f"{section}.{name}"
                assert "`: " + (inspect.getdoc(value) or "").split("\n")[0] in line[0]
    assert "`rollout(model, state, ctrl, readout=None, inputs=None, checkpoint=True, contacts=True) -> Rollout`" in page
    assert "qpos, qvel, act" in page


if WIDE:

    def test_its_program_runs(capsys: pytest.CaptureFixture[str]) -> None:
        (program,) = re.findall(r"^```python\n(.*?)^```", llms.api(), re.DOTALL | re.MULTILINE)
        exec(compile(program, "api.md", "exec"), {})
        assert len(capsys.readouterr().out.splitlines()) == 3


def test_the_index_has_every_page(tmp_path: pathlib.Path) -> None:
    index = llms.index()
    pages = [page.relative_to(ROOT / "docs") for page in (ROOT / "docs").rglob("*.md")]
    assert pages
    for page in pages:
        place = str(page.with_suffix("")).removesuffix("index")
        assert f"]({place}/): " in index, page
    sentences = re.findall(r"/\): (.*)$", index, re.MULTILINE)
    assert len(sentences) == len(pages) and all(len(sentence) > 20 for sentence in sentences)
    llms.write(tmp_path)
    assert (tmp_path / "llms.txt").read_text() == index and (tmp_path / "api.md").exists()

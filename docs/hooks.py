"""Hooks for mkdocs: `::: diffsim.optimize` becomes an entry for each public name of a package; notebooks become pages.

Each name is looked up in the module from which the package imports it, so that a function is never confused with a
module of the same name (`diffsim.load`). Headings keep the public name. The pages of notebooks show what their cells
printed and drew.
"""

import base64
import json
import pathlib
import re
import sys
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = pathlib.Path(__file__).parents[1]
# mkdocs loads this file by its path
sys.path.append(str(ROOT / "docs"))

from llms import api, index, public  # type: ignore  # noqa: E402


def entry(name: str, source: str) -> str:
    """The mkdocstrings entry of an object."""
    short = name.rsplit(".", 1)[1]
    return f"::: {source}\n    options: {{heading: {name}, toc_label: {short}, show_root_full_path: false}}\n"


def expanded(match: re.Match[str]) -> str:
    """The entries of a package, or the entry of a public name."""
    path = match[1]
    # a function may have the same name as a module: `diffsim.sensor`
    package, _, name = path.rpartition(".")
    source = public(package).get(name)
    if source:
        return entry(path, source)
    names = public(path)
    entries = [entry(f"{path}.{name}", names[name]) for name in sorted(names, key=str.lower)]
    return "\n".join(entries) or match[0]


def on_page_markdown(markdown: str, **_: object) -> str:
    """Expands the entries of a page; mkdocs calls it for each page."""
    return re.sub(r"^::: ([\w.]+)\n(?: {4}.*\n)*", expanded, markdown + "\n", flags=re.MULTILINE)


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages of the notebooks and the texts of llms.py; mkdocs calls it with all files of the site."""
    files.append(File.generated(config, "api.md", content=api()))
    files.append(File.generated(config, "llms.txt", content=index("api/")))
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        text, pictures = page(path)
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=text))
        for name, content in pictures.items():
            files.append(File.generated(config, f"notebooks/{name}", content=content))
    return files


def page(path: pathlib.Path) -> tuple[str, dict[str, bytes]]:
    """Converts a notebook to Markdown and its pictures, by name."""
    parts, pictures = [], {}
    for cell in json.loads(path.read_text())["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            data = output.get("data", {"text/plain": output.get("text", ())})
            if "image/png" in data:
                name = f"{path.stem}_{len(pictures) + 1}.png"
                pictures[name] = base64.b64decode("".join(data["image/png"]))
                parts.append(f"![Output of the cell above]({name})")
            else:
                parts.append(f"```text\n{''.join(data['text/plain']).rstrip()}\n```")
    return "\n\n".join(parts), pictures

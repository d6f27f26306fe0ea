"""Texts for assistants that write code, made from docstrings: `llms.txt`, an index, and `api.md`, the API on one page.

    python docs/llms.py FOLDER    # writes both

The site has them (hooks.py), and so has the wheel, beside `diffsim/__init__.py` (setup.py). Nothing is imported: names,
signatures and first lines of docstrings are read from the source. Format of llms.txt: llmstxt.org.
"""

import ast
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).parents[1]

# packages and modules of the page, in its order; of a module without `__all__` all functions and classes are public
SECTIONS = {
    "diffsim": "Model, state, step",
    "diffsim.support": "Support functions, with MuJoCo's names without `mj_`",
    "diffsim.optimize": "Planning, control, identification",
    "diffsim.optimize.costs": "Residuals of tasks",
    "diffsim.envs": "Environments and learning",
    "diffsim.envs.vector": "Gymnasium",
    "diffsim.parallel": "Many devices",
    "diffsim.torch": "PyTorch",
    "diffsim.viz": "Pictures and films",
    "diffsim.viewer": "Pages in a browser",
    "diffsim.mjcf": "Reading, editing and writing models",
}
# packages of which the page lists only names
LISTED = {"diffsim.math": "Rotations and spatial algebra, with finite derivatives"}
# classes whose fields are listed
FIELDS = ("State", "Inputs")

HEAD = """\
# The API of diffsim on one page

Made from the docstrings. diffsim simulates MuJoCo models (MJCF, URDF) in JAX: differentiable, in batches, with MuJoCo's
semantics. What to know before you write code:

- Everything is a pure function of pytrees. Records are immutable: `state = state.replace(qvel=...)`.
- No function has a batch axis. Use `jax.vmap(diffsim.step, in_axes=(None, 0, 0))(model, states, inputs)`.
- Compile with `jax.jit` or `diffsim.jit`; the first call takes seconds. Loop with `diffsim.rollout`, not in Python.
- `State` is what is integrated, `Inputs` is what you set (controls, forces, mocap), and `Data` is computed from both.
- Fields have the names of mjModel and mjData. `model.joint("hip").qpos(state)` reads a part by name,
  `model.set_qpos(state, {"hip": 0.3})` writes one. Views exist for body, joint, geom, site, actuator, sensor, ...
- float32 by default. For float64 call `jax.config.update("jax_enable_x64", True)` before loading the model.
- Gradients go through contacts: `jax.grad` of a function of a rollout, with respect to states, controls and any float
  field of the model.
- What is not supported raises `UnsupportedError` and says what to do instead.

```python
import jax
import jax.numpy as jnp
import diffsim

model = diffsim.load("cartpole")  # or the path of an MJCF or URDF file, or XML
state, inputs = diffsim.make_state(model), diffsim.make_inputs(model)
state = jax.jit(diffsim.step)(model, state, inputs.replace(ctrl=jnp.array([0.5])))
data = jax.jit(diffsim.forward)(model, state, inputs)
print(model.joint("hinge").qpos(state), model.geom("pole").xpos(data))


def final_angle(gain):
    policy = diffsim.Policy(lambda state, data, key: gain * state.qpos[1:], steps=20)
    return diffsim.rollout(model, state, policy).final.qpos[1]


print(jax.jit(jax.grad(final_angle))(0.1))
print(jax.jit(jax.vmap(final_angle))(jnp.linspace(0, 1, 4)))
```
"""


def public(package: str) -> dict[str, str]:
    """Maps the public names of a package's `__init__.py` to the modules that define them; {} without `__init__.py`."""
    file = ROOT / package.replace(".", "/") / "__init__.py"
    if not file.exists():
        return {}
    lines = [node for node in ast.parse(file.read_text()).body if isinstance(node, ast.ImportFrom)]
    names = {(alias.asname, f"{node.module}.{alias.name}") for node in lines for alias in node.names if alias.asname}
    sources = {name: source for name, source in names if name and not name.startswith("_")}
    # a public package has its own page
    return {name: source for name, source in sources.items() if not is_module(source)}


def is_module(path: str) -> bool:
    """Whether a dotted path is a module or package, not an object inside one."""
    place = ROOT / path.replace(".", "/")
    return place.with_suffix(".py").exists() or (place / "__init__.py").exists()


def parsed(module: str) -> list[ast.stmt]:
    """The statements of a module or of a package's `__init__.py`."""
    place = ROOT / module.replace(".", "/")
    file = place.with_suffix(".py") if place.with_suffix(".py").exists() else place / "__init__.py"
    return ast.parse(file.read_text()).body


def definitions(module: str) -> dict[str, ast.FunctionDef | ast.ClassDef]:
    """The functions and classes of a module, by name."""
    return {node.name: node for node in parsed(module) if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def names_of(section: str) -> dict[str, str]:
    """The public names of a section and where each is defined."""
    if (ROOT / section.replace(".", "/") / "__init__.py").exists():
        return public(section)
    return {name: f"{section}.{name}" for name in definitions(section) if not name.startswith("_")}


def definition(source: str) -> ast.FunctionDef | ast.ClassDef | None:
    """Where an object is defined, also if its module imports it from another one; None for constants."""
    module, _, name = source.rpartition(".")
    for node in parsed(module):
        if isinstance(node, ast.ImportFrom) and name in [alias.asname for alias in node.names]:
            return definition(f"{node.module}.{name}")
    return definitions(module).get(name)


def entry(name: str, source: str) -> str:
    """The line of a public name: its signature, and the first line of its docstring; empty for a constant."""
    node = definition(source)
    if isinstance(node, ast.FunctionDef):
        returned = f" -> {ast.unparse(node.returns)}" if node.returns else ""
        return f"- `{name}({arguments(node.args)}){returned}`: {summary(node)}"
    if not isinstance(node, ast.ClassDef):
        return ""
    fields = [ast.unparse(each.target) for each in node.body if isinstance(each, ast.AnnAssign)]
    listed = f" Fields: {', '.join(fields)}." if name in FIELDS else ""
    makes = next((each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"), None)
    call = f"({arguments(makes.args)})" if makes else ""
    return f"- `{name}{call}`: {summary(node)}{listed}"


def summary(node: ast.FunctionDef | ast.ClassDef) -> str:
    """The first line of a docstring."""
    return (ast.get_docstring(node) or "").split("\n")[0]


def arguments(args: ast.arguments) -> str:
    """The arguments of a function without their types and without `self`."""
    copy = ast.parse(f"def f({ast.unparse(args)}): ...").body[0]
    assert isinstance(copy, ast.FunctionDef)
    for node in ast.walk(copy.args):
        if isinstance(node, ast.arg):
            node.annotation = None
    return re.sub(r"^self(, )?", "", ast.unparse(copy.args))


def api() -> str:
    """The API on one page."""
    parts = [HEAD]
    for section, title in SECTIONS.items():
        names = names_of(section)
        lines = [entry(name, names[name]) for name in sorted(names, key=str.lower)]
        parts.append("\n".join([f"## {title}: `{section}`", "", *filter(None, lines), ""]))
    for section, title in LISTED.items():
        parts.append(f"## {title}: `{section}`\n\n{', '.join(sorted(names_of(section), key=str.lower))}.\n")
    return "\n".join(parts)


def index(api_page: str = "api.md") -> str:
    """The index: each page of the documentation with its first sentence, and where the API on one page is."""
    lines = [
        "# diffsim",
        "",
        "> A differentiable, batched rigid-body simulator on JAX with MuJoCo's semantics. It loads MJCF and URDF.",
        "",
        f"The API on one page, with what to know before writing code: [api.md]({api_page}). Installed, it lies beside",
        "`diffsim/__init__.py`.",
        "",
    ]
    heading = ""
    for line in (ROOT / "mkdocs.yml").read_text().split("\nnav:\n")[1].splitlines():
        title, _, path = line.strip(" -").rpartition(":")
        title, page = title.strip('" '), ROOT / "docs" / path.strip()
        if not path:
            heading = f"\n## {title}\n"
        # notebooks are not in docs/
        elif page.exists():
            place = path.strip().removesuffix("index.md").removesuffix(".md")
            lines += [heading] * bool(heading) + [f"- [{title}]({place}/): {first_sentence(page)}"]
            heading = ""
    return "\n".join(lines) + "\n"


def first_sentence(page: pathlib.Path) -> str:
    """The first sentence of a page's text."""
    paragraphs = [part for part in page.read_text().split("\n\n") if part and part[0] not in "#!|`:-"]
    text = " ".join(paragraphs[0].split()) if paragraphs else ""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.split(r"(?<=[.:])\s", text)[0].rstrip(":")


def write(folder: pathlib.Path) -> None:
    """Writes both files into a folder."""
    (folder / "llms.txt").write_text(index())
    (folder / "api.md").write_text(api())


if __name__ == "__main__":
    write(pathlib.Path(sys.argv[1]))

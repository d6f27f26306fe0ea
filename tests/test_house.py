"""The house rules that a machine can keep: imports run one way, code is ASCII, public functions are documented."""

import ast
import dataclasses
import pathlib

import mutations
import pytest

from diffsim.types import Model, Topology

ROOT = pathlib.Path(__file__).parents[1] / "diffsim"
FILES = sorted(ROOT.rglob("*.py"))

# from the ground up; a room imports from itself and from rooms on lower floors, never from its neighbours
FLOORS = [
    ["errors", "enums", "motor_layout", "checked", "uncollected", "version"],
    ["compiled", "joints"],
    ["kernels"],
    ["math"],
    ["types", "mjcf"],
    ["geometry"],
    ["physics"],
    ["actuator", "collision"],
    ["constraint"],
    ["solver"],
    ["sensor"],
    ["simulate"],
    ["optimize"],
    ["compiler"],
    ["load"],
    ["viz"],
    ["viewer"],
    ["envs", "parallel"],
    ["bench"],
    ["cli"],
    ["__main__", "__init__"],
]
FLOOR = {room: height for height, rooms in enumerate(FLOORS) for room in rooms}


def room_of(path: pathlib.Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


MODULES = {
    ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__"): path for path in FILES
}


def imports_of(tree: ast.AST) -> set[str]:
    """Dotted names of the diffsim modules that a file imports; `from package import module` counts as the module."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            inside = [f"{node.module}.{alias.name}" for alias in node.names]
            names |= {name if name in MODULES else node.module for name in inside}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name for name in names if name.split(".")[0] == "diffsim"}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_run_one_way(path: pathlib.Path) -> None:
    room = room_of(path)
    for name in imports_of(ast.parse(path.read_text())):
        other = name.split(".")[1] if "." in name else "__init__"
        assert other == room or FLOOR[other] < FLOOR[room], f"{path.name} ({room}) imports {name}, which is not below"


def test_floors_list_every_room() -> None:
    assert set(FLOOR) == {room_of(path) for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_code_is_ascii_and_says_what_it_is(path: pathlib.Path) -> None:
    text = path.read_text()
    assert text.isascii()
    assert ast.get_docstring(ast.parse(text)), f"{path} has no module docstring"


def is_overload(node: ast.FunctionDef | ast.ClassDef) -> bool:
    """Whether it only declares types of a function that follows."""
    return any(isinstance(each, ast.Name) and each.id == "overload" for each in node.decorator_list)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_public_functions_are_documented(path: pathlib.Path) -> None:
    tree = ast.parse(path.read_text())
    for node in [n for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)]:
        if not node.name.startswith("_") and not is_overload(node):
            assert ast.get_docstring(node), f"{path.name}:{node.lineno} {node.name} has no docstring"


def test_no_module_imports_the_oracle() -> None:
    # bench compares with it, when it is installed
    for path in FILES:
        if room_of(path) != "bench":
            assert "import mujoco" not in path.read_text(), path


def test_no_import_cycles() -> None:
    graph = {name: imports_of(ast.parse(path.read_text())) for name, path in MODULES.items() if name != "diffsim"}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, f"import cycle: {' -> '.join([*trail, name])}"
        if name in graph and name not in done:
            for other in graph[name]:
                visit(other, (*trail, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def test_a_worker_gets_groups(request: pytest.FixtureRequest) -> None:
    """Without them (tests/conftest.py) programs are compiled anew for tests that could share them."""
    if getattr(request.config.option, "loadgroup", False):
        assert request.node.nodeid.endswith(f"@{request.path}")


@pytest.mark.parametrize("name", mutations.MUTATIONS)
def test_a_planted_bug_still_has_its_place(name: str) -> None:
    mutation = mutations.MUTATIONS[name]
    assert (ROOT / mutation.file).read_text().count(mutation.old) == 1


# files over 300 lines and functions over 45, with the reason
LONG_FILES = {
    "enums.py": "MuJoCo's enums, one after another",
    "types/model.py": "mjModel's float fields, one a line",
    "types/topology.py": "mjModel's integer fields, one a line",
    "mjcf/elements/sensor.py": "one class per kind of sensor",
    "mjcf/spec.py": "the public Spec, mostly one-line views",
    "mjcf/urdf.py": "one reader of one foreign format",
}
LONG_FUNCTIONS = {"forward": "the manual's pipeline on one page"}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_sizes_are_those_of_a_page(path: pathlib.Path) -> None:
    text = path.read_text()
    assert (text.count("\n") > 300) == (str(path.relative_to(ROOT)) in LONG_FILES)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            assert lines <= 45 or node.name in LONG_FUNCTIONS, f"{node.name} has {lines} lines"
            arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            count = sum(argument.arg not in ("self", "cls") for argument in arguments)
            assert count <= 6, f"{node.name} takes {count} parameters"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_private_names_stay_where_they_are(path: pathlib.Path) -> None:
    tree = ast.parse(path.read_text())
    modules = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("diffsim"):
            names = [alias.name for alias in node.names]
            assert not [name for name in names if name.startswith("_") and not name.startswith("__")]
            modules |= {alias.asname or alias.name for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            assert not node.attr.startswith("_") or node.attr.startswith("__") or node.attr in NAMEDTUPLE


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_fields_of_the_model_exist(path: pathlib.Path) -> None:
    """A type checker cannot know: Model shows the fields of its topology by `__getattr__`."""
    known = {field.name for cls in (Model, Topology) for field in dataclasses.fields(cls)} | set(dir(Model))
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "model":
            # a Spec in the methods that attach one to another
            assert node.attr in known or path.name == "spec.py", f"{path.name}:{node.lineno} model.{node.attr}"


# what every NamedTuple has
NAMEDTUPLE = {"_fields", "_make"}


def test_barriers_stay_in_math() -> None:
    """Other rooms say `computed_once` of a function (math/xla.py), so that physics reads as mathematics."""
    for path in FILES:
        if room_of(path) != "math":
            text = path.read_text()
            assert "import barrier" not in text and "lax.optimization_barrier" not in text, path

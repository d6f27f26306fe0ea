"""The house rules that a machine can keep: imports run one way, code is ASCII, public functions are documented."""

import ast
import collections
import dataclasses
import functools
import pathlib
from collections.abc import Callable

import mutations
import pytest

from diffsim.types import Model, Topology

ROOT = pathlib.Path(__file__).parents[1] / "diffsim"
FILES = sorted(ROOT.rglob("*.py"))


def floors() -> list[list[str]]:
    """The rooms from the ground up, as the table of CONTRIBUTING says them: a row is a floor."""
    table = (ROOT.parent / "CONTRIBUTING.md").read_text().split("| room |")[1].split("\n\n")[0]
    rows = [line.split("|")[1] for line in table.splitlines()[2:]]
    return [[name.strip(" `/").removesuffix(".py") for name in row.split(",")] for row in rows]


# a room imports from itself and from rooms on lower floors, never from its neighbours
FLOOR = {room: height for height, rooms in enumerate(floors()) for room in rooms}


def room_of(path: pathlib.Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


MODULES = {
    ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__"): path for path in FILES
}


def in_every_file(rule: Callable[[pathlib.Path], None]) -> Callable[[], None]:
    """A test of a rule of files: one test, for a thousand would take as long to be counted as to be run."""

    def test() -> None:
        for path in FILES:
            try:
                rule(path)
            except AssertionError as error:
                error.add_note(f"in {path.relative_to(ROOT)}")
                raise

    test.__doc__ = rule.__doc__
    return test


@functools.cache
def parsed(path: pathlib.Path) -> ast.Module:
    return ast.parse(path.read_text())


@functools.cache
def imports_of(path: pathlib.Path) -> set[str]:
    """Dotted names of the diffsim modules that a file imports; `from package import module` counts as the module."""
    names: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ImportFrom) and node.module:
            inside = [f"{node.module}.{alias.name}" for alias in node.names]
            names |= {name if name in MODULES else node.module for name in inside}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name for name in names if name.split(".")[0] == "diffsim"}


@in_every_file
def test_imports_run_one_way(path: pathlib.Path) -> None:
    room = room_of(path)
    for name in imports_of(path):
        other = name.split(".")[1] if "." in name else "__init__"
        assert other == room or FLOOR[other] < FLOOR[room], f"{path.name} ({room}) imports {name}, which is not below"


def test_floors_list_every_room() -> None:
    assert set(FLOOR) == {room_of(path) for path in FILES}


@in_every_file
def test_code_is_ascii_and_says_what_it_is(path: pathlib.Path) -> None:
    text = path.read_text()
    assert text.isascii()
    assert ast.get_docstring(parsed(path)), f"{path} has no module docstring"


def is_overload(node: ast.FunctionDef | ast.ClassDef) -> bool:
    """Whether it only declares types of a function that follows."""
    return any(isinstance(each, ast.Name) and each.id == "overload" for each in node.decorator_list)


@in_every_file
def test_public_functions_are_documented(path: pathlib.Path) -> None:
    tree = parsed(path)
    for node in [n for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)]:
        if not node.name.startswith("_") and not is_overload(node):
            assert ast.get_docstring(node), f"{path.name}:{node.lineno} {node.name} has no docstring"


def test_no_module_imports_the_oracle() -> None:
    # bench compares with it, when it is installed
    for path in FILES:
        if room_of(path) != "bench":
            assert "import mujoco" not in path.read_text(), path


def test_no_import_cycles() -> None:
    graph = {name: imports_of(path) for name, path in MODULES.items() if name != "diffsim"}
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


# a file is one thought: at most so many lines, and nine of ten files at most so many
LONGEST_FILE = 600
NINE_OF_TEN = 350
# a function is one thought: at most so many statements, inner functions included
LONGEST_FUNCTION = 45
# functions that are still longer, to be unfolded; this set only shrinks
LONG_FUNCTIONS = {"grow", "least_squares", "_rows"}


def lines(path: pathlib.Path) -> int:
    return path.read_text().count("\n")


def statements(function: ast.FunctionDef) -> int:
    return sum(isinstance(node, ast.stmt) for node in ast.walk(function)) - 1


@in_every_file
def test_a_file_and_a_function_are_one_thought(path: pathlib.Path) -> None:
    assert lines(path) <= LONGEST_FILE
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef) and node.name not in LONG_FUNCTIONS:
            assert statements(node) <= LONGEST_FUNCTION, f"{node.name} has {statements(node)} statements"


def test_most_files_are_short() -> None:
    assert sorted(map(lines, FILES))[9 * len(FILES) // 10] <= NINE_OF_TEN


def is_constant(node: ast.expr) -> bool:
    """Whether an expression is a number, text or arithmetic of numbers, without a variable or a call."""
    parts = (ast.Constant, ast.UnaryOp, ast.BinOp, ast.operator, ast.unaryop)
    return all(isinstance(part, parts) for part in ast.walk(node))


def packed_constants(path: pathlib.Path) -> list[int]:
    """Lines that assign several constants at once: one comment would have to describe them all."""
    return [
        node.lineno
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Tuple)
        and isinstance(node.value, ast.Tuple)
        and all(map(is_constant, node.value.elts))
    ]


# lines that still assign several constants, room by room; these numbers only fall
PACKED = {
    "collision": 5,
    "geometry": 2,
}


def test_one_constant_a_line() -> None:
    counts = collections.Counter[str]()
    for path in FILES:
        counts[room_of(path)] += len(packed_constants(path))
    grown = {room: count for room, count in counts.items() if count > PACKED.get(room, 0)}
    assert not grown, "each constant has a line of its own, with its unit and why it has this value"


@in_every_file
def test_no_import_is_hidden_in_a_string(path: pathlib.Path) -> None:
    """A name in a string would hide a circle of imports."""
    if path.name == "__init__.py":
        return
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            # packages of others, which are optional, are named by a plain string
            name = node.args[0]
            outside = isinstance(name, ast.Constant) and not str(name.value).startswith("diffsim")
            assert outside, f"line {node.lineno} hides an import of the package"


BARRIERS = ast.parse((ROOT / "xla/barriers.py").read_text())
# what is told to XLA outside of its own room, room by room: uses of the functions of xla/barriers.py, which may only
# become fewer; and of the function that works out where they are needed
TOLD = {node.name for node in BARRIERS.body if isinstance(node, ast.FunctionDef) and node.name[0] != "_"}
TOLD |= {"optimization_barrier", "default_backend", "stored_where_shared"}
LEDGER = {
    "math": 7,
    "geometry": 35,
    # ends of stages
    "kinematics": 5,
    "dynamics": 2,
    "collision": 10,
    # one of them: rows for the contacts that act alone, on a CPU
    "constraint": 7,
    "solver": 5,
    "simulate": 4,
    "optimize": 3,
    # how many threads draw; what rays meet, which shading reads many times (half of a film's time); a line of a report
    "viz": 2,
    "bench": 1,
    # on which device tensors have to be, and how they are handed over there
    "torch": 4,
}


def told_to_xla(path: pathlib.Path) -> int:
    nodes = list(ast.walk(parsed(path)))
    names = [node.id for node in nodes if isinstance(node, ast.Name)]
    return sum(name in TOLD for name in names + [node.attr for node in nodes if isinstance(node, ast.Attribute)])


def test_less_and_less_is_told_to_xla() -> None:
    counts = collections.Counter[str]()
    for path in FILES:
        counts[room_of(path)] += told_to_xla(path)
    del counts["xla"]
    grown = {room: count for room, count in counts.items() if count > LEDGER.get(room, 0)}
    assert not grown, "a number that fell is written down in LEDGER; one that grew is looked at again"


@in_every_file
def test_private_names_stay_where_they_are(path: pathlib.Path) -> None:
    tree = parsed(path)
    modules = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("diffsim"):
            names = [alias.name for alias in node.names]
            assert not [name for name in names if name.startswith("_") and not name.startswith("__")]
            modules |= {alias.asname or alias.name for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            assert not node.attr.startswith("_") or node.attr.startswith("__") or node.attr in NAMEDTUPLE


@in_every_file
def test_fields_of_the_model_exist(path: pathlib.Path) -> None:
    """A type checker cannot know: Model shows the fields of its topology by `__getattr__`."""
    known = {field.name for cls in (Model, Topology) for field in dataclasses.fields(cls)} | set(dir(Model))
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "model":
            # a Spec in the methods that attach one to another
            assert node.attr in known or path.name == "spec.py", f"{path.name}:{node.lineno} model.{node.attr}"


# what every NamedTuple has
NAMEDTUPLE = {"_fields", "_make"}

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


# files over 450 lines and functions over 70, with the reason
LONG_FILES = {
    "base/enums.py": "MuJoCo's enums, one after another",
    "types/topology.py": "mjModel's integer fields, one after another",
}
LONG_FUNCTIONS = {"evaluate": "the manual's pipeline on one page"}


@in_every_file
def test_sizes_are_those_of_a_thought(path: pathlib.Path) -> None:
    text = path.read_text()
    assert (text.count("\n") > 450) == (str(path.relative_to(ROOT)) in LONG_FILES)
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            assert lines <= 70 or node.name in LONG_FUNCTIONS, f"{node.name} has {lines} lines"


# operators of xla/barriers.py: they compute something by themselves, whatever the hardware, or end a stage
OPERATORS = {"stage", "elementwise_stage", "short_scan", "one_by_one", "on_rows", "with_transpose", "recomputed"}
OPERATORS |= {"recorded", "entwined", "anywhere"}
BARRIERS = ast.parse((ROOT / "xla/barriers.py").read_text())
# what is told to XLA outside of its own room, room by room: uses of all other functions of xla/barriers.py, which may
# only become fewer
TOLD = {node.name for node in BARRIERS.body if isinstance(node, ast.FunctionDef) and node.name[0] != "_"} - OPERATORS
TOLD |= {"optimization_barrier", "default_backend"}
LEDGER = {
    "math": 7,
    "geometry": 89,
    "collision": 10,
    "constraint": 5,
    "solver": 5,
    "simulate": 4,
    "optimize": 3,
    # how many threads draw; what rays meet, which shading reads many times (half of a film's time); a line of a report
    "viz": 2,
    "bench": 1,
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


# how many modules of the package one may have to open to understand one of them; may only become fewer
# constraint/islands.py (also in what imports families) and simulate/sleep.py came as stages of their own; with flexes
# that are interpolated or touch each other came flex/{nodes, cell_forces, cable}.py and
# collision/{flex_pairs, flex_slots}.py
# sensor/tactile.py came as a sensor of its own; geometry/hull/clip.py out of hull/pairs.py, which had 450 lines;
# geometry/hull/graph.py, hulls of many vertices, is a way to search of its own
DOORS = {
    "kinematics.poses": 29,
    "dynamics.inertia": 24,
    "dynamics.bias": 25,
    "actuator.actuation": 32,
    "collision.narrowphase": 52,
    "constraint.families": 47,
    "solver.solve": 43,
    "sensor.table": 81,
    "simulate.forward": 126,
    "optimize.identify.fit": 147,
}


def doors(module: str) -> int:
    """Modules that a module imports, directly or through others; of a package its own file."""
    seen, waiting = set[str](), [module]
    while waiting:
        for other in imports_of(MODULES[waiting.pop()]) & set(MODULES) - seen:
            seen.add(other)
            waiting.append(other)
    return len(seen - {module})


@pytest.mark.parametrize("module", DOORS)
def test_doors_become_fewer(module: str) -> None:
    assert doors(f"diffsim.{module}") <= DOORS[module], "fewer are written down in DOORS; more are looked at again"


# private functions that are used once; a name that saves a comment is a reason for one, three lines are not
# private functions, and those that could be: named once in their file and nowhere else in the package
USED_ONCE, PUBLIC_USED_ONCE = 450, 159


def test_fewer_functions_are_used_once() -> None:
    trees = [parsed(path) for path in FILES]
    names = [
        collections.Counter(
            node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else node.name
            for node in ast.walk(tree)
            if isinstance(node, ast.Name | ast.Attribute | ast.alias)
        )
        for tree in trees
    ]
    everywhere = sum(names, collections.Counter[str]())
    private, public = 0, 0
    for tree, here in zip(trees, names, strict=True):
        functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
        private += sum(here[name] == 1 for name in functions if name[0] == "_")
        public += sum(here[name] == everywhere[name] == 1 for name in functions if name[0] != "_")
    assert private <= USED_ONCE
    assert public <= PUBLIC_USED_ONCE


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

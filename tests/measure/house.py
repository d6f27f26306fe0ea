"""The shape of the code: sizes, doors, functions that are used once, comments, and what is told to XLA.

    python -m tests.measure.house

Nothing here is asserted; tests/test_house.py asserts what must hold.
"""

import ast
import collections
import io
import tokenize

import test_house as house

# modules whose dependencies are counted: a page of each stage, and the two largest tools
MODULES = (
    "kinematics.poses",
    "dynamics.inertia",
    "dynamics.bias",
    "actuator.actuation",
    "collision.narrowphase",
    "constraint.families",
    "solver.solve",
    "sensor.table",
    "simulate.forward",
    "optimize.trajectory.plan",
    "optimize.identify.fit",
)


def doors(module: str) -> set[str]:
    """Modules that a module imports, directly or through others: what one may have to open to understand it."""
    seen, waiting = set[str](), [module]
    while waiting:
        for other in house.imports_of(house.MODULES[waiting.pop()]) & set(house.MODULES) - seen:
            seen.add(other)
            waiting.append(other)
    return seen - {module}


def used_once() -> tuple[int, int]:
    """How many private and public functions are named once in the package, besides their definition."""
    trees = [house.parsed(path) for path in house.FILES]
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
    return private, public


def comment_lines(text: str) -> int:
    """Lines that hold nothing but a comment."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return sum(token.type == tokenize.COMMENT and token.line.lstrip().startswith("#") for token in tokens)


def main() -> None:
    sizes = sorted((house.lines(path), str(path.relative_to(house.ROOT))) for path in house.FILES)
    print(f"{len(sizes)} files, {sum(size for size, _ in sizes):,} lines; nine of ten have at most", end=" ")
    print(f"{sizes[9 * len(sizes) // 10][0]}, the longest {sizes[-1][0]} ({sizes[-1][1]})")

    longest = sorted(
        (house.statements(node), f"{path.relative_to(house.ROOT)}:{node.name}")
        for path in house.FILES
        for node in ast.walk(house.parsed(path))
        if isinstance(node, ast.FunctionDef)
    )
    print("longest functions, statements:", ", ".join(f"{name} {size}" for size, name in reversed(longest[-5:])))
    print("functions named once: {} private, {} public".format(*used_once()))

    print("\ndependencies of a module: files, lines")
    for name in MODULES:
        behind = [house.MODULES[other] for other in doors(f"diffsim.{name}")]
        print(f"  {name:28} {len(behind):4} {sum(map(house.lines, behind)):7,}")

    print("\nroom: lines, comment lines in percent, lines with several constants, calls that tell XLA something")
    rooms = collections.defaultdict[str, list](list)
    for path in house.FILES:
        rooms[house.room_of(path)].append(path)
    for room, paths in sorted(rooms.items()):
        size = sum(map(house.lines, paths))
        comments = 100 * sum(comment_lines(path.read_text()) for path in paths) / max(size, 1)
        packed = sum(len(house.packed_constants(path)) for path in paths)
        print(f"  {room:12} {size:7,} {comments:5.1f} {packed:4} {sum(map(house.told_to_xla, paths)):4}")
    everything = sum(comment_lines(path.read_text()) for path in house.FILES) / sum(size for size, _ in sizes)
    print(f"comment lines of all: {100 * everything:.1f}%")


if __name__ == "__main__":
    main()

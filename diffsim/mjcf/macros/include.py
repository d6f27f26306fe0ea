"""include: every `<include file="..."/>` is replaced by the children of the root of that file.

A file may be included once, and the file that includes may not include itself. Settings in an included file hold for
the whole model, as if they stood in its place.
Source: MuJoCo XML reference, "include"; IncludeXML of xml.cc (3.8.1).
"""

from diffsim.base.errors import MjcfError, Problem, Problems
from diffsim.mjcf.resources import ResourceError, Resources
from diffsim.mjcf.source import Node, parse

DEEPEST = 64


def expand_includes(root: Node, resources: Resources, problems: Problems) -> None:
    """Replace every include below `root`, in place; what cannot be included is noted in `problems`."""
    seen = {root.file: 0}
    waiting = [root]
    while waiting:
        node = waiting.pop()
        children: list[Node] = []
        for child in node.children:
            included = child.tag.lower() == "include"
            children.extend(_included(child, resources, problems, seen) if included else [child])
        node.children = children
        if any(child.tag.lower() == "include" for child in children):
            waiting.append(node)
        else:
            waiting.extend(reversed(children))


def _included(node: Node, resources: Resources, problems: Problems, seen: dict[str, int]) -> list[Node]:
    """What stands in place of an include; nothing where there is a problem. `seen`: how deep each file was found."""
    name = node.attributes.get("file")
    unknown = [attribute for attribute in node.attributes if attribute != "file"]
    if not name:
        problems.add(node, "attribute 'file' is required")
        return []
    if unknown:
        problems.add(node, f"unknown attribute '{unknown[0]}'", "include has only 'file'")
    if node.children:
        problems.add(node, "include cannot have children")
        return []
    try:
        found, data = resources.xml(name, near=node.file)
    except ResourceError as problem:
        problems.add(node, str(problem), problem.hint)
        return []
    if found in seen:
        problems.add(node, f"file '{name}' is already included", "a file can be included once")
        return []
    seen[found] = seen.get(node.file, 0) + 1
    if seen[found] > DEEPEST:
        problems.add(node, f"includes are nested more than {DEEPEST} deep")
        return []
    return _contents(node, found, data, problems)


def _contents(node: Node, file: str, data: bytes, problems: Problems) -> list[Node]:
    try:
        root = parse(data, file)
    except MjcfError as error:
        for problem in error.problems:
            problems.add(_At(problem), problem.message, problem.hint)
        return []
    if not root.children:
        problems.add(node, f"file '{file}' contains no elements")
    return root.children


class _At:
    """The place of a problem that was found elsewhere."""

    def __init__(self, problem: Problem) -> None:
        self.file, self.line, self.label = problem.file, problem.line, problem.element

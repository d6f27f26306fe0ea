"""Parses XML text to a plain tree of tags, attributes, files and lines, in which includes are expanded.

The text may be malicious. Document types are refused before the parser sees the text, so that there are no entities to
expand and nothing to download. resources.py limits the size of files, and reader.py the depth of nesting. Therefore
lxml's option `huge_tree`, which kinematic chains of more than 256 links need, is safe.

Comments are removed first, because many MJCF files have comments that XML forbids (`<!-- -- -->`). If the parser
refuses a document, a second attempt corrects two things that MuJoCo's parser accepts: values without a space after them
(`name="a"type="box"`), and the characters & and < in values.

Each `<include file="..."/>` is replaced by the children of the root of that file. A file can be included once, and not
by itself. Settings in an included file apply to the whole model, as if they were written in place of the include.
Source: MuJoCo XML reference, "include"; IncludeXML of xml.cc (3.8.1).
"""

import codecs
import re
from dataclasses import dataclass, field

from lxml import etree  # pyright: ignore[reportAttributeAccessIssue]

from diffsim.base.errors import MjcfError, Problem, Problems
from diffsim.mjcf.resources import ResourceError, Resources

# the beginning of an attribute's value
_ASSIGNED = re.compile(r"=\s*[\"']")
# largest number of attributes of one element, because the parser's time grows with its square
MOST_ATTRIBUTES = 1000
# largest depth of nested includes
DEEPEST = 64
# an attribute's value with its quotes
_VALUE = re.compile(r"=\s*(\"[^\"]*\"|'[^']*')")
# an ampersand that does not begin an entity of XML
_AMPERSAND = re.compile(r"&(?!(?:amp|lt|gt|quot|apos|#\d+|#x[0-9a-fA-F]+);)")
# the declaration <?xml ...?>
_DECLARATION = re.compile(r"\s*<\?xml\b[^>]*\?>", re.DOTALL)
# the encoding in the declaration
_ENCODING = re.compile(rb"^\s*<\?xml\b[^>]*?\bencoding\s*=\s*[\"']([A-Za-z0-9._-]{1,40})[\"']")
# supported encodings, all of which are decoded in a time proportional to the size of the file
ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "ascii", "iso8859-1", "iso8859-15", "cp1252")
# byte order marks, with the encodings that they stand for
_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


@dataclass(eq=False)
class Node:
    """One XML element.

    Attributes:
      tag: the tag, as in MJCF.
      attributes: the texts of the attributes, by name.
      file, line: file and line of the start tag.
      children: the elements inside it.
      said: the tag in the user's file if it is not MJCF's (in a URDF); else "".
      label: the element in messages.
    """

    tag: str
    attributes: dict[str, str]
    file: str
    line: int
    children: "list[Node]" = field(default_factory=list)
    said: str = ""

    @property
    def label(self) -> str:
        name = self.attributes.get("name")
        tag = self.said or self.tag
        return f'<{tag} name="{name}">' if name else f"<{tag}>"


def parse(text: bytes | str, file: str) -> Node:
    """The tree of an XML document, whose name in messages is `file`.

    Raises:
      MjcfError: the text is not valid XML.
    """
    plain = _without_comments(_decoded(text, file), file)
    declaration = _DECLARATION.match(plain)
    if declaration:
        plain = "\n" * declaration.group().count("\n") + plain[declaration.end() :]
    if not plain.strip():
        raise _refused(file, 0, "the file is empty")
    doctype = plain.find("<!DOCTYPE")
    if doctype >= 0:
        message = "document types and entities are not allowed in a model"
        raise _refused(file, 1 + plain.count("\n", 0, doctype), message, "remove <!DOCTYPE ...>")
    try:
        return _node(_tree(plain, file), file)
    except MjcfError:
        # add a space after each value, and escape & and < in values; line numbers do not change
        escaped = _VALUE.sub(lambda m: _AMPERSAND.sub("&amp;", m.group()).replace("<", "&lt;") + " ", plain)
        return _node(_tree(escaped, file), file)


def _tree(text: str, file: str) -> "etree._Element":
    """lxml's tree of XML text without a document type."""
    line = 1
    for piece in text.split("<"):
        if len(piece) > 4 * MOST_ATTRIBUTES and len(_ASSIGNED.findall(piece)) > MOST_ATTRIBUTES:
            raise _refused(file, line, f"an element has more than {MOST_ATTRIBUTES} attributes")
        line += piece.count("\n")
    parser = etree.XMLParser(
        encoding="utf-8",
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        dtd_validation=False,
        huge_tree=True,
        remove_comments=True,
        remove_pis=True,
    )
    try:
        return etree.fromstring(text.encode("utf-8", "surrogatepass"), parser)
    except (etree.XMLSyntaxError, UnicodeError, ValueError) as problem:
        line = getattr(problem, "lineno", 0) or 0
        reason = re.sub(r", line \d+, column \d+( \(.*\))?$", "", str(problem)) or "not well formed"
        raise _refused(file, line, f"not valid XML: {reason}") from None


def _node(element: "etree._Element", file: str) -> Node:
    """lxml's tree as a tree of nodes; a loop, because files may be nested deeper than Python can recurse."""
    root = Node(str(element.tag), _texts(element), file, element.sourceline or 0)
    waiting = [(element, root)]
    while waiting:
        source, node = waiting.pop()
        for child in source:
            if isinstance(child.tag, str):
                node.children.append(Node(child.tag, _texts(child), file, child.sourceline or 0))
                waiting.append((child, node.children[-1]))
    return root


def _texts(element: "etree._Element") -> dict[str, str]:
    """The attributes of an element."""
    return {str(name): str(value) for name, value in element.attrib.items()}


def _decoded(text: bytes | str, file: str) -> str:
    """The text of a file, by its byte order mark, its declared encoding, or UTF-8. Raises MjcfError."""
    if isinstance(text, str):
        return text.removeprefix("\ufeff")
    declared = _ENCODING.match(text[:400])
    encoding = declared.group(1).decode("ascii") if declared else "utf-8"
    for mark, name in _MARKS.items():
        if text.startswith(mark):
            encoding = name
    try:
        known = codecs.lookup(encoding).name
        if known not in ENCODINGS:
            raise _refused(file, 0, f"encoding {encoding} is not supported", "save the file as UTF-8")
        return text.decode(known)
    except (LookupError, UnicodeError):
        raise _refused(file, 0, f"not text in encoding {encoding}") from None


def _without_comments(text: str, file: str) -> str:
    """The text with each comment replaced by its line breaks."""
    parts = list[str]()
    start = 0
    while (begin := text.find("<!--", start)) >= 0:
        end = text.find("-->", begin + 4)
        if end < 0:
            raise _refused(file, 1 + text.count("\n", 0, begin), "a comment has no end", "close it with -->")
        parts += [text[start:begin], "\n" * text.count("\n", begin, end)]
        start = end + 3
    return "".join(parts) + text[start:]


def _refused(file: str, line: int, message: str, hint: str = "") -> MjcfError:
    """An error in a file, outside any element."""
    return MjcfError([Problem(file, line, "", message, hint)])


def expand_includes(root: Node, resources: Resources, problems: Problems) -> None:
    """Replaces each include below `root` by the elements of the included file, in place; adds errors to `problems`."""
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
    """The elements that replace an include; empty if there is an error. `seen` has the depth of each included file."""
    name = node.attributes.get("file")
    unknown = [attribute for attribute in node.attributes if attribute != "file"]
    if not name:
        problems.add(node, "attribute 'file' is required")
        return []
    if unknown:
        problems.add(node, f"unknown attribute '{unknown[0]}'", "an include has only attribute 'file'")
    if node.children:
        problems.add(node, "an include cannot have children")
        return []
    try:
        file, data = resources.xml(name, near=node.file)
    except ResourceError as problem:
        problems.add(node, str(problem), problem.hint)
        return []
    if file in seen:
        problems.add(node, f"file '{name}' is already included", "a file can be included once")
        return []
    seen[file] = seen.get(node.file, 0) + 1
    if seen[file] > DEEPEST:
        problems.add(node, f"includes are nested more than {DEEPEST} deep")
        return []
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
    """The place of an error in an included file."""

    def __init__(self, problem: Problem) -> None:
        self.file, self.line, self.label = problem.file, problem.line, problem.element

"""XML text as a plain tree of tags, attributes and places. Hardened: the text may come from anybody.

Document types are refused before the parser sees the text, so there are no entities to expand and nothing to fetch;
resources.py bounds the size of files and reader.py the depth of nesting (so that `huge_tree`, which kinematic chains of
more than 256 links need, lets nothing else in). Comments are blanked out first, because MJCF in the wild has comments
that strict XML forbids (`<!-- -- -->`). What else MuJoCo's parser forgives is put right in a document that is refused
as it stands: values that touch the next attribute (`name="a"type="box"`), and & and < in values.
"""

import codecs
import re
from dataclasses import dataclass, field

from lxml import etree  # pyright: ignore[reportAttributeAccessIssue]

from diffsim.base.errors import MjcfError, Problem

# characters that begin the value of an attribute
_ASSIGNED = re.compile(r"=\s*[\"']")
MOST_ATTRIBUTES = 1000
# the value of an attribute, and an ampersand that begins no entity of XML
_VALUE = re.compile(r"=\s*(\"[^\"]*\"|'[^']*')")
_AMPERSAND = re.compile(r"&(?!(?:amp|lt|gt|quot|apos|#\d+|#x[0-9a-fA-F]+);)")
_DECLARATION = re.compile(r"\s*<\?xml\b[^>]*\?>", re.DOTALL)
_ENCODING = re.compile(rb"^\s*<\?xml\b[^>]*?\bencoding\s*=\s*[\"']([A-Za-z0-9._-]{1,40})[\"']")
# what a file may be written in: each is decoded in time that grows with its size
ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "ascii", "iso8859-1", "iso8859-15", "cp1252")
_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


@dataclass(eq=False)
class Node:
    """One XML element and where it stands; `label` is its start in short, `said` the tag in the file if another."""

    tag: str
    attributes: dict[str, str]
    file: str
    line: int
    children: "list[Node]" = field(default_factory=list)
    said: str = ""

    @property
    def label(self) -> str:
        name, tag = self.attributes.get("name"), self.said or self.tag
        return f'<{tag} name="{name}">' if name else f"<{tag}>"


def parse(text: bytes | str, file: str) -> Node:
    """The tree of an XML document; `file` is what messages call it. Raises MjcfError if it is not sound XML."""
    plain = _without_declaration(_without_comments(_decoded(text, file), file))
    if not plain.strip():
        raise _refused(file, 0, "the file is empty")
    doctype = plain.find("<!DOCTYPE")
    if doctype >= 0:
        message = "document types and entities are not allowed in a model"
        raise _refused(file, 1 + plain.count("\n", 0, doctype), message, "remove <!DOCTYPE ...>")
    try:
        return _node(_tree(plain, file), file)
    except MjcfError:
        return _node(_tree(_forgiven(plain), file), file)


def _tree(text: str, file: str) -> "etree._Element":
    """The parser's own tree of sound XML without a document type."""
    _check_attributes(text, file)
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
        raise _refused(file, line, f"not sound XML: {reason}") from None


def _forgiven(text: str) -> str:
    """The text with values as XML wants them, a blank behind each, on as many lines."""

    def sound(found: "re.Match[str]") -> str:
        return _AMPERSAND.sub("&amp;", found.group()).replace("<", "&lt;") + " "

    return _VALUE.sub(sound, text)


def _node(element: "etree._Element", file: str) -> Node:
    root = Node(str(element.tag), _texts(element), file, element.sourceline or 0)
    waiting = [(element, root)]
    while waiting:
        source, node = waiting.pop()
        for child in source:
            if isinstance(child.tag, str):
                made = Node(child.tag, _texts(child), file, child.sourceline or 0)
                node.children.append(made)
                waiting.append((child, made))
    return root


def _texts(element: "etree._Element") -> dict[str, str]:
    return {str(name): str(value) for name, value in element.attrib.items()}


def _decoded(text: bytes | str, file: str) -> str:
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
    """The text with nothing, on as many lines, in place of each comment."""
    parts, start = list[str](), 0
    while (begin := text.find("<!--", start)) >= 0:
        end = text.find("-->", begin + 4)
        if end < 0:
            raise _refused(file, 1 + text.count("\n", 0, begin), "a comment has no end", "close it by -->")
        parts += [text[start:begin], "\n" * text.count("\n", begin, end)]
        start = end + 3
    return "".join(parts) + text[start:]


def _check_attributes(text: str, file: str) -> None:
    """Refuse an element of very many attributes: the parser's time grows with their square."""
    line = 1
    for piece in text.split("<"):
        if len(piece) > 4 * MOST_ATTRIBUTES and len(_ASSIGNED.findall(piece)) > MOST_ATTRIBUTES:
            raise _refused(file, line, f"an element has more than {MOST_ATTRIBUTES} attributes")
        line += piece.count("\n")


def _without_declaration(text: str) -> str:
    found = _DECLARATION.match(text)
    return _blank(found) + text[found.end() :] if found else text


def _blank(found: "re.Match[str]") -> str:
    """Nothing, on as many lines."""
    return "\n" * found.group().count("\n")


def _refused(file: str, line: int, message: str, hint: str = "") -> MjcfError:
    return MjcfError([Problem(file, line, "", message, hint)])

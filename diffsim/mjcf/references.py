"""What an element refers to, and which names it makes: the links between the elements of a model."""

from diffsim.base.enums import ObjType
from diffsim.mjcf.kinds import NameKind, ReferenceKind
from diffsim.mjcf.schema import Element

_SPACE_OF = {ObjType.XBODY: "body"}


def references(element: Element) -> list[tuple[str, str, str]]:
    """What an element refers to: (field, kind of the other element, its name)."""
    found = []
    for attribute, kind in element.attributes().items():
        if isinstance(kind, ReferenceKind):
            value = getattr(element, attribute)
            space = _space(element, kind)
            if value and space:
                found.append((attribute, space, value))
    return found


def own_names(element: Element) -> set[tuple[str, str]]:
    """The names by which others may refer to an element: (kind, name). A file is a name where there is no other."""
    found = set()
    for attribute, kind in element.attributes().items():
        if isinstance(kind, NameKind) and (name := getattr(element, attribute) or getattr(element, "known_as", None)):
            found.add((kind.space, name))
    if element.tag == "default":
        found.add(("default", getattr(element, "class_", None) or "main"))
    return found


def _space(element: Element, kind: ReferenceKind) -> str:
    if not kind.by:
        return kind.space
    of = getattr(element, kind.by)
    return "" if of is None else _SPACE_OF.get(of) or str(of.name).lower()

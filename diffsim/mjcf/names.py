"""Names and references: every name is unique among its kind, every reference points to something that is there.

References are checked on resolved elements, so that a material that comes from a default class is looked up too.
Bodies, frames and everything else have name spaces of their own; a free joint is a joint, `xbody` is a body.
"""

from diffsim.enums import ObjType
from diffsim.errors import Problems, near_match
from diffsim.mjcf.elements.asset import FileAsset
from diffsim.mjcf.kinds import NameKind, ReferenceKind
from diffsim.mjcf.schema import Element, xml_name
from diffsim.mjcf.spec import Spec

_SPACE_OF = {ObjType.XBODY: "body"}

Names = dict[str, dict[str, Element]]


def index_names(spec: Spec, problems: Problems) -> Names:
    """Elements by kind and name; names that are used twice are noted."""
    names: Names = {}
    for element in spec.walk():
        for attribute, kind in element.attributes().items():
            if isinstance(kind, NameKind):
                own = getattr(element, attribute)
                known = names.setdefault(kind.space, {})
                if own in known:
                    first = known[own]
                    problems.add(element, f"the name is already used by {first.label} at {first.file}:{first.line}")
                elif own:
                    known[own] = element
                elif isinstance(element, FileAsset) and element.known_as:
                    known.setdefault(element.known_as, element)
    return names


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


def check_references(spec: Spec, problems: Problems) -> None:
    """Note every reference that leads nowhere."""
    for element in spec.walk():
        filled = element.resolved(spec.defaults.inherited(element), problems)
        for attribute, space, value in references(filled):
            _look_up(spec, element, attribute, space, value, problems)


def _space(element: Element, kind: ReferenceKind) -> str:
    if not kind.by:
        return kind.space
    of = getattr(element, kind.by)
    return "" if of is None else _SPACE_OF.get(of) or str(of.name).lower()


def _look_up(spec: Spec, element: Element, attribute: str, space: str, name: str, problems: Problems) -> None:
    known = spec.defaults.classes if space == "default" else spec.names.get(space, {})
    if name in known:
        return
    what = "default class" if space == "default" else space
    inherited = (
        "" if getattr(element, attribute, None) else f" (from default class '{spec.defaults.class_of(element)}')"
    )
    message = f"attribute '{xml_name(attribute)}'{inherited}: there is no {what} '{name}'"
    problems.add(element, message, near_match(name, known))

"""Names and references: every name is unique among its kind, every reference points to something that is there.

References are checked on resolved elements, so that a material that comes from a default class is looked up too.
Bodies, frames and everything else have name spaces of their own; a free joint is a joint, `xbody` is a body.
"""

from diffsim.base.errors import Problems, near_match
from diffsim.mjcf.elements.asset import FileAsset
from diffsim.mjcf.kinds import NameKind
from diffsim.mjcf.references import references as references
from diffsim.mjcf.schema import Element, xml_name
from diffsim.mjcf.spec import Spec

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


def check_references(spec: Spec, problems: Problems) -> None:
    """Note every reference that leads nowhere."""
    for element in spec.walk():
        filled = element.resolved(spec.defaults.inherited(element), problems)
        for attribute, space, value in references(filled):
            _look_up(spec, element, attribute, space, value, problems)


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

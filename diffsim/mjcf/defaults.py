"""Default classes: a tree of named sets of values that elements inherit.

A nested class starts as a copy of the class around it, taken when it is opened; the elements of a class are laid over
that copy before any class nested in it is opened, wherever they stand. A class keeps one complete element of each kind:
one for all actuators, one for all equality constraints, one for all tendons. A later `<default>` section goes on with
`main`, and does not reach the classes that were made before. The classes of an attached model stand apart: its `main`,
under a name of its own, starts from MJCF's values again.
Source: MuJoCo XML reference, "default"; mjXReader::Default (3.8.1).
"""

from collections.abc import Iterable

from diffsim.base.errors import Problems
from diffsim.mjcf.elements.sections import DEFAULTS, Default
from diffsim.mjcf.schema import Element

MAIN = "main"

# what one class says: a complete element of each kind, by Element.default_key
Values = dict[str, Element]


class Defaults:
    """Every default class of a model, by name."""

    def __init__(self, sections: Iterable[Default], problems: Problems) -> None:
        kinds = {cls.default_key: DEFAULTS[cls.default_key] for cls in DEFAULTS.values()}
        first = {key: cls().filled() for key, cls in kinds.items()}
        self.classes: dict[str, Values] = {MAIN: dict(first)}
        for section in sections:
            if section.settings is not None and section.class_:
                self._fill(section, self.classes.setdefault(section.class_, dict(first)), problems)
                continue
            if section.class_ not in (None, "", MAIN):
                problems.add(
                    section, f"the outermost default class is '{MAIN}'", f"nest class '{section.class_}' in it"
                )
            self._fill(section, self.classes[MAIN], problems)

    def _fill(self, section: Default, values: Values, problems: Problems) -> None:
        """Lay the elements of `section` over `values`, then open the classes nested in it."""
        nested = section.each(Default)
        for element in section.children:
            if element.default_key:
                inherited = values[element.default_key]
                values[element.default_key] = element.resolved(inherited, problems).replace(name=None, class_=None)
        for child in nested:
            if not child.class_:
                problems.add(child, "a nested default class needs attribute 'class'")
            elif child.class_ in self.classes:
                problems.add(child, f"default class '{child.class_}' already exists")
            else:
                self.classes[child.class_] = dict(values)
                self._fill(child, self.classes[child.class_], problems)

    def inherited(self, element: Element) -> Element:
        """The complete element from which `element` takes what it does not say."""
        values = self.classes.get(self.class_of(element), self.classes[MAIN])
        return values.get(element.default_key) or Element()

    @staticmethod
    def class_of(element: Element) -> str:
        """The class of an element: its own, else the childclass of the nearest body or frame around it, else main."""
        name = getattr(element, "class_", None)
        around = element.parent
        while name is None and around is not None:
            name = getattr(around, "childclass", None)
            around = around.parent
        return name or MAIN

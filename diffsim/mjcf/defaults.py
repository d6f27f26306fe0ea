"""Defaults: the default classes of a model, and the attributes that elements inherit from them.

Default classes form a tree of named sets of values. A nested class starts as a copy of the class around it. All
elements of a class are applied before its nested classes are copied, wherever they appear. A class keeps one complete
element of each kind: one for all actuators, one for all equality constraints, one for all tendons. A later `<default>`
section continues with `main` and does not affect classes that exist already. The classes of an attached model are
separate: its `main`, which gets a name of its own, starts from MJCF's defaults again.
Source: MuJoCo XML reference, "default"; mjXReader::Default (3.8.1).
"""

from collections.abc import Iterable
from typing import Any

from diffsim.base import changes
from diffsim.base.errors import Problems
from diffsim.mjcf.attributes import Tristate
from diffsim.mjcf.elements.actuator import Actuator
from diffsim.mjcf.elements.sections import DEFAULTS, Default
from diffsim.mjcf.elements.tendon import Tendon
from diffsim.mjcf.schema import Element

# the default class from which all others start
MAIN = "main"
# the values of one class: a complete element of each kind, by Element.default_key
Values = dict[str, Element]


class Defaults:
    """The default classes of a model, by name."""

    def __init__(self, sections: Iterable[Default], problems: Problems, mujoco: str = changes.DEFAULT) -> None:
        kinds = {cls.default_key: DEFAULTS[cls.default_key] for cls in DEFAULTS.values()}
        first = {key: cls().filled() for key, cls in kinds.items()}
        if changes.follows(mujoco, "tendon_force_limits"):
            first[Tendon.default_key] = first[Tendon.default_key].replace(actuatorfrclimited=Tristate.AUTO)
        self.classes: dict[str, Values] = {MAIN: dict(first)}
        # the class around each nested one
        self._around: dict[str, str] = {}
        self._first = first
        self._own_parameters = changes.follows(mujoco, "shortcut_defaults")
        for section in sections:
            if section.settings is not None and section.class_:
                self.classes.setdefault(section.class_, dict(first))
                self._fill(section, section.class_, problems)
                continue
            if section.class_ not in (None, "", MAIN):
                problems.add(
                    section, f"the outermost default class must be '{MAIN}'", f"nest class '{section.class_}' inside it"
                )
            self._fill(section, MAIN, problems)

    def _fill(self, section: Default, name: str, problems: Problems) -> None:
        """Applies the elements of `section` to the class `name`, then makes the classes nested in it."""
        values = self.classes[name]
        nested = section.each(Default)
        for element in section.children:
            if element.default_key:
                values[element.default_key] = self._resolved(element, name, problems).replace(name=None, class_=None)
        for child in nested:
            if not child.class_:
                problems.add(child, "a nested default class needs attribute 'class'")
            elif child.class_ in self.classes:
                problems.add(child, f"default class '{child.class_}' already exists")
            else:
                self.classes[child.class_] = dict(values)
                self._around[child.class_] = name
                self._fill(child, child.class_, problems)

    def inherited(self, element: Element) -> Element:
        """The complete element from which `element` inherits attributes that it does not give."""
        values = self.classes.get(self.class_of(element), self.classes[MAIN])
        return values.get(element.default_key) or Element()

    def resolved(self, element: Element, problems: Problems) -> Element:
        """The complete element: its own attributes, then its class's attributes, then values that follow from both."""
        return self._resolved(element, self.class_of(element), problems)

    def _resolved(self, element: Element, name: str, problems: Problems) -> Element:
        """`element` completed by the class `name`."""
        name = name if name in self.classes else MAIN
        base = self.classes[name].get(element.default_key) or Element()
        if isinstance(element, Actuator) and element.gain_of_law is not None and self._own_parameters:
            plain = self._first[Actuator.default_key]
            assert isinstance(base, Actuator)
            assert isinstance(plain, Actuator)
            element, base = element.inherit(base, self._law(element.tag, name), plain)
        return element.resolved(base, problems)

    def _law(self, tag: str, name: str | None) -> Any:
        """The actuator of the nearest class, from `name` outwards, that was written as a shortcut or as `general`."""
        while name is not None:
            actuator = self.classes[name][Actuator.default_key]
            if actuator.tag in (tag, Actuator.default_key):
                return actuator
            name = self._around.get(name)
        return self._first[Actuator.default_key]

    @staticmethod
    def class_of(element: Element) -> str:
        """The class of an element: its own, or the childclass of the nearest body or frame around it, or main."""
        name = getattr(element, "class_", None)
        around = element.parent
        while name is None and around is not None:
            name = getattr(around, "childclass", None)
            around = around.parent
        return name or MAIN

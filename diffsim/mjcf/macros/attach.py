"""attach: `<attach>` becomes a frame with a copy of another model's body or frame, or of everything in its world.

All names in the copy get the prefix, in references and default classes too. If this model already has a class with the
new name, the copied class gets another name, so that the copy keeps the classes of its own model. The copy also keeps
the compiler settings of its own file (`Element.settings`).

All assets, plugins and custom numbers of the other model are copied. Pairs, tendons, actuators and so on are copied if
everything that they refer to is copied. A pair, exclusion or sensor may also refer to the world or to an object of this
model, if another of its references is copied. Keyframes are copied too (keys.py).
Source: MuJoCo XML reference, "attach"; mjCModel::operator+= (3.8.1).
"""

from diffsim.base.errors import Problems, near_match
from diffsim.mjcf.defaults import MAIN, Defaults
from diffsim.mjcf.elements.asset import FileAsset, ModelAsset
from diffsim.mjcf.elements.body import Frame
from diffsim.mjcf.elements.constraints import Exclude, Pair
from diffsim.mjcf.elements.deformable import Attach, Flex
from diffsim.mjcf.elements.sections import (
    REFERRING,
    Default,
    Section,
)
from diffsim.mjcf.elements.sensor import Sensor
from diffsim.mjcf.elements.settings import CustomText, Numeric, Tuple
from diffsim.mjcf.kinds import NameKind
from diffsim.mjcf.macros.keys import Keys
from diffsim.mjcf.schema import Element, own_names, references
from diffsim.mjcf.spec import Spec

# elements that are copied even if one of their references is to the world or to an object of this model
LOOSE = (Pair, Exclude, Sensor)


def attach(spec: Spec, place: Attach, keys: Keys, problems: Problems) -> None:
    """Replaces `place` by a frame with the copy, in place; the other model's keyframes are left in `keys`."""
    if not place.model:
        # the reader has already noted this error
        return
    child = spec.models.get(place.model)
    if child is None:
        problems.add(
            place, f"attribute 'model': there is no model '{place.model}'", near_match(place.model, spec.models)
        )
        return
    part: Element | None = child.worldbody
    for kind, name in (("body", place.body), ("frame", place.frame)):
        if name:
            known = child.names.get(kind, {})
            part = known.get(name)
            if part is None or part is child.worldbody:
                message = f"attribute '{kind}': model '{place.model}' has no {kind} '{name}'"
                problems.add(place, message, near_match(name, known))
                return
    copier = _Copier(spec, child, place, problems)
    frame = copier.run(part)
    keys.attached(child, copier.prefix, copier.copies)
    keys.attached_at(frame)


class _Copier:
    """Copies elements from one model into another.

    Attributes:
      spec: our model.
      child: the other model.
      place: the `<attach>`.
      problems: where errors are noted.
      prefix: added before names.
      inside: what is copied, as (kind, name).
      classes: the names that the other model's default classes get here.
      copies: the copy of each element, by id() of the original.
    """

    def __init__(self, spec: Spec, child: Spec, place: Attach, problems: Problems) -> None:
        self.spec = spec
        self.child = child
        self.place = place
        self.problems = problems
        self.prefix = place.prefix or ""
        self.inside = {("default", name) for name in child.defaults.classes}
        self.classes = self._class_names()
        self.copies: dict[int, Element] = {}

    def run(self, part: Element) -> Frame:
        """Copies a body or frame with everything that belongs to it; returns the frame that contains the copy.

        The order matters, because references are renamed only if their target is known to be copied: default classes
        refer to assets, elements of the tree to both, and pairs, tendons, actuators and sensors to all of them.
        """
        sections = [section for tag in ("asset", "extension") for section in self.child.root.tagged(tag)]
        parts = [part for section in sections for part in section.walk()]
        self.inside |= {key for part in parts if not isinstance(part, ModelAsset) for key in own_names(part)}
        self._defaults()
        self._assets()
        frame = self._tree(part)
        self._referring()
        self._shadow(frame)
        return frame

    def copy(self, element: Element, parent: Element) -> Element:
        """A renamed copy of an element and everything in it, which keeps the compiler settings of its own file."""
        changed = {
            name: self.classes[value] if space == "default" else self.prefix + value
            for name, space, value in references(element)
            if (space, value) in self.inside
        }
        for name, kind in element.attributes().items():
            if isinstance(kind, NameKind):
                known = element.known_as if isinstance(element, FileAsset) else getattr(element, name)
                changed |= {name: self.prefix + known} if known else {}
        if isinstance(element, Flex):
            changed |= {
                name: " ".join(self.prefix + body for body in text.split())
                for name, text in (("body", element.body), ("node", element.node))
                if text
            }
        settings = element.settings or self.child.compiler
        copied = element.replace(parent=parent, children=[], settings=settings, **changed)
        copied.children = [self.copy(part, copied) for part in element.children]
        self.copies[id(element)] = copied
        return copied

    def _classed(self, element: Element, section: Element) -> Element:
        """A copy of an element outside the tree; if it has no class, it gets the class `main` of its own model."""
        copied = self.copy(element, section)
        if "class_" in copied.attributes() and getattr(copied, "class_", None) is None:
            copied = copied.replace(class_=self.classes[MAIN])
            for part in copied.children:
                part.parent = copied
            self.copies[id(element)] = copied
        return copied

    def _class_names(self) -> dict[str, str]:
        """The new name of each default class of the other model; if the name is taken, a number is appended."""
        sections = self.spec.root.each(Default)
        classes = [part for section in sections for part in section.walk() if isinstance(part, Default)]
        taken = {MAIN, *(part.class_ or MAIN for part in classes)}
        names = {}
        for name in self.child.defaults.classes:
            fresh = self.prefix + name
            numbered = (f"{fresh}_{count}" for count in range(len(taken)))
            names[name] = fresh if fresh not in taken else next(other for other in numbered if other not in taken)
            taken.add(names[name])
        return names

    def _shadow(self, frame: Frame) -> None:
        """Gives elements after `frame` a copied class, if they inherit a class with the same name by a childclass.

        This reproduces a quirk of MuJoCo: it looks classes up in one table of names, where the last class with a name
        hides earlier ones. Elements that name their class themselves were resolved before, and keep our class.
        """
        names = {self.prefix + name: ours for name, ours in self.classes.items()}
        shadowed = {name: ours for name, ours in names.items() if name != ours}
        inside = {id(element) for element in frame.walk()}
        after = False
        for element in self.spec.worldbody.walk() if shadowed else ():
            after = after or element is frame
            if after and id(element) not in inside and getattr(element, "class_", "") is None:
                element.class_ = shadowed.get(Defaults.class_of(element))  # type: ignore[attr-defined]

    def _section(self, like: Element) -> Element:
        """Our last section with the tag of `like`; a new one if there is none."""
        root = self.spec.root
        sections = root.tagged(like.tag)
        if not sections:
            sections = [Section(tag=like.tag, file=like.file, line=like.line, parent=root)]
            root.children.insert(len(root.children) - 1, sections[0])
        return sections[-1]

    def _defaults(self) -> None:
        """Copies the default classes, inside a class that starts from MJCF's defaults and not from our `main`."""
        root = self.spec.root
        sections = self.child.root.each(Default)
        if not any(section.settings is None for section in sections):
            sections = [Default(tag="default", file=self.place.file, line=self.place.line), *sections]
        for section in sections:
            self.inside |= {key for element in section.walk() for key in own_names(element)}
            copied = self.copy(section, root)
            for part in copied.walk():
                if isinstance(part, Default):
                    part.class_ = self.classes[part.class_ or MAIN]
            root.children.insert(len(root.children) - 1, copied)

    def _assets(self) -> None:
        """Copies all assets, plugin declarations, custom numbers and texts."""
        sections = [(section, self._section(section)) for section in self.child.root.tagged("asset")]
        moves = [(element, to) for section, to in sections for element in section.children]
        moves = [(element, to) for element, to in moves if not isinstance(element, ModelAsset)]
        for element, section in moves:
            section.children.append(self._classed(element, section))
        for section in self.child.root.tagged("extension"):
            to = self._section(section)
            to.children += [self.copy(part, to) for part in section.children]
        for section in self.child.root.tagged("custom"):
            to = self._section(section)
            to.children += [self.copy(part, to) for part in section.children if isinstance(part, Numeric | CustomText)]

    def _tree(self, part: Element) -> Frame:
        """Copies the body, the frame, or everything in the world into a frame that replaces `<attach>`."""
        place = self.place
        whole = part is self.child.worldbody
        picked = part.children if whole else [part]
        self.inside |= {key for element in picked for part in element.walk() for key in own_names(part)}
        around = MAIN if whole else self.child.defaults.class_of(part.replace(childclass=None))
        frame = Frame(tag="frame", file=place.file, line=place.line, childclass=self.classes[around])
        frame.children = [self.copy(element, frame) for element in picked]
        place.give_way([frame])
        return frame

    def _referring(self) -> None:
        """Copies elements that refer to the copies, in MuJoCo's order of kinds."""
        for tag in ("deformable", *REFERRING):
            for section in self.child.root.tagged(tag):
                for element in section.children:
                    if isinstance(element, Numeric | CustomText) or not self._comes_along(element):
                        continue
                    self.inside |= {key for part in element.walk() for key in own_names(part)}
                    to = self._section(section)
                    to.children.append(self._classed(element, to))

    def _comes_along(self, element: Element) -> bool:
        """Whether an element is copied: all objects that it refers to are or, for LOOSE elements, enough of them."""
        targets = [(space, name) for part in element.walk() for _, space, name in references(part)]
        if isinstance(element, Flex):
            targets += [("body", name) for text in (element.body, element.node) for name in (text or "").split()]
        targets = [key for key in targets if key[0] != "default"]
        present = [key in self.inside for key in targets]
        if all(present) and (present or not isinstance(element, Tuple)):
            return True
        # targets that exist in the other model but are not copied
        in_child = [name != "world" and name in self.child.names.get(space, {}) for space, name in targets]
        if isinstance(element, LOOSE):
            return any(present) and not any(mine and not here for mine, here in zip(in_child, present, strict=True))
        for (space, name), mine in zip(targets, in_child, strict=True):
            if not mine and name != "world":
                hint = near_match(name, self.child.names.get(space, {}))
                self.problems.add(element, f"there is no {space} '{name}' in its model", hint)
        return False

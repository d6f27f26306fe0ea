"""attach: `<attach>` becomes a frame with a copy of another model's body, or of all that stands in its world.

Names in the copy get the prefix, references and default classes follow; the copy keeps the compiler settings of the
file that it comes from (`Element.settings`). All assets, plugins and custom numbers of the other model come along;
pairs, tendons, actuators and so on do where everything that they refer to does. A pair, exclusion or sensor may besides
refer to the world, or to something of this model, if another of its references has come along.

Keyframes come along too: the numbers of joints, actuators and mocap bodies that were copied, put at their new places;
everything else is not a number, which stands for the initial value. (MuJoCo 3.8.1 forgets to forget: what one
attachment of a model leaves behind, its keyframes hand to the next one. Ours do not.)
Source: MuJoCo XML reference, "attach"; mjCModel::operator+=, StoreKeyframes and RestoreState (3.8.1).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from diffsim.base.enums import DynType
from diffsim.base.errors import Problems, near_match
from diffsim.base.joints import kind_of
from diffsim.mjcf.defaults import MAIN
from diffsim.mjcf.elements.asset import FileAsset, ModelAsset
from diffsim.mjcf.elements.body import Body, Frame, FreeJoint, Joint
from diffsim.mjcf.elements.contact import Exclude, Pair
from diffsim.mjcf.elements.custom import CustomText, Key, Numeric, Tuple
from diffsim.mjcf.elements.deformable import Attach
from diffsim.mjcf.elements.sections import (
    REFERRING,
    AssetSection,
    CustomSection,
    Default,
    ExtensionSection,
    KeyframeSection,
)
from diffsim.mjcf.elements.sensor import Sensor
from diffsim.mjcf.kinds import NameKind
from diffsim.mjcf.numbers import Vector, frozen
from diffsim.mjcf.references import own_names, references
from diffsim.mjcf.schema import Element
from diffsim.mjcf.spec import Spec

# may refer to what does not come along
LOOSE = (Pair, Exclude, Sensor)

# the object that each number of a keyframe's attribute belongs to, in order
Owners = dict[str, list[Element]]


@dataclass
class AttachedKey:
    """A keyframe of an attached model: for each attribute that it gives, numbers by the object that they belong to."""

    source: Key
    name: str
    numbers: dict[str, dict[int, Vector]] = field(default_factory=dict)


def attach(spec: Spec, place: Attach, keys: list[AttachedKey], problems: Problems) -> None:
    """Replace `place` by a frame with the copy, in place; keyframes are left in `keys`."""
    if not place.model:
        # noted by the reader
        return
    child = spec.models.get(place.model)
    if child is None:
        problems.add(
            place, f"attribute 'model': there is no model '{place.model}'", near_match(place.model, spec.models)
        )
        return
    body = child.worldbody
    if place.body:
        found = child.names.get("body", {}).get(place.body)
        if not isinstance(found, Body) or found is child.worldbody:
            hint = near_match(place.body, child.names.get("body", {}))
            problems.add(place, f"attribute 'body': model '{place.model}' has no body '{place.body}'", hint)
            return
        body = found
    _Copier(spec, child, place, problems).run(body, keys)


class _Copier:
    """Copies from one model into another: what was copied, by kind and name and by identity."""

    def __init__(self, spec: Spec, child: Spec, place: Attach, problems: Problems) -> None:
        self.spec, self.child, self.place, self.problems = spec, child, place, problems
        self.prefix = place.prefix or ""
        self.inside = {("default", name) for name in child.defaults.classes}
        self.made: dict[int, Element] = {}

    def run(self, body: Body, keys: list[AttachedKey]) -> None:
        """Everything that comes along with `body`. Default classes name assets, so these names are known first."""
        sections = [section for cls in (AssetSection, ExtensionSection) for section in self.child.root.each(cls)]
        kept = [part for section in sections for part in section.walk()]
        self.inside |= {key for part in kept if not isinstance(part, ModelAsset) for key in own_names(part)}
        self._defaults()
        self._assets()
        self._tree(body)
        self._referring()
        for key in self.child.keys:
            keys.append(self._key(key))

    def copy(self, element: Element, parent: Element) -> Element:
        """A copy with everything in it, renamed, with the settings of its own file."""
        changed = {
            name: self.prefix + value for name, space, value in references(element) if (space, value) in self.inside
        }
        for name, kind in element.attributes().items():
            if isinstance(kind, NameKind):
                known = element.known_as if isinstance(element, FileAsset) else getattr(element, name)
                changed |= {name: self.prefix + known} if known else {}
        settings = element.settings or self.child.compiler
        made = element.replace(parent=parent, children=[], settings=settings, **changed)
        made.children = [self.copy(part, made) for part in element.children]
        self.made[id(element)] = made
        return made

    def _classed(self, element: Element, section: Element) -> Element:
        """A copy of an element outside the tree, of class main of its own model if it says nothing else."""
        made = self.copy(element, section)
        if "class_" in made.attributes() and getattr(made, "class_", None) is None:
            made = made.replace(class_=self.prefix + MAIN)
            for part in made.children:
                part.parent = made
            self.made[id(element)] = made
        return made

    def _section(self, cls: type[Element], like: Element) -> Element:
        """The last section of a class; a new one if there is none."""
        root = self.spec.root
        sections = root.each(cls)
        if not sections:
            sections = [cls(tag=like.tag, file=like.file, line=like.line, parent=root)]
            root.children.insert(len(root.children) - 1, sections[0])
        return sections[-1]

    def _defaults(self) -> None:
        """The default classes, under a class of their own that starts from MJCF's values."""
        root = self.spec.root
        sections = self.child.root.each(Default)
        if not any(section.settings is None for section in sections):
            sections = [Default(tag="default", file=self.place.file, line=self.place.line), *sections]
        for section in sections:
            self.inside |= {key for element in section.walk() for key in own_names(element)}
            made = self.copy(section, root)
            for part in made.walk():
                if isinstance(part, Default):
                    part.class_ = self.prefix + (part.class_ or MAIN)
            root.children.insert(len(root.children) - 1, made)

    def _assets(self) -> None:
        sections = [(section, self._section(AssetSection, section)) for section in self.child.root.each(AssetSection)]
        kept = [(element, to) for section, to in sections for element in section.children]
        kept = [(element, to) for element, to in kept if not isinstance(element, ModelAsset)]
        for element, section in kept:
            section.children.append(self._classed(element, section))
        for section in self.child.root.each(ExtensionSection):
            to = self._section(ExtensionSection, section)
            to.children += [self.copy(part, to) for part in section.children]
        for section in self.child.root.each(CustomSection):
            to = self._section(CustomSection, section)
            to.children += [self.copy(part, to) for part in section.children if isinstance(part, Numeric | CustomText)]

    def _tree(self, body: Body) -> None:
        """The body, or what stands in the world, in a frame that takes the place of `<attach>`."""
        place = self.place
        whole = body is self.child.worldbody
        picked = body.children if whole else [body]
        self.inside |= {key for element in picked for part in element.walk() for key in own_names(part)}
        around = MAIN if whole else self.child.defaults.class_of(body.replace(childclass=None))
        frame = Frame(
            tag="frame", file=place.file, line=place.line, parent=place.parent, childclass=self.prefix + around
        )
        frame.children = [self.copy(element, frame) for element in picked]
        assert place.parent is not None
        siblings = place.parent.children
        siblings[next(index for index, sibling in enumerate(siblings) if sibling is place)] = frame

    def _referring(self) -> None:
        """What refers to what was copied, in the order in which MuJoCo looks: kind by kind."""
        for cls in REFERRING:
            for section in self.child.root.each(cls):
                for element in section.children:
                    if isinstance(element, Numeric | CustomText) or not self._comes_along(element):
                        continue
                    self.inside |= {key for part in element.walk() for key in own_names(part)}
                    to = self._section(cls, section)
                    to.children.append(self._classed(element, to))

    def _comes_along(self, element: Element) -> bool:
        """Whether all that an element refers to was copied, or enough of it."""
        wanted = [(space, name) for part in element.walk() for _, space, name in references(part)]
        wanted = [key for key in wanted if key[0] != "default"]
        present = [key in self.inside for key in wanted]
        if all(present) and (present or not isinstance(element, Tuple)):
            return True
        # what stays behind although this model has it
        own = [name != "world" and name in self.child.names.get(space, {}) for space, name in wanted]
        if isinstance(element, LOOSE):
            return any(present) and not any(mine and not here for mine, here in zip(own, present, strict=True))
        for (space, name), mine in zip(wanted, own, strict=True):
            if not mine and name != "world":
                hint = near_match(name, self.child.names.get(space, {}))
                self.problems.add(element, f"there is no {space} '{name}' in its model", hint)
        return False

    def _key(self, source: Key) -> AttachedKey:
        """The numbers of a keyframe by the copies that they belong to."""
        result = AttachedKey(source, self.prefix + (source.name or ""))
        owners = owners_of(self.child)
        for name, objects in owners.items():
            given = getattr(source, name)
            if given is None:
                continue
            if len(given) != len(objects):
                self.problems.add(source, f"{name} takes {len(objects)} numbers, {len(given)} given")
            parts: dict[int, list[float]] = {}
            for owner, number in zip(objects, given, strict=False):
                if id(owner) in self.made:
                    parts.setdefault(id(self.made[id(owner)]), []).append(float(number))
            result.numbers[name] = {key: np.array(numbers) for key, numbers in parts.items()}
        return result


def owners_of(spec: Spec) -> Owners:
    """For each attribute of a keyframe, the object that each of its numbers belongs to."""
    owners: Owners = {name: [] for name in ("qpos", "qvel", "act", "ctrl", "mpos", "mquat")}
    for body in _bodies(spec.worldbody):
        for joint in _joints(body):
            kind = kind_of(joint.type if isinstance(joint, FreeJoint) else spec.resolve(joint).type)
            owners["qpos"] += kind.nq * [joint]
            owners["qvel"] += kind.nv * [joint]
        if body.mocap:
            owners["mpos"] += 3 * [body]
            owners["mquat"] += 4 * [body]
    for source in spec.actuators:
        actuator = spec.resolve(source)
        stateless = actuator.dyntype == DynType.NONE
        owners["act"] += (actuator.actdim if actuator.actdim >= 0 else int(not stateless)) * [source]
        owners["ctrl"].append(source)
    return owners


def _bodies(element: Element) -> Iterator[Body]:
    """Bodies depth first."""
    if isinstance(element, Body):
        yield element
    for child in element.children:
        if isinstance(child, Body | Frame):
            yield from _bodies(child)


def _joints(element: Element) -> Iterator[Joint | FreeJoint]:
    """Joints of a body, in file order."""
    for child in element.children:
        if isinstance(child, Joint | FreeJoint):
            yield child
        elif isinstance(child, Frame):
            yield from _joints(child)


def place_keys(spec: Spec, keys: list[AttachedKey]) -> None:
    """Append the keyframes that came with attached models, now that the whole tree is there."""
    if not keys:
        return
    root = spec.root
    sections = root.each(KeyframeSection)
    if not sections:
        sections = [KeyframeSection(tag="keyframe", file=keys[0].source.file, line=keys[0].source.line, parent=root)]
        root.children.insert(len(root.children) - 1, sections[0])
    owners = owners_of(spec)
    for key in keys:
        values = {name: _numbers(owners[name], parts) for name, parts in key.numbers.items()}
        empty = {name: None for name in owners if name not in values}
        sections[-1].children.append(key.source.replace(name=key.name, parent=sections[-1], **values, **empty))


def _numbers(objects: list[Element], parts: dict[int, Vector]) -> Vector:
    """One number per entry of `objects`, not a number where the key says nothing."""
    result, used = np.full(len(objects), np.nan), dict.fromkeys(parts, 0)
    for index, owner in enumerate(objects):
        part = parts.get(id(owner))
        if part is not None and used[id(owner)] < len(part):
            result[index] = part[used[id(owner)]]
            used[id(owner)] += 1
    return frozen(result, np.float64)

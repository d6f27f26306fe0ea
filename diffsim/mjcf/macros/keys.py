"""keys: what happens to keyframes when macros are expanded.

Keyframes of an attached model are copied: the numbers of copied joints, actuators and mocap bodies move to their new
indices. `<replicate>` makes one keyframe for each copy, with the copy's suffix in its name. In it, this copy has the
numbers that the file gives for the original, and all other copies have their initial values. The original keyframe
comes last, with initial values for all copies. Therefore a keyframe must have numbers for everything in the file up to
the end of its first `<replicate>`, where the copied elements count once. NaN marks a number that has its initial value.

MuJoCo 3.8.1 has errors here that diffsim does not repeat: keyframes of one attachment or copy keep numbers of the
previous one, ctrl and act are lost in a model with `<replicate>`, and poses of replicated bodies can be zero because
they are not computed yet.
Source: mjCModel::StoreKeyframes, ExpandKeyframe, RestoreState and mjXReader::Body (3.8.1).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from diffsim.base.enums import DynType
from diffsim.base.errors import Problem, Problems, UnsupportedError
from diffsim.base.joints import kind_of
from diffsim.mjcf.attributes import Tristate
from diffsim.mjcf.elements.body import Body, Frame, FreeJoint, Joint, Replicate
from diffsim.mjcf.elements.sections import Section
from diffsim.mjcf.elements.settings import Key
from diffsim.mjcf.number_kinds import Vector, frozen
from diffsim.mjcf.orientation import IDENTITY, compose, orientation_of
from diffsim.mjcf.schema import Element
from diffsim.mjcf.spec import Spec

# largest number of keyframes of a model; it equals the limit of elements in a file
MOST_KEYS = 25_000
# hint: how to get a keyframe of all copies
REPLICATED = (
    "give numbers for one copy, from which MuJoCo 3.8.1 makes one keyframe for each copy; for a keyframe of the whole "
    'model pass mujoco="4.0", or add the keyframe after the copies are made: diffsim.mjcf.check(spec), then '
    'spec.keyframe.add("key", name=..., qpos=...)'
)
# attributes of a keyframe that have numbers for each object
ATTRIBUTES = ("qpos", "qvel", "act", "ctrl", "mpos", "mquat")
# for each attribute of a keyframe, the object to which each number belongs
Owners = dict[str, list[Element]]
# the copy of each element, by id() of the original
Copies = Mapping[int, Element]


@dataclass(frozen=True)
class _Pending:
    """A keyframe while macros are expanded.

    Attributes:
      source: the element in the file.
      name: its name so far.
      numbers: for each attribute that it gives, the numbers of each object, by id() of the object.
    """

    source: Key
    name: str
    numbers: dict[str, dict[int, Vector]]

    def moved(self, name: str, copies: Copies) -> "_Pending":
        """The keyframe under a new name, in which the numbers of copied objects belong to their copies."""
        numbers = {
            attribute: {id(copies[owner]) if owner in copies else owner: part for owner, part in parts.items()}
            for attribute, parts in self.numbers.items()
        }
        return replace(self, name=name, numbers=numbers)

    def without(self, copied: Copies) -> "_Pending":
        """The keyframe without the numbers of copied objects."""
        numbers = {
            attribute: {owner: part for owner, part in parts.items() if owner not in copied}
            for attribute, parts in self.numbers.items()
        }
        return replace(self, numbers=numbers)


class Keys:
    """The keyframes of a model whose macros are being expanded, in file order."""

    def __init__(self, spec: Spec, problems: Problems) -> None:
        self.spec = spec
        self.problems = problems
        self.pending: list[_Pending] = []
        # for each attribute, the length to which our keyframes were completed when a model was attached
        self.completed: dict[str, int] = {}

    def attached(self, child: Spec, prefix: str, copies: Copies) -> None:
        """Takes the keyframes of an attached model."""
        owners = owners_of(child)
        for key in child.keys:
            theirs = self._by_owner(key, owners, owners, "its model")
            gone = {id(owner): owner for objects in owners.values() for owner in objects if id(owner) not in copies}
            self.pending.append(theirs.without(gone).moved(prefix + theirs.name, copies))

    def attached_at(self, place: Element) -> None:
        """Notes the length to which our keyframes are completed, now that a model is attached at `place`."""
        if self.spec.keys:
            before = _until(self.spec, place)
            self.completed = {name: len(objects) for name, objects in owners_of(self.spec, before).items()}

    def take(self, source: Replicate, count: int) -> list[_Pending]:
        """Removes the keyframes from their sections, before `source` is copied `count` times, and returns them.

        Since MuJoCo 3.16 keyframes are for the whole model and stay in place.
        """
        keys = self.spec.keys
        if not keys or self.spec.follows("replicated_keys"):
            return []
        if len(keys) * (count + 1) > MOST_KEYS:
            more = f"with one keyframe for each copy the model has {len(keys) * (count + 1)}, more than {MOST_KEYS}"
            self.problems.add(source, more)
            return []
        owners = owners_of(self.spec, _until(self.spec, source))
        pending = []
        for key in keys:
            reached = {name: objects[: self.completed.get(name, 0)] for name, objects in owners.items()}
            pending.append(self._by_owner(key, owners, reached, "the file up to the end of <replicate>, copied once,"))
        for section in self.spec.root.tagged("keyframe"):
            section.children = []
        return pending

    def replicated(self, pending: Sequence[_Pending], suffixes: Sequence[str], copies: Sequence[Copies]) -> None:
        """Replaces each keyframe by one for each copy, in which the copy has the numbers of the replicated objects."""
        first = copies[0] if copies else {}
        self.pending = [key.moved(key.name, first) for key in self.pending]
        for suffix, of_copy in zip(suffixes, copies, strict=True):
            self.pending += [key.moved(key.name + suffix, of_copy) for key in pending]
        self.pending += [key.without(first) for key in pending]

    def place(self) -> None:
        """Appends the pending keyframes to the model, once its tree is complete."""
        if not self.pending:
            return
        root = self.spec.root
        source = self.pending[0].source
        sections = root.tagged("keyframe")
        if not sections:
            sections = [Section(tag="keyframe", file=source.file, line=source.line, parent=root)]
            root.children.insert(len(root.children) - 1, sections[0])
        owners = owners_of(self.spec)
        for key in self.pending:
            values = {}
            for name, parts in key.numbers.items():
                # NaN where the keyframe gives no number
                unused = {owner: iter(part.tolist()) for owner, part in parts.items()}
                numbers = [next(unused.get(id(owner), iter(())), np.nan) for owner in owners[name]]
                values[name] = frozen(np.array(numbers, float), np.float64)
            empty = {name: None for name in owners if name not in values}
            element = key.source.replace(name=key.name or None, parent=sections[-1], **values, **empty)
            sections[-1].children.append(element)

    def _by_owner(self, key: Key, owners: Owners, least: Owners, where: str) -> _Pending:
        """A keyframe with its numbers by object; notes an error if an attribute has the wrong length.

        Args:
          key: the element.
          owners: the objects that the keyframe needs numbers for.
          least: an attribute that is shorter than these objects is completed to their length.
          where: what takes these numbers, for the message.
        """
        result = _Pending(key, key.name or "", {})
        for name, objects in owners.items():
            numbers = getattr(key, name)
            if numbers is None:
                continue
            lacking = len(least[name]) - len(numbers) if least is not owners else 0
            if max(lacking, 0) + len(numbers) != len(objects):
                message = f"{name} has {len(numbers)} numbers, {where} takes {len(objects)}"
                self.problems.add(key, message, REPLICATED if owners is not least else "")
            parts: dict[int, list[float]] = {}
            for owner, number in zip(objects, numbers, strict=False):
                parts.setdefault(id(owner), []).append(float(number))
            result.numbers[name] = {owner: np.array(part) for owner, part in parts.items()}
        return result


def owners_of(spec: Spec, among: set[int] | None = None) -> Owners:
    """For each attribute of a keyframe, the object to which each of its numbers belongs.

    Args:
      spec: the model; a `<replicate>` in it counts like a body, with what it contains counted once.
      among: id() of the elements that count; None for all.
    """
    owners: Owners = {name: [] for name in ATTRIBUTES}
    for body in _bodies(spec.worldbody):
        if among is not None and id(body) not in among:
            continue
        for joint in _joints(body):
            if among is None or id(joint) in among:
                kind = kind_of(joint.type if isinstance(joint, FreeJoint) else spec.resolve(joint).type)
                owners["qpos"] += kind.nq * [joint]
                owners["qvel"] += kind.nv * [joint]
        if isinstance(body, Body) and body.mocap:
            owners["mpos"] += 3 * [body]
            owners["mquat"] += 4 * [body]
    for source in spec.actuators:
        actuator = spec.resolve(source)
        stateless = actuator.dyntype == DynType.NONE
        owners["act"] += (actuator.actdim if actuator.actdim >= 0 else int(not stateless)) * [source]
        owners["ctrl"].append(source)
    return owners


def without_gaps(spec: Spec, section: Element) -> Element:
    """The section with complete keyframes: initial values replace the NaN of attached and replicated keyframes.

    Raises:
      UnsupportedError: a NaN is the pose of a free body that the compiler will move to its inertial frame.
    """
    numbers = [
        {name: value for name in ATTRIBUTES if (value := getattr(key, name)) is not None} for key in section.children
    ]
    if not any(np.isnan(value).any() for values in numbers for value in values.values()):
        return section
    initial = {
        name: np.concatenate(
            [np.zeros(0), *(_initial(spec, name, list(several)) for _, several in groupby(objects, id))]
        )
        for name, objects in owners_of(spec).items()
    }
    result = section.replace(children=[])
    for key, values in zip(section.children, numbers, strict=True):
        for name, value in values.items():
            whole = np.where(np.isnan(value), np.resize(initial[name], len(value)), value)
            if np.isnan(whole).any():
                message = "does not give the pose of a free body that the compiler moves to its inertial frame"
                hint = "delete the keyframe or give the pose"
                raise UnsupportedError([Problem(key.file, key.line, key.label, message, hint)])
            # an attribute without any number is left out
            values[name] = None if np.isnan(value).all() else frozen(whole, np.float64)
        result.children.append(key.replace(parent=result, **values))
    return result


def _initial(spec: Spec, name: str, numbers: list[Element]) -> np.ndarray:
    """The initial values of one object for an attribute of a keyframe; NaN if the compiler will move the object."""
    place: Element | None = numbers[0]
    if name in ("qvel", "act", "ctrl"):
        return np.zeros(len(numbers))
    if isinstance(place, Joint | FreeJoint):
        joint = spec.resolve(place)
        settings = spec.compiler_of(place)
        kind = kind_of(joint.type)
        if isinstance(joint, Joint) and kind.scalar:
            return np.array([np.deg2rad(joint.ref) if kind.rotational and settings.degree else joint.ref])
        if not kind.free:
            return np.array(IDENTITY)
        align = getattr(joint, "align", Tristate.AUTO)
        if align == Tristate.TRUE or (align == Tristate.AUTO and settings.alignfree):
            return np.full(7, np.nan)
        while not isinstance(place, Body) and place is not None:
            place = place.parent
    # compose the poses of the frames around the body
    pose = np.zeros(3), np.array(IDENTITY)
    while isinstance(place, Frame | Body):
        e = spec.resolve(place)
        pose = compose(e.pos, orientation_of(e, spec.compiler_of(place)), *pose)
        place = place.parent if isinstance(place.parent, Frame) else None
    return {"mpos": pose[0], "mquat": pose[1]}.get(name, np.concatenate(pose))


def _until(spec: Spec, last: Element) -> set[int]:
    """id() of all elements up to the end of `last`, in file order."""
    inside = {id(element) for element in last.walk()}
    passed = set[int]()
    entered = False
    for element in spec.root.walk():
        if entered and id(element) not in inside:
            break
        entered = entered or element is last
        passed.add(id(element))
    return passed


def _bodies(element: Element) -> Iterator[Body | Replicate]:
    """Bodies and replicates, depth first."""
    if isinstance(element, Body | Replicate):
        yield element
    for child in element.children:
        if isinstance(child, Body | Frame | Replicate):
            yield from _bodies(child)


def _joints(element: Element) -> Iterator[Joint | FreeJoint]:
    """Joints of a body, in file order."""
    for child in element.children:
        if isinstance(child, Joint | FreeJoint):
            yield child
        elif isinstance(child, Frame):
            yield from _joints(child)

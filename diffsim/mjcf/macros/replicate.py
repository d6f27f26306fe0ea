"""replicate: `<replicate>` becomes frames, one for each copy of what stands in it.

Copy i stands in a frame turned by i times `euler` and moved by the sum of the offsets so far, each turned as its copy
is. Names get the suffix `sep` + i, written with as many digits as `count` has; innermost replicates come first, so that
their suffix does. Elements that refer to something inside (pairs, tendons, actuators, sensors) are copied with it, to
the end of their kind, and references inside follow the copy; what only refers to things outside stays as it is.

A constraint or actuator that besides refers to something outside has no copies: MuJoCo drops it, and so do we, with a
warning.

MuJoCo 3.8.1 also copies sensors that refer to nothing (clock, energies), and doubles them with every further copy; we
leave them alone. It refuses tuples that refer to what is copied; ours get copies.
Source: MuJoCo XML reference, "replicate"; mjXReader::Body and mjCBody::operator+= (3.8.1).
"""

import warnings

import numpy as np

from diffsim.mjcf.attributes import Vector
from diffsim.mjcf.elements.actuator import Actuator
from diffsim.mjcf.elements.body import Frame, Replicate
from diffsim.mjcf.elements.equality import Equality
from diffsim.mjcf.elements.sections import REFERRING
from diffsim.mjcf.elements.settings import Compiler
from diffsim.mjcf.kinds import NameKind
from diffsim.mjcf.macros.keys import Keys
from diffsim.mjcf.references import own_names, references
from diffsim.mjcf.schema import Element

# names by kind, as (space, name)
Names = set[tuple[str, str]]


def replicate(root: Element, source: Replicate, filled: Replicate, compiler: Compiler, keys: Keys) -> None:
    """Replace `source`, which is `filled` with all its attributes, by one frame for each copy, in place.

    Keyframes that it changes are left in `keys`.
    """
    assert source.parent is not None
    taken = keys.take(source, filled.count or 0)
    inside = {key for child in source.children for element in child.walk() for key in own_names(element)}
    referring = _take_referring(root, source, inside)
    suffixes = _suffixes(filled.count or 0, filled.sep)
    frames: list[Element] = []
    copies: list[dict[int, Element]] = []
    for frame, suffix in zip(_frames(filled, compiler), suffixes, strict=True):
        made: dict[int, Element] = {}
        frame.children = [_copy(child, frame, suffix, inside, made) for child in source.children]
        frames.append(frame)
        copies.append(made)
        for element in referring:
            section = root.each(type(element.parent or root))[-1]
            section.children.append(_copy(element, section, suffix, inside, made))
    siblings = source.parent.children
    place = next(index for index, sibling in enumerate(siblings) if sibling is source)
    siblings[place : place + 1] = frames
    keys.replicated(taken, suffixes, copies)


def _suffixes(count: int, separator: str) -> list[str]:
    return [f"{separator}{index:0{len(str(count))}d}" for index in range(count)]


def _take_referring(root: Element, source: Replicate, inside: Names) -> list[Element]:
    """Remove from their sections the elements that refer to names `inside`, to which their own names are added.

    Returns: those of which copies are made.
    """
    taken: list[Element] = []
    for cls in REFERRING:
        for section in root.each(cls):
            staying: list[Element] = []
            for element in section.children:
                named = [key for part in element.walk() for _, *key in references(part) if key[0] != "default"]
                outside = [name for space, name in named if (space, name) not in inside]
                if len(outside) == len(named):
                    staying.append(element)
                elif outside and isinstance(element, Equality | Actuator):
                    message = f"{element.label} is left out: it refers to '{outside[0]}' outside of <replicate>"
                    warnings.warn(f"{element.file}:{element.line} {message}", stacklevel=2)
                else:
                    taken.append(element)
                    inside |= own_names(element)
            section.children = staying
    return taken


def _copy(element: Element, parent: Element, suffix: str, inside: Names, copies: dict[int, Element]) -> Element:
    """A copy with everything in it, its names and its references to names `inside` with a suffix; noted in `copies`."""
    renamed = {name: value + suffix for name, space, value in references(element) if (space, value) in inside}
    for name, kind in element.attributes().items():
        if isinstance(kind, NameKind) and getattr(element, name):
            renamed[name] = getattr(element, name) + suffix
    made = element.replace(parent=parent, children=[], **renamed)
    made.children = [_copy(child, made, suffix, inside, copies) for child in element.children]
    copies[id(element)] = made
    return made


# ------------------------------------------------------------------------------------------------- poses of the copies


def _frames(source: Replicate, compiler: Compiler) -> list[Frame]:
    """The frame of each copy, empty."""
    position = np.zeros(3)
    frames = []
    for index in range(source.count or 0):
        turn = index * source.euler
        place = {"tag": "frame", "file": source.file, "line": source.line, "parent": source.parent}
        frames.append(Frame(**place, childclass=source.childclass, pos=position, euler=turn))
        position = position + _rotation(turn, compiler) @ source.offset
    return frames


def _rotation(euler: Vector, compiler: Compiler) -> Vector:
    """The matrix of Euler angles: lower case letters of `eulerseq` turn about moving axes, upper about fixed ones."""
    angles = np.deg2rad(euler) if compiler.degree else euler
    result = np.eye(3)
    for letter, angle in zip(compiler.eulerseq, angles, strict=True):
        turn = _about_axis("xyz".index(letter.lower()), angle)
        result = result @ turn if letter.islower() else turn @ result
    return result


def _about_axis(axis: int, angle: float) -> Vector:
    first, second = (axis + 1) % 3, (axis + 2) % 3
    matrix = np.eye(3)
    matrix[first, first] = matrix[second, second] = np.cos(angle)
    matrix[second, first] = np.sin(angle)
    matrix[first, second] = -np.sin(angle)
    return matrix

"""Damaged, illegal and extreme texts of models, seeded."""

import pathlib
import random
import re
from collections.abc import Callable

from compiler.features import FEATURES
from lxml import etree

import diffsim
from diffsim import mjcf
from diffsim.compiler.draft import Draft
from diffsim.compiler.passes import run_passes
from hostile.judge import Case

MODELS = sorted((pathlib.Path(__file__).parents[1] / "models").glob("*.xml"))
SOURCES = [*(path.read_text() for path in MODELS), *(FEATURES[name] for name in sorted(FEATURES))]

JUNK = ("", "<", ">", '"', "'", "&", "</body>", "<geom/>", "]]>", "\x01", "\u00e9", "nan ", "-1", "1e999", "  ", "\n")
EXTREMES = (
    *(
        "0",
        "-1",
        "1e308",
        "-1e308",
        "1e-308",
        "nan",
        "inf",
        "-inf",
        "2147483647",
        "-2147483648",
        "99999999999999999999",
    ),
    *("1e18", "0.0000000001", "65535", "1e7", "", "  ", "1e", "+", "0x1F", "1 " * 5000, "9" * 400),
)
WORDS = ("true", "auto", "none", "world", "b", "", "box", "1", "enable", "-", "main", "joint", "xyz", "../a", "\u00df")


def damaged(seed: int) -> str:
    """A text with pieces removed, doubled, moved or replaced."""
    rng = random.Random(seed)
    text = rng.choice(SOURCES)
    for _ in range(rng.randint(1, 5)):
        start = rng.randrange(max(1, len(text)))
        end = min(len(text), start + rng.choice((1, 1, 2, 5, 20, 100)))
        piece = text[start:end]
        text = text[:start] + rng.choice((*JUNK, piece * 2, piece[::-1], rng.choice(text or " "))) + text[end:]
    return text


def illegal(seed: int) -> str:
    """Sound XML that breaks the schema: attributes and elements renamed, removed, doubled, or out of place."""
    rng = random.Random(seed)
    root = etree.fromstring(rng.choice(SOURCES).encode())
    for _ in range(rng.randint(1, 3)):
        elements = [element for element in root.iter() if isinstance(element.tag, str)]
        rng.choice(CHANGES)(rng, elements, rng.choice(elements))
    return etree.tostring(root, encoding="unicode")


def _drop(rng: random.Random, elements: list, element: "etree._Element") -> None:
    if element.attrib:
        del element.attrib[rng.choice(sorted(element.attrib))]


def _reword(rng: random.Random, elements: list, element: "etree._Element") -> None:
    if element.attrib:
        element.set(rng.choice(sorted(element.attrib)), rng.choice(WORDS))


def _rename(rng: random.Random, elements: list, element: "etree._Element") -> None:
    if element.attrib:
        name = rng.choice(sorted(element.attrib))
        element.set(
            rng.choice((name[:-1] or "x", name + "s", "name", "class", "pos", "joint")), element.attrib.pop(name)
        )


def _retag(rng: random.Random, elements: list, element: "etree._Element") -> None:
    element.tag = rng.choice([other.tag for other in elements] + ["frame", "replicate", "default", "attach", "include"])


def _remove(rng: random.Random, elements: list, element: "etree._Element") -> None:
    parent = element.getparent()
    if parent is not None:
        parent.remove(element)


def _move(rng: random.Random, elements: list, element: "etree._Element") -> None:
    target = rng.choice(elements)
    if element.getparent() is not None and element not in (target, *target.iterancestors()):
        target.append(element)


def _double(rng: random.Random, elements: list, element: "etree._Element") -> None:
    copy = etree.fromstring(etree.tostring(element))
    rng.choice(elements).append(copy)


CHANGES: tuple[Callable[[random.Random, list, "etree._Element"], None], ...] = (
    _drop, _reword, _rename, _retag, _remove, _move, _double,
)  # fmt: skip


def extreme(seed: int) -> str:
    """A model some of whose numbers are as large, small or long as can be."""
    rng = random.Random(seed)
    text = rng.choice(SOURCES)
    places = list(re.finditer(r"(?<=[\"\s])-?[\d.]+(?=[\"\s])", text))
    for place in sorted(rng.sample(places, min(len(places), rng.randint(1, 4))), key=lambda at: -at.start()):
        text = text[: place.start()] + rng.choice(EXTREMES) + text[place.end() :]
    return text


def reading(text: Callable[[int], str]) -> Callable[[int], Case]:
    """Cases that read and compile a text up to the derived constants."""

    def case(seed: int) -> Case:
        # as bytes it is a model whatever it begins with; text without `<` would be a path
        data = text(seed).encode()
        return lambda: run_passes(Draft(mjcf.read(data)))

    return case


def loading(text: Callable[[int], str]) -> Callable[[int], Case]:
    """Cases that load a text to the end."""

    def case(seed: int) -> Case:
        data = text(seed).encode()
        return lambda: diffsim.load(data)

    return case

"""Every attribute of MJCF is read by the compiler, or stands in a table that says why not."""

import dataclasses
import re
from pathlib import Path

import diffsim
from diffsim.mjcf.coverage import KEPT, kept
from diffsim.mjcf.elements import Flags, Mujoco
from diffsim.mjcf.schema import Element, children_of
from diffsim.types import Option

ROOT = Path(diffsim.__file__).parent
READERS = [
    *sorted((ROOT / "compiler").rglob("*.py")),
    *(
        path
        for path in sorted((ROOT / "mjcf").glob("*.py"))
        if path.stem in ("spec", "defaults", "reader", "names", "orientation")
    ),
    *sorted((ROOT / "mjcf" / "macros").glob("*.py")),
    *(
        ROOT / "mjcf" / "elements" / f"{name}.py"
        for name in ("actuator", "shortcuts", "muscle", "dcmotor", "sensor", "equality", "settings")
    ),
]
TEXT = "\n".join(path.read_text() for path in READERS)
OPTIONS = {field.name for field in dataclasses.fields(Option)} | set(Flags.DISABLE) | set(Flags.ENABLE)


def classes(cls: type[Element], seen: set[type[Element]]) -> set[type[Element]]:
    """A class and all that may stand in it, without what is refused as a whole."""
    if cls not in seen and not cls.unsupported:
        seen.add(cls)
        for child in children_of(cls).values():
            classes(child.cls, seen)
    return seen


ALL = classes(Mujoco, set())


def test_no_attribute_is_forgotten() -> None:
    lost = [
        f"{cls.__name__}.{name}"
        for cls in ALL
        for name in cls.legal()
        if not kept(cls, name) and name not in OPTIONS and not re.search(rf"\.{name}\b|[\"']{name}[\"']", TEXT)
    ]
    assert lost == []


def test_the_tables_name_attributes_that_exist() -> None:
    for cls, reasons in KEPT.items():
        having = [each for each in ALL if issubclass(each, cls)]
        for name in reasons:
            assert any(name in each.legal() for each in having), f"{cls.__name__}.{name}"

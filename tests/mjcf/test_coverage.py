"""Every attribute of MJCF is read by the compiler, or stands in a table here that says why not.

So nothing is read from a file and then forgotten. Whole elements are refused by `Element.unsupported`.
"""

import dataclasses
import re
from pathlib import Path

import diffsim
from diffsim.mjcf.elements import Mujoco, visual
from diffsim.mjcf.elements.asset import Bone, FileAsset, Mesh, Skin
from diffsim.mjcf.elements.body import Light
from diffsim.mjcf.elements.deformable import CompositeSkin
from diffsim.mjcf.elements.settings import Compiler, Flags, Size
from diffsim.mjcf.schema import Element, children_of
from diffsim.types import Option

ROOT = Path(diffsim.__file__).parent
READERS = [*sorted((ROOT / "compiler").rglob("*.py")), *sorted((ROOT / "mjcf" / "macros").glob("*.py"))]
READERS += [ROOT / "mjcf" / f"{name}.py" for name in ("spec", "reader", "orientation")]
READERS += [
    ROOT / "mjcf" / "elements" / f"{name}.py"
    for name in ("actuator", "shortcuts", "dcmotor", "sensor", "constraints", "settings")
]
TEXT = "\n".join(path.read_text() for path in READERS)
OPTIONS = {field.name for field in dataclasses.fields(Option)} | set(Flags.DISABLE) | set(Flags.ENABLE)

# elements that say only how things look: read, checked, kept for rendering and writing
VISUAL: tuple[type[Element], ...] = (*visual.PARTS.values(), Skin, Bone)

_LOOKS = "only rendering reads it"
_MEMORY = "sizes of MuJoCo's own memory; ours follows from the model"
_USER = "user data stays on the elements; the longest list counts"
_UNITS = "read by way of Compiler.degree and Compiler.folder"
_BY_NAME = "files are told apart by their contents and names"

# attributes that the compiler does not read, with the reason
KEPT: dict[type[Element], dict[str, str]] = {
    Compiler: {
        "coordinate": "local is the only value that is left",
        "angle": _UNITS,
        "meshdir": _UNITS,
        "texturedir": _UNITS,
        "assetdir": _UNITS,
        "usethread": "the compiler has one thread",
        "saveinertial": "concerns writing only (save_inertials)",
    },
    Size: {
        **dict.fromkeys(("memory", "njmax", "nconmax", "nstack"), _MEMORY),
        **dict.fromkeys(
            (
                *("nuser_body", "nuser_jnt", "nuser_geom", "nuser_site"),
                *("nuser_cam", "nuser_tendon", "nuser_actuator", "nuser_sensor"),
            ),
            _USER,
        ),
    },
    Flags: {
        "midphase": "a way of searching that only changes the order of contacts",
        "island": "a way of solving that does not change the solution",
        "nativeccd": "there is one convex search; the depths that MuJoCo's other one finds are not the least",
        "autoreset": "a state that diverged is reported, not reset",
    },
    Light: dict.fromkeys(
        ("bulbradius", "intensity", "attenuation", "exponent", "ambient", "diffuse", "specular", "texture"), _LOOKS
    ),
    FileAsset: {"content_type": _BY_NAME},
    CompositeSkin: {"subgrid": "skins of composites are refused (macros/cable.py)"},
    Mesh: {"smoothnormal": _LOOKS, "normal": _LOOKS, "texcoord": _LOOKS},
}


def kept(cls: type[Element], attribute: str) -> str:
    """Why the compiler does not read an attribute; empty if it has to."""
    if issubclass(cls, VISUAL):
        return _LOOKS
    return next((KEPT[base][attribute] for base in cls.__mro__ if attribute in KEPT.get(base, {})), "")


def classes(cls: type[Element], tag: str, seen: set[tuple[type[Element], str]]) -> set[type[Element]]:
    """A class and all that may stand in an element of it, without what is refused as a whole."""
    if (cls, tag) not in seen and not cls.unsupported:
        seen.add((cls, tag))
        for name, child in children_of(cls, tag).items():
            classes(child.cls, name, seen)
    return {cls for cls, _ in seen}


ALL = classes(Mujoco, "mujoco", set())


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
        having = [other for other in ALL if issubclass(other, cls)]
        for name in reasons:
            assert any(name in other.legal() for other in having), f"{cls.__name__}.{name}"

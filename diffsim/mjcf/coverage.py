"""What becomes of every attribute of MJCF: used, kept for pictures, kept or ignored for a reason, or refused.

An attribute that stands in none of these tables has to be read by the compiler; tests/mjcf/test_coverage.py looks for
it there, so that nothing is read from a file and then forgotten. Whole elements are refused by `Element.unsupported`.
"""

from diffsim.mjcf.elements import visual
from diffsim.mjcf.elements.asset import Bone, FileAsset, Mesh, Skin
from diffsim.mjcf.elements.camera import Light
from diffsim.mjcf.elements.settings import Compiler, Flags, Size
from diffsim.mjcf.schema import Element

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
    Mesh: {"smoothnormal": _LOOKS, "normal": _LOOKS, "texcoord": _LOOKS},
}


def kept(cls: type[Element], attribute: str) -> str:
    """Why the compiler does not read an attribute; empty if it has to."""
    if issubclass(cls, VISUAL):
        return _LOOKS
    return next((KEPT[base][attribute] for base in cls.__mro__ if attribute in KEPT.get(base, {})), "")

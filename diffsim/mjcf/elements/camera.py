"""Cameras and lights: what hangs on a body and looks or shines somewhere.

Source: MuJoCo XML reference, "camera", "light"; defaults of user_init.c (3.8.1).
"""

from dataclasses import dataclass

from diffsim.base.enums import CamLightMode, CamOutBit, LightType, Projection
from diffsim.base.errors import Problems
from diffsim.mjcf.attributes import (
    Class,
    Flag,
    Integers,
    IntVector,
    Keyword,
    Keywords,
    Name,
    Oriented,
    Real,
    Reals,
    Reference,
    Vector,
)
from diffsim.mjcf.schema import Element

CAMLIGHT_MODES = {
    "fixed": CamLightMode.FIXED,
    "track": CamLightMode.TRACK,
    "trackcom": CamLightMode.TRACKCOM,
    "targetbody": CamLightMode.TARGETBODY,
    "targetbodycom": CamLightMode.TARGETBODYCOM,
}
PROJECTIONS = {"perspective": Projection.PERSPECTIVE, "orthographic": Projection.ORTHOGRAPHIC}
CAMERA_OUTPUTS = {
    "rgb": CamOutBit.RGB,
    "depth": CamOutBit.DEPTH,
    "distance": CamOutBit.DIST,
    "normal": CamOutBit.NORMAL,
    "segmentation": CamOutBit.SEG,
}
LIGHT_TYPES = {
    "spot": LightType.SPOT,
    "directional": LightType.DIRECTIONAL,
    "point": LightType.POINT,
    "image": LightType.IMAGE,
}


@dataclass(eq=False)
class Camera(Oriented):
    """A camera; its pose and projection serve sensors."""

    default_key = "camera"
    default_omits = frozenset({"target"})
    alternatives = (*Oriented.alternatives, ("fovy", "sensorsize"))

    name: str | None = Name("camera")
    class_: str | None = Class()
    projection: Projection = Keyword(PROJECTIONS, "perspective")
    fovy: float = Real(45)
    ipd: float = Real(0.068)
    resolution: IntVector = Integers(2, (1, 1))
    output: tuple[CamOutBit, ...] = Keywords(CAMERA_OUTPUTS, ("rgb",))
    pos: Vector = Reals(3, (0, 0, 0))
    mode: CamLightMode = Keyword(CAMLIGHT_MODES, "fixed")
    target: str | None = Reference("body")
    focal: Vector | None = Reals(2)
    focalpixel: IntVector | None = Integers(2)
    principal: Vector | None = Reals(2)
    principalpixel: IntVector | None = Integers(2)
    sensorsize: Vector | None = Reals(2)
    user: Vector | None = Reals(None)


@dataclass(eq=False)
class Light(Element):
    """A light; only its pose is computed."""

    default_key = "light"
    default_omits = frozenset({"target", "texture"})
    alternatives = (("directional", "type"),)
    supersede = alternatives

    name: str | None = Name("light")
    class_: str | None = Class()
    directional: bool | None = Flag()
    type: LightType = Keyword(LIGHT_TYPES, "spot")
    castshadow: bool = Flag(True)
    active: bool = Flag(True)
    pos: Vector = Reals(3, (0, 0, 0))
    dir: Vector = Reals(3, (0, 0, -1))
    bulbradius: float = Real(0.02)
    intensity: float = Real(0)
    range: float = Real(10)
    attenuation: Vector = Reals(3, (1, 0, 0))
    cutoff: float = Real(45)
    exponent: float = Real(10)
    ambient: Vector = Reals(3, (0, 0, 0))
    diffuse: Vector = Reals(3, (0.7, 0.7, 0.7))
    specular: Vector = Reals(3, (0.3, 0.3, 0.3))
    mode: CamLightMode = Keyword(CAMLIGHT_MODES, "fixed")
    target: str | None = Reference("body")
    texture: str | None = Reference("texture")

    def resolved(self, inherited: Element, problems: Problems) -> Element:
        filled = self.over(inherited)
        if filled.directional is None:
            return filled
        kind = LightType.DIRECTIONAL if filled.directional else LightType.SPOT
        return filled.replace(type=kind, directional=None)

"""Settings of rendering. They are read, checked and written back; the physics does not use them.

Source: MuJoCo XML reference, "visual"; defaults of mj_defaultVisual.
"""

from dataclasses import dataclass
from typing import Any

from diffsim.mjcf.attributes import Flag, Integer, Real, Reals, Vector
from diffsim.mjcf.schema import Element, allow


def _color(red: float, green: float, blue: float, alpha: float) -> Any:
    """An attribute that is a color with alpha."""
    return Reals(4, (red, green, blue, alpha))


def _gray(level: float) -> Any:
    """An attribute that is a color; by default it is gray."""
    return Reals(3, (level, level, level))


@dataclass(eq=False)
class Global(Element):
    """Camera and window."""

    cameraid: int = Integer(-1)
    orthographic: bool = Flag(False)
    fovy: float = Real(45)
    ipd: float = Real(0.068)
    azimuth: float = Real(90)
    elevation: float = Real(-45)
    linewidth: float = Real(1)
    glow: float = Real(0.3)
    offwidth: int = Integer(640)
    offheight: int = Integer(480)
    realtime: float = Real(1, above=0)
    ellipsoidinertia: bool = Flag(False)
    bvactive: bool = Flag(True)


@dataclass(eq=False)
class Quality(Element):
    """Resolution of shadows and shapes."""

    shadowsize: int = Integer(4096)
    offsamples: int = Integer(4)
    numslices: int = Integer(28)
    numstacks: int = Integer(16)
    numquads: int = Integer(4)


@dataclass(eq=False)
class Headlight(Element):
    """The light at the camera."""

    ambient: Vector = _gray(0.1)
    diffuse: Vector = _gray(0.4)
    specular: Vector = _gray(0.5)
    active: int = Integer(1)


@dataclass(eq=False)
class Map(Element):
    """Scale of perturbations, fog and shadows."""

    stiffness: float = Real(100)
    stiffnessrot: float = Real(500)
    force: float = Real(0.005)
    torque: float = Real(0.1)
    alpha: float = Real(0.3)
    fogstart: float = Real(3)
    fogend: float = Real(10)
    znear: float = Real(0.01, above=0)
    zfar: float = Real(50)
    haze: float = Real(0.3)
    shadowclip: float = Real(1)
    shadowscale: float = Real(0.6)
    actuatortendon: float = Real(2)


@dataclass(eq=False)
class Scale(Element):
    """Sizes of what is drawn, in units of the mean body size."""

    forcewidth: float = Real(0.1)
    contactwidth: float = Real(0.3)
    contactheight: float = Real(0.1)
    connect: float = Real(0.2)
    com: float = Real(0.4)
    camera: float = Real(0.3)
    light: float = Real(0.3)
    selectpoint: float = Real(0.2)
    jointlength: float = Real(1)
    jointwidth: float = Real(0.1)
    actuatorlength: float = Real(0.7)
    actuatorwidth: float = Real(0.2)
    framelength: float = Real(1)
    framewidth: float = Real(0.1)
    constraint: float = Real(0.1)
    slidercrank: float = Real(0.2)
    frustum: float = Real(10)


@dataclass(eq=False)
class Rgba(Element):
    """Colors of what is drawn."""

    fog: Vector = _color(0, 0, 0, 1)
    haze: Vector = _color(1, 1, 1, 1)
    force: Vector = _color(1, 0.5, 0.5, 1)
    inertia: Vector = _color(0.8, 0.2, 0.2, 0.6)
    joint: Vector = _color(0.2, 0.6, 0.8, 1)
    actuator: Vector = _color(0.2, 0.25, 0.2, 1)
    actuatornegative: Vector = _color(0.2, 0.6, 0.9, 1)
    actuatorpositive: Vector = _color(0.9, 0.4, 0.2, 1)
    com: Vector = _color(0.9, 0.9, 0.9, 1)
    camera: Vector = _color(0.6, 0.9, 0.6, 1)
    light: Vector = _color(0.6, 0.6, 0.9, 1)
    selectpoint: Vector = _color(0.9, 0.9, 0.1, 1)
    connect: Vector = _color(0.2, 0.2, 0.8, 1)
    contactpoint: Vector = _color(0.9, 0.6, 0.2, 1)
    contactforce: Vector = _color(0.7, 0.9, 0.9, 1)
    contactfriction: Vector = _color(0.9, 0.8, 0.4, 1)
    contacttorque: Vector = _color(0.9, 0.7, 0.9, 1)
    contactgap: Vector = _color(0.5, 0.8, 0.9, 1)
    rangefinder: Vector = _color(1, 1, 0.1, 1)
    constraint: Vector = _color(0.9, 0, 0, 1)
    slidercrank: Vector = _color(0.5, 0.3, 0.8, 1)
    crankbroken: Vector = _color(0.9, 0, 0, 1)
    frustum: Vector = _color(1, 1, 0, 0.2)
    bv: Vector = _color(0, 1, 0, 0.5)
    bvactive: Vector = _color(1, 0, 0, 0.5)


@dataclass(eq=False)
class Visual(Element):
    """The section, which has no attributes of its own."""


PARTS: dict[str, type[Element]] = {
    "global": Global,
    "quality": Quality,
    "headlight": Headlight,
    "map": Map,
    "scale": Scale,
    "rgba": Rgba,
}

allow(Visual, PARTS, once=PARTS)

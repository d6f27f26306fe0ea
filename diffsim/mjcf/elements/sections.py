"""The sections of a file and what each may contain: the shape of MJCF, in one place.

Source: the table at the top of MuJoCo 3.8.1's xml_native_reader.cc.
"""

from dataclasses import dataclass

from diffsim.mjcf.attributes import Text
from diffsim.mjcf.elements import sensor as sensors
from diffsim.mjcf.elements.actuator import Actuator
from diffsim.mjcf.elements.asset import HField, Material, Mesh, ModelAsset, Skin, Texture
from diffsim.mjcf.elements.body import Body, Camera, Frame, FreeJoint, Geom, Inertial, Joint, Light, Replicate, Site
from diffsim.mjcf.elements.constraints import TAGS as EQUALITIES
from diffsim.mjcf.elements.constraints import Equality, Exclude, Pair
from diffsim.mjcf.elements.dcmotor import DCMotor
from diffsim.mjcf.elements.deformable import Attach, Composite, Config, Flex, FlexComp, Plugin, PluginDeclaration
from diffsim.mjcf.elements.settings import Compiler, CustomText, Key, Numeric, Option, Size, Statistic, Tuple
from diffsim.mjcf.elements.shortcuts import (
    Adhesion,
    Cylinder,
    Damper,
    IntVelocity,
    Motor,
    Muscle,
    PluginActuator,
    Position,
    Velocity,
)
from diffsim.mjcf.elements.tendon import Fixed, Spatial, Tendon
from diffsim.mjcf.elements.visual import Visual
from diffsim.mjcf.schema import Element, allow


@dataclass(eq=False)
class Mujoco(Element):
    """The whole model."""

    model: str = Text("MuJoCo Model")


@dataclass(eq=False)
class Default(Element):
    """A default class; the outermost one is `main`."""

    class_: str | None = Text()


@dataclass(eq=False)
class Section(Element):
    """A section without attributes of its own."""


@dataclass(eq=False)
class AssetSection(Section):
    """Assets."""


@dataclass(eq=False)
class ContactSection(Section):
    """Pairs and exclusions."""


@dataclass(eq=False)
class EqualitySection(Section):
    """Equality constraints."""


@dataclass(eq=False)
class TendonSection(Section):
    """Tendons."""


@dataclass(eq=False)
class ActuatorSection(Section):
    """Actuators."""


@dataclass(eq=False)
class SensorSection(Section):
    """Sensors."""


@dataclass(eq=False)
class KeyframeSection(Section):
    """Keyframes."""


@dataclass(eq=False)
class CustomSection(Section):
    """Custom fields."""


@dataclass(eq=False)
class DeformableSection(Section):
    """Flexes and skins."""


@dataclass(eq=False)
class ExtensionSection(Section):
    """Plugins."""


# sections whose elements follow what they refer to, in the order in which MuJoCo copies them
REFERRING = (ContactSection, TendonSection, EqualitySection, ActuatorSection, SensorSection, CustomSection)

SHORTCUTS: dict[str, type[Element]] = {
    "general": Actuator,
    "motor": Motor,
    "position": Position,
    "velocity": Velocity,
    "intvelocity": IntVelocity,
    "damper": Damper,
    "cylinder": Cylinder,
    "muscle": Muscle,
    "adhesion": Adhesion,
    "dcmotor": DCMotor,
}
DEFAULTS: dict[str, type[Element]] = {
    "mesh": Mesh,
    "material": Material,
    "joint": Joint,
    "geom": Geom,
    "site": Site,
    "camera": Camera,
    "light": Light,
    "pair": Pair,
    "equality": Equality,
    "tendon": Tendon,
    **SHORTCUTS,
}
SECTIONS: dict[str, type[Element]] = {
    "compiler": Compiler,
    "option": Option,
    "size": Size,
    "visual": Visual,
    "statistic": Statistic,
    "default": Default,
    "extension": ExtensionSection,
    "custom": CustomSection,
    "asset": AssetSection,
    "worldbody": Body,
    "contact": ContactSection,
    "deformable": DeformableSection,
    "equality": EqualitySection,
    "tendon": TendonSection,
    "actuator": ActuatorSection,
    "sensor": SensorSection,
    "keyframe": KeyframeSection,
}
TREE: dict[str, type[Element]] = {
    "body": Body,
    "frame": Frame,
    "replicate": Replicate,
    "inertial": Inertial,
    "joint": Joint,
    "freejoint": FreeJoint,
    "geom": Geom,
    "site": Site,
    "camera": Camera,
    "light": Light,
    "attach": Attach,
    "plugin": Plugin,
    "composite": Composite,
    "flexcomp": FlexComp,
}
DEFORMABLES: dict[str, type[Element]] = {"flex": Flex, "skin": Skin}

allow(Mujoco, SECTIONS)
allow(Default, DEFAULTS, once=DEFAULTS)
allow(Default, {"default": Default})
allow(Body, TREE, once=["inertial"])
allow(Frame, TREE, once=["inertial"])
allow(Replicate, TREE, once=["inertial"])
allow(Geom, {"plugin": Plugin})
allow(Mesh, {"plugin": Plugin})
allow(
    AssetSection,
    {
        "mesh": Mesh,
        "hfield": HField,
        "skin": Skin,
        "texture": Texture,
        "material": Material,
        "model": ModelAsset,
    },
)
allow(ContactSection, {"pair": Pair, "exclude": Exclude})
allow(EqualitySection, EQUALITIES)
allow(TendonSection, {"spatial": Spatial, "fixed": Fixed})
allow(ActuatorSection, {**SHORTCUTS, "plugin": PluginActuator})
allow(PluginActuator, {"config": Config})
allow(SensorSection, sensors.TAGS)
allow(sensors.PluginSensor, {"config": Config})
allow(KeyframeSection, {"key": Key})
allow(CustomSection, {"numeric": Numeric, "text": CustomText, "tuple": Tuple})
allow(DeformableSection, DEFORMABLES)
allow(ExtensionSection, {"plugin": PluginDeclaration})

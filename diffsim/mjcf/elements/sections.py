"""The sections of a file and what each may contain: the structure of MJCF, in one place.

Source: the table at the top of MuJoCo 3.8.1's xml_native_reader.cc.
"""

from dataclasses import dataclass
from typing import Any

from diffsim.base.errors import absent
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
from diffsim.mjcf.schema import Element, allow, own_names


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
    """A section without attributes; its tag says what it may contain (CONTENTS)."""

    def __call__(self, name: str) -> Any:
        """The element with a name, in any section with this tag: `spec.actuator("knee")`.

        Raises:
          KeyError: there is no such element; the message has the nearest name.
        """
        sections = self.parent.children if self.parent else [self]
        inside = [each for section in sections if section.tag == self.tag for each in section.walk()]
        named = {known: each for each in reversed(inside) for _, known in own_names(each)}
        if name in named:
            return named[name]
        message, hint = absent(self.tag, name, named)
        raise KeyError(f"{message}; {hint}" if hint else message)


# sections whose elements are copied together with what they refer to, in the order in which MuJoCo copies them
REFERRING = ("contact", "tendon", "equality", "actuator", "sensor", "custom")

# actuators: the general one and its shortcuts
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
# what a default class may contain
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
# sections, in the order in which a model is written
SECTIONS: dict[str, type[Element]] = {
    "compiler": Compiler,
    "option": Option,
    "size": Size,
    "visual": Visual,
    "statistic": Statistic,
    "default": Default,
    "extension": Section,
    "custom": Section,
    "asset": Section,
    "worldbody": Body,
    "contact": Section,
    "deformable": Section,
    "equality": Section,
    "tendon": Section,
    "actuator": Section,
    "sensor": Section,
    "keyframe": Section,
}
# elements of the kinematic tree: what a body, a frame or a replicate may contain
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
# what each section without attributes may contain
CONTENTS: dict[str, dict[str, type[Element]]] = {
    "extension": {"plugin": PluginDeclaration},
    "custom": {"numeric": Numeric, "text": CustomText, "tuple": Tuple},
    "asset": {
        "mesh": Mesh,
        "hfield": HField,
        "skin": Skin,
        "texture": Texture,
        "material": Material,
        "model": ModelAsset,
    },
    "contact": {"pair": Pair, "exclude": Exclude},
    "deformable": {"flex": Flex, "skin": Skin},
    "equality": EQUALITIES,
    "tendon": {"spatial": Spatial, "fixed": Fixed},
    "actuator": {**SHORTCUTS, "plugin": PluginActuator},
    "sensor": sensors.TAGS,
    "keyframe": {"key": Key},
}

allow(Mujoco, SECTIONS)
allow(Default, DEFAULTS, once=DEFAULTS)
allow(Default, {"default": Default})
allow(Body, TREE, once=["inertial"])
allow(Frame, TREE, once=["inertial"])
allow(Replicate, TREE, once=["inertial"])
allow(Geom, {"plugin": Plugin})
allow(Mesh, {"plugin": Plugin})
allow(PluginActuator, {"config": Config})
allow(sensors.PluginSensor, {"config": Config})
for section_tag, contents in CONTENTS.items():
    allow(Section, contents, section=section_tag)

"""Deformables, the macros that make them, plugins and attachments.

Elements that diffsim does not support are declared in full, so that a model that uses them gets all messages at once.
Source: MuJoCo XML reference, "deformable", "composite", "flexcomp", "attach", "extension".
"""

from dataclasses import dataclass
from typing import Any

from diffsim.base.enums import Elastic2D, FlexSelf
from diffsim.base.errors import Problems
from diffsim.mjcf.attributes import (
    GRAY,
    ORIENTATIONS,
    File,
    Flag,
    Integer,
    Integers,
    IntVector,
    Keyword,
    Name,
    Oriented,
    Real,
    Reals,
    Reference,
    Solimp,
    Solref,
    Text,
    Vector,
    keywords,
)
from diffsim.mjcf.elements.asset import Mesh
from diffsim.mjcf.elements.body import Body, Geom, Joint, Site
from diffsim.mjcf.schema import Element, allow

# the message for plugins of other names
NO_PLUGIN = "this plugin is not supported here"
# prefix of the names of MuJoCo's own plugins
MUJOCO = "mujoco."
# prefix of the names of MuJoCo's distance fields; the compiler knows which exist
FIELDS = "mujoco.sdf."
# name of the plugin that gives a body the elastic forces of a cable
CABLE = "mujoco.elasticity.cable"
# MuJoCo's other plugins that diffsim implements
FUNCTIONS = ("mujoco.pid", "mujoco.sensor.touch_grid", CABLE)


def _words(text: str) -> dict[str, str]:
    """The words of a text as the words of a keyword attribute, which are their own values."""
    return {word: word for word in text.split()}


COMPOSITES = _words("particle grid rope loop cable cloth")
FLEXCOMPS = _words("grid box cylinder ellipsoid square disc circle mesh gmsh direct")
FLEX_DOFS = _words("full radial trilinear quadratic 2d")
# order of the polynomials that interpolate a flex
ORDERS = {"trilinear": 1, "quadratic": 2}
SELF_COLLISIONS = keywords(FlexSelf)
ELASTIC_2D = {
    "none": Elastic2D.NONE,
    "bend": Elastic2D.BEND,
    "stretch": Elastic2D.STRETCH,
    "both": Elastic2D.BEND | Elastic2D.STRETCH,
}
EDGE_EQUALITIES = _words("false true vert strain")


@dataclass(eq=False)
class Plugin(Element):
    """The use of a plugin: a named instance, or a plugin with settings of its own.

    On a geom or mesh it is a distance field, on a body a cable or a passive force of the user.
    """

    plugin: str | None = Text()
    instance: str | None = Reference("plugin")

    def check(self, problems: Problems) -> None:
        cable = isinstance(self.parent, Composite) and self.plugin in (None, CABLE)
        if not cable and not isinstance(self.parent, Geom | Mesh | Body):
            problems.unsupported(self, NO_PLUGIN)


@dataclass(eq=False)
class PluginDeclaration(Element):
    """A plugin that the model needs: one of MuJoCo's that diffsim implements, or a plugin of the user."""

    plugin: str = Text(required=True)

    def check(self, problems: Problems) -> None:
        known = self.plugin is None or self.plugin in FUNCTIONS or self.plugin.startswith(FIELDS)
        if not known and self.plugin.startswith(MUJOCO):
            problems.unsupported(self, NO_PLUGIN)


@dataclass(eq=False)
class PluginInstance(Element):
    """A named instance of a plugin."""

    name: str = Name("plugin", required=True)


@dataclass(eq=False)
class Config(Element):
    """One setting of a plugin instance."""

    key: str = Text(required=True)
    value: str = Text(required=True)


@dataclass(eq=False)
class Attach(Element):
    """Inserts a body or frame of another model, or everything in its world; see macros/attach.py."""

    alternatives = (("body", "frame"),)

    model: str = Reference("model", required=True)
    body: str | None = Text()
    # new in MuJoCo 3.11
    frame: str | None = Text()
    prefix: str = Text(required=True)


@dataclass(eq=False)
class Composite(Element):
    """A macro that makes a cable; see macros/cable.py."""

    prefix: str | None = Text()
    type: str = Keyword(COMPOSITES, required=True)
    count: IntVector | None = Integers(3, fewest=1)
    offset: Vector | None = Reals(3)
    vertex: Vector | None = Reals(None)
    initial: str | None = Text()
    curve: str | None = Text()
    size: Vector | None = Reals(3, fewest=1)
    quat: Vector | None = Reals(4)


# attributes that the macro chooses for each part of a composite
_PLACED = frozenset({"name", "class_", "pos", "fromto", *ORIENTATIONS})


@dataclass(eq=False)
class CompositeJoint(Joint):
    """The joints of a composite."""

    omits = frozenset(
        {
            "name",
            "class_",
            "pos",
            "springdamper",
            "actuatorfrclimited",
            "actuatorfrcrange",
            "actuatorgravcomp",
            "ref",
            "springref",
            "user",
        }
    )

    kind: str = Keyword({"main": "main"}, required=True)
    solreffix: Vector = Solref()
    solimpfix: Vector = Solimp()


@dataclass(eq=False)
class CompositeGeom(Geom):
    """The geoms of a composite."""

    omits = _PLACED | {"hfield", "mesh", "fitscale", "shellinertia", "fluidshape", "fluidcoef", "user"}


@dataclass(eq=False)
class CompositeSite(Site):
    """The sites of a composite."""

    omits = _PLACED | {"type", "user"}


@dataclass(eq=False)
class CompositeSkin(Element):
    """The skin of a composite."""

    texcoord: bool = Flag(False)
    material: str | None = Reference("material")
    group: int = Integer(0, least=0, most=5)
    rgba: Vector = Reals(4, GRAY)
    inflate: float = Real(0)
    subgrid: int = Integer(0)


@dataclass(eq=False)
class FlexComp(Oriented):
    """A macro that makes a flex and its bodies; see macros/flexcomp.py."""

    name: str = Name("flex", required=True)
    type: str = Keyword(FLEXCOMPS, "grid")
    group: int = Integer(0)
    dim: int = Integer(2)
    dof: str = Keyword(FLEX_DOFS, "full")
    count: IntVector = Integers(3, (10, 10, 10))
    cellcount: IntVector = Integers(3, (1, 1, 1))
    spacing: Vector = Reals(3, (0.02, 0.02, 0.02))
    radius: float = Real(0.005)
    rigid: bool = Flag(False)
    mass: float = Real(1)
    inertiabox: float = Real(0.005)
    scale: Vector = Reals(3, (1, 1, 1))
    file_: str | None = File("meshdir")
    point: Vector | None = Reals(None)
    element: IntVector | None = Integers(None)
    texcoord: Vector | None = Reals(None)
    material: str | None = Reference("material")
    rgba: Vector = Reals(4, GRAY)
    flatskin: bool = Flag(False)
    pos: Vector = Reals(3, (0, 0, 0))
    origin: Vector | None = Reals(3)


@dataclass(eq=False)
class FlexEdge(Element):
    """Stiffness and damping of the edges of a flex."""

    stiffness: float = Real(0)
    damping: float = Real(0)


@dataclass(eq=False)
class FlexCompEdge(FlexEdge):
    """Stiffness and damping of the edges of a flexcomp, or equality constraints for them."""

    equality: str = Keyword(EDGE_EQUALITIES, "false")
    solref: Vector = Solref()
    solimp: Vector = Solimp()


@dataclass(eq=False)
class FlexElasticity(Element):
    """The material of a flex."""

    young: float = Real(0)
    poisson: float = Real(0)
    damping: float = Real(0)
    thickness: float = Real(-1)
    elastic2d: Elastic2D = Keyword(ELASTIC_2D, "none")


@dataclass(eq=False)
class FlexContact(Element):
    """Contact parameters of a flex."""

    contype: int = Integer(1)
    conaffinity: int = Integer(1)
    condim: int = Integer(3)
    priority: int = Integer(0)
    friction: Vector = Reals(3, (1, 0.005, 0.0001), fewest=1)
    solmix: float = Real(1)
    solref: Vector = Solref()
    solimp: Vector = Solimp()
    margin: float = Real(0)
    gap: float = Real(0)
    internal: bool = Flag(False)
    selfcollide: FlexSelf = Keyword(SELF_COLLISIONS, "auto")
    activelayers: int = Integer(1)
    passive: bool = Flag(False)


@dataclass(eq=False)
class FlexPin(Element):
    """Vertices of a flexcomp that are fixed to its parent body."""

    id: IntVector | None = Integers(None)
    range: IntVector | None = Integers(None)
    grid: IntVector | None = Integers(None)
    gridrange: IntVector | None = Integers(None)


@dataclass(eq=False)
class Flex(Element):
    """A deformable line, surface or volume.

    Two fields have no attribute in MJCF and come only from flexcomps: `place`, the positions of pinned nodes in the
    frames of their bodies, and `empty`, the cells that contain no part of the mesh (if None, the compiler finds them).
    """

    place: Any = None
    empty: Any = None

    name: str | None = Name("flex")
    group: int = Integer(0)
    dim: int = Integer(2)
    radius: float = Real(0.005)
    material: str | None = Reference("material")
    rgba: Vector = Reals(4, GRAY)
    flatskin: bool = Flag(False)
    body: str = Text(required=True)
    vertex: Vector | None = Reals(None)
    element: IntVector = Integers(None, required=True)
    texcoord: Vector | None = Reals(None)
    elemtexcoord: IntVector | None = Integers(None)
    node: str | None = Text()
    cellcount: IntVector = Integers(3, (1, 1, 1))
    dof: str = Keyword(FLEX_DOFS, "full")


_PLUGIN: dict[str, type[Element]] = {"plugin": Plugin}

allow(Plugin, {"config": Config})
allow(PluginDeclaration, {"instance": PluginInstance})
allow(PluginInstance, {"config": Config})
allow(Composite, {"joint": CompositeJoint, **_PLUGIN})
allow(
    Composite,
    {"skin": CompositeSkin, "geom": CompositeGeom, "site": CompositeSite},
    once=["skin", "geom", "site"],
)
allow(
    FlexComp,
    {"edge": FlexCompEdge, "elasticity": FlexElasticity, "contact": FlexContact},
    once=["edge", "elasticity", "contact"],
)
allow(FlexComp, {"pin": FlexPin, **_PLUGIN})
allow(
    Flex,
    {"contact": FlexContact, "edge": FlexEdge, "elasticity": FlexElasticity},
    once=["contact", "edge", "elasticity"],
)

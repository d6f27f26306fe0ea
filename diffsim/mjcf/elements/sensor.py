"""Sensors: one class for each set of attributes, with one or more tags (TAGS).

A class also declares which attributes name the sensor's object and its reference frame (`attached_to`, `relative_to`),
and how other attributes are stored in sensor_intprm (`parameters`).

Source: MuJoCo XML reference, "sensor".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from diffsim.base.enums import ConDataField, DataType, ObjType, RayDataField, SensorType, Stage
from diffsim.base.errors import Problems
from diffsim.mjcf.attributes import Integer, Keyword, Keywords, Name, Real, Reals, Reference, Text, Vector, keywords
from diffsim.mjcf.elements.settings import OBJECTS
from diffsim.mjcf.schema import Element

# the type of an object and its name; NOTHING if it is not given
End = tuple[ObjType, str | None]
NOTHING: End = (ObjType.UNKNOWN, None)
# attributes that can name an object, each with the object's type or with the attribute that gives the type
Naming = tuple[tuple[str, ObjType | str], ...]

# values of mjtInterp
INTERPOLATIONS = {"zoh": 0, "linear": 1, "cubic": 2}
# how contacts are selected if there are more than `num` (mjtConReduce)
REDUCTIONS = {"none": 0, "mindist": 1, "maxforce": 2, "netforce": 3}
# objects that have a frame
FRAMES = {word: OBJECTS[word] for word in ("body", "xbody", "geom", "site", "camera")}
STAGES = keywords(Stage)
DATATYPES = keywords(DataType)
CONTACT_DATA = {field.name.lower(): field for field in ConDataField}
RAY_DATA = {field.name.lower(): field for field in RayDataField}

# tags whose name in SensorType is not the tag in capitals
_OTHER_NAMES = {
    "jointactuatorfrc": SensorType.JOINTACTFRC,
    "tendonactuatorfrc": SensorType.TENDONACTFRC,
    "distance": SensorType.GEOMDIST,
    "normal": SensorType.GEOMNORMAL,
    "fromto": SensorType.GEOMFROMTO,
}


@dataclass(eq=False)
class Sensor(Element):
    """Attributes that all sensors have. cutoff 0 means no clamping; noise is stored but never applied."""

    attached_to: ClassVar[Naming] = ()
    relative_to: ClassVar[Naming] = ()

    name: str | None = Name("sensor")
    nsample: int = Integer(0)
    interp: int = Keyword(INTERPOLATIONS, "zoh")
    delay: float = Real(0)
    interval: Vector = Reals(2, (0, 0), fewest=1)
    cutoff: float = Real(0)
    noise: float = Real(0)
    user: Vector | None = Reals(None)

    @property
    def type(self) -> SensorType:
        """The type of the sensor."""
        return _OTHER_NAMES.get(self.tag) or SensorType[self.tag.upper()]

    @property
    def ends(self) -> tuple[End, End]:
        """The sensor's object and its reference frame, each from the first attribute that names it."""
        return self._end(self.attached_to), self._end(self.relative_to)

    def _end(self, naming: Naming) -> End:
        """The object that the first of some attributes names."""
        for name, kind in naming:
            objtype = getattr(self, kind) if isinstance(kind, str) else kind
            if objtype is not None and getattr(self, name) is not None:
                return objtype, getattr(self, name)
        return NOTHING

    @property
    def parameters(self) -> tuple[int, int, int]:
        """sensor_intprm: the mask of data fields and, for contacts, the reduction and the number of slots."""
        return 0, 0, 0


def _mask(fields: Sequence[int]) -> int:
    """A bit mask of data fields."""
    return sum(1 << field for field in fields)


def _present(element: Element, names: Sequence[str]) -> list[str]:
    """The attributes among `names` that an element has."""
    return [name for name in names if getattr(element, name) is not None]


def _exactly_one(element: Element, problems: Problems, *names: str) -> None:
    """Notes an error if an element has none of these attributes; `alternatives` finds two of them."""
    present = _present(element, names)
    if not present:
        problems.add(element, "give exactly one of " + ", ".join(names))


@dataclass(eq=False)
class SiteSensor(Sensor):
    """A sensor mounted at a site."""

    attached_to = (("site", ObjType.SITE),)

    site: str = Reference("site", required=True)


@dataclass(eq=False)
class CamProjection(SiteSensor):
    """The position of a site in a camera's image, in pixels."""

    relative_to = (("camera", ObjType.CAMERA),)

    camera: str = Reference("camera", required=True)


@dataclass(eq=False)
class Rangefinder(Sensor):
    """Rays from a site (along its z axis) or through the pixels of a camera."""

    attached_to = (("site", ObjType.SITE), ("camera", ObjType.CAMERA))
    alternatives = (("site", "camera"),)

    site: str | None = Reference("site")
    camera: str | None = Reference("camera")
    data: tuple[RayDataField, ...] = Keywords(RAY_DATA, ("dist",), ordered=True)

    def check(self, problems: Problems) -> None:
        _exactly_one(self, problems, "site", "camera")

    @property
    def parameters(self) -> tuple[int, int, int]:
        """sensor_intprm: see `Sensor.parameters`."""
        return _mask(self.data), 0, 0


@dataclass(eq=False)
class JointSensor(Sensor):
    """A sensor of a joint."""

    attached_to = (("joint", ObjType.JOINT),)

    joint: str = Reference("joint", required=True)


@dataclass(eq=False)
class TendonSensor(Sensor):
    """A sensor of a tendon."""

    attached_to = (("tendon", ObjType.TENDON),)

    tendon: str = Reference("tendon", required=True)


@dataclass(eq=False)
class ActuatorSensor(Sensor):
    """A sensor of an actuator."""

    attached_to = (("actuator", ObjType.ACTUATOR),)

    actuator: str = Reference("actuator", required=True)


@dataclass(eq=False)
class FrameAcceleration(Sensor):
    """Acceleration of an object's frame. `body` is the inertial frame, `xbody` the body's own."""

    attached_to = (("objname", "objtype"),)

    objtype: ObjType = Keyword(FRAMES, required=True)
    objname: str = Reference(by="objtype", required=True)


@dataclass(eq=False)
class FrameSensor(FrameAcceleration):
    """Pose or velocity of an object's frame, in the world or relative to a reference frame."""

    relative_to = (("refname", "reftype"),)

    reftype: ObjType | None = Keyword(FRAMES)
    refname: str | None = Reference(by="reftype")

    def check(self, problems: Problems) -> None:
        _together(self, problems, "reftype", "refname")


def _together(element: Element, problems: Problems, first: str, second: str) -> None:
    """Notes an error if an element has only one of two attributes."""
    present = _present(element, (first, second))
    if len(present) == 1:
        missing = second if present[0] == first else first
        problems.add(element, f"attribute '{present[0]}' needs attribute '{missing}' as well")


@dataclass(eq=False)
class SubtreeSensor(Sensor):
    """A sensor of a body and its descendants."""

    attached_to = (("body", ObjType.BODY),)

    body: str = Reference("body", required=True)


@dataclass(eq=False)
class InsideSite(FrameAcceleration):
    """Whether an object is inside the volume of a site."""

    relative_to = (("site", ObjType.SITE),)

    site: str = Reference("site", required=True)


@dataclass(eq=False)
class GeomDistance(Sensor):
    """Distance, normal or segment between two geoms, or all geoms of two bodies."""

    attached_to = (("body1", ObjType.BODY), ("geom1", ObjType.GEOM))
    relative_to = (("body2", ObjType.BODY), ("geom2", ObjType.GEOM))
    alternatives = (("geom1", "body1"), ("geom2", "body2"))

    geom1: str | None = Reference("geom")
    geom2: str | None = Reference("geom")
    body1: str | None = Reference("body")
    body2: str | None = Reference("body")

    def check(self, problems: Problems) -> None:
        _exactly_one(self, problems, "geom1", "body1")
        _exactly_one(self, problems, "geom2", "body2")


@dataclass(eq=False)
class ContactSensor(Sensor):
    """Contacts that match one or two criteria; it has `num` slots, each with the fields of `data`."""

    attached_to = (
        ("site", ObjType.SITE),
        ("body1", ObjType.BODY),
        ("subtree1", ObjType.XBODY),
        ("geom1", ObjType.GEOM),
    )
    relative_to = (("body2", ObjType.BODY), ("subtree2", ObjType.XBODY), ("geom2", ObjType.GEOM))
    alternatives = (("geom1", "body1", "subtree1", "site"), ("geom2", "body2", "subtree2"))

    geom1: str | None = Reference("geom")
    geom2: str | None = Reference("geom")
    body1: str | None = Reference("body")
    body2: str | None = Reference("body")
    subtree1: str | None = Reference("body")
    subtree2: str | None = Reference("body")
    site: str | None = Reference("site")
    num: int = Integer(1, least=1)
    data: tuple[ConDataField, ...] = Keywords(CONTACT_DATA, ("found",), ordered=True)
    reduce: int = Keyword(REDUCTIONS, "none")

    @property
    def parameters(self) -> tuple[int, int, int]:
        """sensor_intprm: see `Sensor.parameters`."""
        return _mask(self.data), self.reduce, self.num


@dataclass(eq=False)
class Tactile(Sensor):
    """Pressure and sliding speed at the vertices of a mesh."""

    # the mesh whose vertices are the taxels, and the geom to which it is fixed
    attached_to = (("mesh", ObjType.MESH),)
    relative_to = (("geom", ObjType.GEOM),)
    omits = frozenset({"cutoff", "noise"})

    geom: str = Reference("geom", required=True)
    mesh: str = Reference("mesh", required=True)


@dataclass(eq=False)
class UserSensor(Sensor):
    """A sensor that a function of the user computes."""

    attached_to = (("objname", "objtype"),)
    omits = frozenset({"nsample", "interp", "delay", "interval"})

    objtype: ObjType | None = Keyword(OBJECTS)
    objname: str | None = Reference(by="objtype")
    datatype: DataType = Keyword(DATATYPES, "real")
    needstage: Stage = Keyword(STAGES, "acc")
    dim: int = Integer(required=True, least=0)

    def check(self, problems: Problems) -> None:
        _together(self, problems, "objtype", "objname")


@dataclass(eq=False)
class PluginSensor(Sensor):
    """A sensor that a plugin computes."""

    attached_to = (("objname", "objtype"),)
    relative_to = (("refname", "reftype"),)
    omits = frozenset({"nsample", "interp", "delay", "interval", "noise"})

    plugin: str | None = Text()
    instance: str | None = Reference("plugin")
    objtype: ObjType | None = Keyword(OBJECTS)
    objname: str | None = Reference(by="objtype")
    reftype: ObjType | None = Keyword(OBJECTS)
    refname: str | None = Reference(by="reftype")

    def check(self, problems: Problems) -> None:
        _together(self, problems, "objtype", "objname")
        _together(self, problems, "reftype", "refname")


# the tags of each class
_FAMILIES: dict[type[Sensor], str] = {
    SiteSensor: "touch accelerometer velocimeter gyro force torque magnetometer",
    CamProjection: "camprojection",
    Rangefinder: "rangefinder",
    JointSensor: "jointpos jointvel jointactuatorfrc ballquat ballangvel jointlimitpos jointlimitvel jointlimitfrc",
    TendonSensor: "tendonpos tendonvel tendonactuatorfrc tendonlimitpos tendonlimitvel tendonlimitfrc",
    ActuatorSensor: "actuatorpos actuatorvel actuatorfrc",
    FrameSensor: "framepos framequat framexaxis frameyaxis framezaxis framelinvel frameangvel",
    FrameAcceleration: "framelinacc frameangacc",
    SubtreeSensor: "subtreecom subtreelinvel subtreeangmom",
    InsideSite: "insidesite",
    GeomDistance: "distance normal fromto",
    ContactSensor: "contact",
    Sensor: "e_potential e_kinetic clock",
    Tactile: "tactile",
    UserSensor: "user",
    PluginSensor: "plugin",
}
TAGS: dict[str, type[Element]] = {tag: cls for cls, tags in _FAMILIES.items() for tag in tags.split()}

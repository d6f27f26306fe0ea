"""Sensors: one class for each set of attributes, many tags for each class (TAGS).

A class also says which of its attributes name the sensor's object and its reference frame (`ends`), and what
becomes of the rest (`parameters`).

Source: MuJoCo XML reference, "sensor".
"""

from collections.abc import Sequence
from dataclasses import dataclass

from diffsim.base.enums import ConDataField, DataType, ObjType, RayDataField, SensorType, Stage
from diffsim.base.errors import Problems
from diffsim.mjcf.attributes import Integer, Keyword, Keywords, Name, Real, Reals, Reference, Text, Vector
from diffsim.mjcf.elements.settings import OBJECTS
from diffsim.mjcf.schema import Element

# the type of an object, and its name where it is given
End = tuple[ObjType, str | None]
NOTHING: End = (ObjType.UNKNOWN, None)

INTERPOLATIONS = {"zoh": 0, "linear": 1, "cubic": 2}
REDUCTIONS = {"none": 0, "mindist": 1, "maxforce": 2, "netforce": 3}
FRAMES = {word: OBJECTS[word] for word in ("body", "xbody", "geom", "site", "camera")}
STAGES = {"none": Stage.NONE, "pos": Stage.POS, "vel": Stage.VEL, "acc": Stage.ACC}
DATATYPES = {
    "real": DataType.REAL,
    "positive": DataType.POSITIVE,
    "axis": DataType.AXIS,
    "quaternion": DataType.QUATERNION,
}
CONTACT_DATA = {field.name.lower(): field for field in ConDataField}
RAY_DATA = {field.name.lower(): field for field in RayDataField}

# tags whose name in SensorType is not simply the tag in capitals
_OTHER_NAMES = {
    "jointactuatorfrc": SensorType.JOINTACTFRC,
    "tendonactuatorfrc": SensorType.TENDONACTFRC,
    "distance": SensorType.GEOMDIST,
    "normal": SensorType.GEOMNORMAL,
    "fromto": SensorType.GEOMFROMTO,
}


@dataclass(eq=False)
class Sensor(Element):
    """What every sensor has. cutoff 0: no clamping. noise is stored and never applied."""

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
        """Which sensor it is."""
        return _OTHER_NAMES.get(self.tag) or SensorType[self.tag.upper()]

    @property
    def ends(self) -> tuple[End, End]:
        """What the sensor is attached to, and its reference frame."""
        return NOTHING, NOTHING

    @property
    def parameters(self) -> tuple[int, int, int]:
        """sensor_intprm: the mask of data fields, and for contacts the reduction and the number of slots."""
        return 0, 0, 0


def _either(element: Element, **names: ObjType) -> End:
    """The first of the named attributes that is given, with the type of object that it names."""
    present = _present(element, tuple(names))
    return (names[present[0]], getattr(element, present[0])) if present else NOTHING


def _mask(fields: Sequence[int]) -> int:
    """One bit for each of some data fields."""
    return sum(1 << field for field in fields)


def _present(element: Element, names: Sequence[str]) -> list[str]:
    return [name for name in names if getattr(element, name) is not None]


def _exactly_one(element: Element, problems: Problems, *names: str) -> None:
    present = _present(element, names)
    if not present:
        problems.add(element, "give exactly one of " + ", ".join(names))


@dataclass(eq=False)
class SiteSensor(Sensor):
    """A sensor mounted at a site."""

    site: str = Reference("site", required=True)

    @property
    def ends(self) -> tuple[End, End]:
        """What the sensor is attached to, and its reference frame."""
        return (ObjType.SITE, self.site), NOTHING


@dataclass(eq=False)
class CamProjection(SiteSensor):
    """Where a site is seen in a camera's image, in pixels."""

    camera: str = Reference("camera", required=True)

    @property
    def ends(self) -> tuple[End, End]:
        """What the sensor is attached to, and its reference frame."""
        return (ObjType.SITE, self.site), (ObjType.CAMERA, self.camera)


@dataclass(eq=False)
class Rangefinder(Sensor):
    """Rays from a site (along its z axis) or through the pixels of a camera."""

    alternatives = (("site", "camera"),)

    site: str | None = Reference("site")
    camera: str | None = Reference("camera")
    data: tuple[RayDataField, ...] = Keywords(RAY_DATA, ("dist",), ordered=True)

    def check(self, problems: Problems) -> None:
        _exactly_one(self, problems, "site", "camera")

    @property
    def ends(self) -> tuple[End, End]:
        """What the sensor is attached to, and its reference frame."""
        return _either(self, site=ObjType.SITE, camera=ObjType.CAMERA), NOTHING

    @property
    def parameters(self) -> tuple[int, int, int]:
        """sensor_intprm: see `Sensor.parameters`."""
        return _mask(self.data), 0, 0


@dataclass(eq=False)
class JointSensor(Sensor):
    """A sensor of a joint."""

    joint: str = Reference("joint", required=True)

    @property
    def ends(self) -> tuple[End, End]:
        """What the sensor is attached to, and its reference frame."""
        return (ObjType.JOINT, self.joint), NOTHING


@dataclass(eq=False)
class TendonSensor(Sensor):
    """A sensor of a tendon."""

    tendon: str = Reference("tendon", required=True)

    @property
    def ends(self) -> tuple[End, End]:
        """What the sensor is attached to, and its reference frame."""
        return (ObjType.TENDON, self.tendon), NOTHING


@dataclass(eq=False)
class ActuatorSensor(Sensor):
    """A sensor of an actuator."""

    actuator: str = Reference("actuator", required=True)

    @property
    def ends(self) -> tuple[End, End]:
        """What the sensor is attached to, and its reference frame."""
        return (ObjType.ACTUATOR, self.actuator), NOTHING


@dataclass(eq=False)
class FrameAcceleration(Sensor):
    """Acceleration of an object's frame. `body` is the inertial frame, `xbody` the body's own."""

    objtype: ObjType = Keyword(FRAMES, required=True)
    objname: str = Reference(by="objtype", required=True)

    @property
    def ends(self) -> tuple[End, End]:
        """What the sensor is attached to, and its reference frame."""
        return (self.objtype, self.objname), NOTHING


@dataclass(eq=False)
class FrameSensor(FrameAcceleration):
    """Pose or velocity of an object's frame, in the world or relative to a reference frame."""

    reftype: ObjType | None = Keyword(FRAMES)
    refname: str | None = Reference(by="reftype")

    def check(self, problems: Problems) -> None:
        _together(self, problems, "reftype", "refname")

    @property
    def ends(self) -> tuple[End, End]:
        """What the sensor is attached to, and its reference frame."""
        return (self.objtype, self.objname), NOTHING if self.reftype is None else (self.reftype, self.refname)


def _together(element: Element, problems: Problems, first: str, second: str) -> None:
    present = _present(element, (first, second))
    if len(present) == 1:
        missing = second if present[0] == first else first
        problems.add(element, f"attribute '{present[0]}' is given but '{missing}' is missing")


@dataclass(eq=False)
class SubtreeSensor(Sensor):
    """A sensor of a body and everything that hangs on it."""

    body: str = Reference("body", required=True)

    @property
    def ends(self) -> tuple[End, End]:
        """What the sensor is attached to, and its reference frame."""
        return (ObjType.BODY, self.body), NOTHING


@dataclass(eq=False)
class InsideSite(FrameAcceleration):
    """Whether an object is inside the volume of a site."""

    site: str = Reference("site", required=True)

    @property
    def ends(self) -> tuple[End, End]:
        """What the sensor is attached to, and its reference frame."""
        return (self.objtype, self.objname), (ObjType.SITE, self.site)


@dataclass(eq=False)
class GeomDistance(Sensor):
    """Distance, normal or segment between two geoms, or all geoms of two bodies."""

    alternatives = (("geom1", "body1"), ("geom2", "body2"))

    geom1: str | None = Reference("geom")
    geom2: str | None = Reference("geom")
    body1: str | None = Reference("body")
    body2: str | None = Reference("body")

    def check(self, problems: Problems) -> None:
        _exactly_one(self, problems, "geom1", "body1")
        _exactly_one(self, problems, "geom2", "body2")

    @property
    def ends(self) -> tuple[End, End]:
        """What the sensor is attached to, and its reference frame."""
        return (
            _either(self, body1=ObjType.BODY, geom1=ObjType.GEOM),
            _either(self, body2=ObjType.BODY, geom2=ObjType.GEOM),
        )


@dataclass(eq=False)
class ContactSensor(Sensor):
    """Contacts that match one or two criteria: `num` slots of the fields of `data`."""

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
    def ends(self) -> tuple[End, End]:
        """What the sensor is attached to, and its reference frame."""
        return (
            _either(self, site=ObjType.SITE, body1=ObjType.BODY, subtree1=ObjType.XBODY, geom1=ObjType.GEOM),
            _either(self, body2=ObjType.BODY, subtree2=ObjType.XBODY, geom2=ObjType.GEOM),
        )

    @property
    def parameters(self) -> tuple[int, int, int]:
        """sensor_intprm: see `Sensor.parameters`."""
        return _mask(self.data), self.reduce, self.num


@dataclass(eq=False)
class Tactile(Sensor):
    """Pressure and sliding speed at the vertices of a mesh."""

    omits = frozenset({"cutoff", "noise"})

    geom: str = Reference("geom", required=True)
    mesh: str = Reference("mesh", required=True)

    @property
    def ends(self) -> tuple[End, End]:
        """The mesh whose vertices feel, and the geom that it is fixed to."""
        return (ObjType.MESH, self.mesh), (ObjType.GEOM, self.geom)


@dataclass(eq=False)
class UserSensor(Sensor):
    """A sensor that the user computes."""

    omits = frozenset({"nsample", "interp", "delay", "interval"})

    objtype: ObjType | None = Keyword(OBJECTS)
    objname: str | None = Reference(by="objtype")
    datatype: DataType = Keyword(DATATYPES, "real")
    needstage: Stage = Keyword(STAGES, "acc")
    dim: int = Integer(required=True, least=0)

    def check(self, problems: Problems) -> None:
        _together(self, problems, "objtype", "objname")

    @property
    def ends(self) -> tuple[End, End]:
        """What the sensor is attached to, and its reference frame."""
        return NOTHING if self.objtype is None else (self.objtype, self.objname), NOTHING


@dataclass(eq=False)
class PluginSensor(Sensor):
    """A sensor that a plugin computes."""

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

    @property
    def ends(self) -> tuple[End, End]:
        """What the sensor is attached to, and its reference frame."""
        first = NOTHING if self.objtype is None else (self.objtype, self.objname)
        return first, NOTHING if self.reftype is None else (self.reftype, self.refname)


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

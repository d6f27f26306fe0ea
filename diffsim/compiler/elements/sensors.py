"""Sensors: what they are attached to, how many numbers they give, when they can be computed. One row each.

`ATTACHED` says per element class where the sensor's object and its reference frame are named.
Source: MuJoCo XML reference, sensor; mjtSensor's comments in mjmodel.h.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from diffsim.compiler.draft import OBJECT_KIND, Draft, Node
from diffsim.enums import ConDataField, DataType, GeomType, JointType, ObjType, RayDataField, SensorType, Stage
from diffsim.mjcf.elements import sensor as elements
from diffsim.mjcf.elements.settings import MOST_NUMBERS
from diffsim.mjcf.schema import Element

# object type and name
End = tuple[ObjType, str | None]
NOTHING: End = (ObjType.UNKNOWN, None)

CONTACT_WIDTH = dict(zip(ConDataField, (1, 3, 3, 1, 3, 3, 3), strict=True))
RAY_WIDTH = dict(zip(RayDataField, (1, 3, 3, 3, 3, 1), strict=True))


def _either(e: Any, **names: ObjType) -> End:
    """The first of the named attributes that is given."""
    return next(((kind, getattr(e, name)) for name, kind in names.items() if getattr(e, name) is not None), NOTHING)


ATTACHED: dict[type[Element], Callable[[Any], tuple[End, End]]] = {
    elements.CamProjection: lambda e: ((ObjType.SITE, e.site), (ObjType.CAMERA, e.camera)),
    elements.SiteSensor: lambda e: ((ObjType.SITE, e.site), NOTHING),
    elements.Rangefinder: lambda e: (_either(e, site=ObjType.SITE, camera=ObjType.CAMERA), NOTHING),
    elements.JointSensor: lambda e: ((ObjType.JOINT, e.joint), NOTHING),
    elements.TendonSensor: lambda e: ((ObjType.TENDON, e.tendon), NOTHING),
    elements.ActuatorSensor: lambda e: ((ObjType.ACTUATOR, e.actuator), NOTHING),
    elements.InsideSite: lambda e: ((e.objtype, e.objname), (ObjType.SITE, e.site)),
    elements.FrameSensor: lambda e: (
        (e.objtype, e.objname),
        (e.reftype, e.refname) if e.reftype is not None else NOTHING,
    ),
    elements.FrameAcceleration: lambda e: ((e.objtype, e.objname), NOTHING),
    elements.SubtreeSensor: lambda e: ((ObjType.BODY, e.body), NOTHING),
    elements.GeomDistance: lambda e: (
        _either(e, body1=ObjType.BODY, geom1=ObjType.GEOM),
        _either(e, body2=ObjType.BODY, geom2=ObjType.GEOM),
    ),
    elements.ContactSensor: lambda e: (
        _either(e, site=ObjType.SITE, body1=ObjType.BODY, subtree1=ObjType.XBODY, geom1=ObjType.GEOM),
        _either(e, body2=ObjType.BODY, subtree2=ObjType.XBODY, geom2=ObjType.GEOM),
    ),
    elements.UserSensor: lambda e: ((e.objtype, e.objname) if e.objtype is not None else NOTHING, NOTHING),
    elements.Sensor: lambda e: (NOTHING, NOTHING),
}

S = SensorType
THREE_AXES = (
    S.ACCELEROMETER, S.VELOCIMETER, S.GYRO, S.FORCE, S.TORQUE, S.MAGNETOMETER, S.BALLANGVEL, S.FRAMEPOS, S.FRAMEXAXIS,
    S.FRAMEYAXIS, S.FRAMEZAXIS, S.FRAMELINVEL, S.FRAMEANGVEL, S.FRAMELINACC, S.FRAMEANGACC, S.SUBTREECOM,
    S.SUBTREELINVEL, S.SUBTREEANGMOM, S.GEOMNORMAL,
)  # fmt: skip
WIDTH: dict[SensorType, int] = {
    **dict.fromkeys(THREE_AXES, 3),
    S.CAMPROJECTION: 2,
    S.GEOMFROMTO: 6,
    S.BALLQUAT: 4,
    S.FRAMEQUAT: 4,
}

ACCELERATION_STAGE = {
    S.TOUCH, S.ACCELEROMETER, S.FORCE, S.TORQUE, S.ACTUATORFRC, S.JOINTACTFRC, S.TENDONACTFRC, S.JOINTLIMITFRC,
    S.TENDONLIMITFRC, S.FRAMELINACC, S.FRAMEANGACC, S.CONTACT, S.TACTILE,
}  # fmt: skip
VELOCITY_STAGE = {
    S.VELOCIMETER, S.GYRO, S.JOINTVEL, S.TENDONVEL, S.ACTUATORVEL, S.BALLANGVEL, S.JOINTLIMITVEL, S.TENDONLIMITVEL,
    S.FRAMELINVEL, S.FRAMEANGVEL, S.SUBTREELINVEL, S.SUBTREEANGMOM,
}  # fmt: skip
DATATYPE = {
    **dict.fromkeys((S.TOUCH, S.INSIDESITE), DataType.POSITIVE),
    **dict.fromkeys((S.FRAMEXAXIS, S.FRAMEYAXIS, S.FRAMEZAXIS, S.GEOMNORMAL), DataType.AXIS),
    **dict.fromkeys((S.BALLQUAT, S.FRAMEQUAT), DataType.QUATERNION),
}
SCALAR_JOINT = {S.JOINTPOS, S.JOINTVEL, S.JOINTACTFRC}
BALL_JOINT = {S.BALLQUAT, S.BALLANGVEL}
LIMITED_JOINT = {S.JOINTLIMITPOS, S.JOINTLIMITVEL, S.JOINTLIMITFRC}
LIMITED_TENDON = {S.TENDONLIMITPOS, S.TENDONLIMITVEL, S.TENDONLIMITFRC}


def sensor_rows(draft: Draft) -> None:
    """Rows of all sensors. The history of a sensor follows that of the actuators."""
    address, history = 0, draft.fields["nhistory"]
    for node in draft.nodes["sensor"]:
        node.row = _sensor_row(draft, node)
        dim, samples = node.row["sensor_dim"], max(0, node.e.nsample)
        node.row["sensor_adr"] = address
        node.row["sensor_historyadr"] = history if samples else -1
        address += dim
        history += 2 + samples + samples * dim if samples else 0
        if max(address, history) > MOST_NUMBERS:
            draft.problems.add(node.source, f"all sensors together give more than {MOST_NUMBERS} numbers")
            break
    draft.problems.raise_if_any()
    draft.fields.update(nsensordata=address, nhistory=history)
    draft.columns("sensor")


def _sensor_row(draft: Draft, node: Node) -> dict:
    e, kind = node.e, SensorType(node.e.type)
    user = kind == S.USER
    (objtype, objname), (reftype, refname) = _ends(e)
    target = draft.find(node.source, OBJECT_KIND[objtype], objname) if objname else None
    reference = draft.find(node.source, OBJECT_KIND[reftype], refname) if refname else None
    datatype = e.datatype if user else DATATYPE.get(kind, DataType.REAL)
    _check(draft, node, kind, datatype, target, reference)
    return {
        "sensor_type": kind,
        "sensor_datatype": datatype,
        "sensor_needstage": e.needstage if user else _stage(kind),
        "sensor_objtype": objtype,
        "sensor_objid": target.id if target else -1,
        "sensor_reftype": reftype,
        "sensor_refid": reference.id if reference else -1,
        "sensor_intprm": _intprm(e),
        "sensor_dim": _dim(e, kind, target),
        "sensor_cutoff": e.cutoff,
        "sensor_noise": e.noise,
        "sensor_delay": e.delay,
        "sensor_interval": e.interval,
        "sensor_history": (e.nsample, e.interp),
    }


def _ends(e: elements.Sensor) -> tuple[End, End]:
    """What the sensor is attached to, and its reference frame."""
    return next(attached for cls, attached in ATTACHED.items() if isinstance(e, cls))(e)


def _stage(kind: SensorType) -> Stage:
    """The earliest stage of the pipeline after which the sensor can be computed."""
    return Stage.ACC if kind in ACCELERATION_STAGE else Stage.VEL if kind in VELOCITY_STAGE else Stage.POS


def _intprm(e: Any) -> tuple[int, int, int]:
    """sensor_intprm: the mask of data fields, and for contacts the reduction and the number of slots."""
    if isinstance(e, elements.ContactSensor):
        return sum(1 << field for field in e.data), e.reduce, e.num
    if isinstance(e, elements.Rangefinder):
        return sum(1 << field for field in e.data), 0, 0
    return 0, 0, 0


def _dim(e: Any, kind: SensorType, target: Node | None) -> int:
    """How many numbers the sensor gives."""
    if isinstance(e, elements.ContactSensor):
        return e.num * sum(CONTACT_WIDTH[field] for field in e.data)
    if isinstance(e, elements.Rangefinder):
        rays = int(np.prod(target.e.resolution)) if target is not None and e.camera is not None else 1
        return rays * sum(RAY_WIDTH[field] for field in e.data)
    return int(e.dim) if kind == S.USER else WIDTH.get(kind, 1)


def _check(
    draft: Draft, node: Node, kind: SensorType, datatype: DataType, target: Node | None, reference: Node | None
) -> None:
    """What a sensor demands of its object and of its own numbers."""
    joint = JointType(target.e.type) if target is not None and isinstance(node.e, elements.JointSensor) else None
    scalar = joint in (JointType.HINGE, JointType.SLIDE)
    user = kind == S.USER
    shape = {DataType.AXIS: 3, DataType.QUATERNION: 4}.get(datatype)
    fixed = (datatype == DataType.AXIS and kind != S.GEOMNORMAL) or datatype == DataType.QUATERNION
    e: Any = node.e
    start, phase = e.interval
    distance = isinstance(node.e, elements.GeomDistance)
    rules = [
        (kind in SCALAR_JOINT and target is not None and not scalar, "the joint must be a hinge or slide"),
        (kind in BALL_JOINT and target is not None and joint != JointType.BALL, "the joint must be a ball joint"),
        (kind in LIMITED_JOINT and target and not target.row["jnt_limited"], "the joint must be limited"),
        (kind in LIMITED_TENDON and target and not target.row["tendon_limited"], "the tendon must be limited"),
        (distance and target is reference, "the two objects must be different"),
        (distance and _hfield(target, reference), "height fields have no distance"),
        (user and shape is not None and e.dim != shape, f"datatype {datatype.name.lower()} requires dim {shape}"),
        (e.cutoff > 0 and fixed, "cutoff cannot be applied to an axis or quaternion"),
        (e.cutoff < 0, "cutoff cannot be negative"),
        (e.noise < 0, "noise cannot be negative"),
        (start < 0 or phase > 0 or (start > 0 and phase <= -start), "interval takes a period and -period < phase <= 0"),
        (e.delay > 0 and e.nsample <= 0, "delay needs a history buffer: give nsample"),
    ]
    for wrong, message in rules:
        if wrong:
            draft.problems.add(node.source, message)


def _hfield(*nodes: Node | None) -> bool:
    return any(node is not None and getattr(node.e, "type", None) is GeomType.HFIELD for node in nodes)

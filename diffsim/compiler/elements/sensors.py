"""Sensors: their objects, addresses, sizes and history buffers.

`diffsim/sensor/table.py` has the properties of each type of sensor: its stage, the number and kind of its values, and
what it requires of its object. The element classes declare which attributes name the object. Source: MuJoCo XML
reference, sensor; mjtSensor's comments in mjmodel.h.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from diffsim.base.enums import ConDataField, DataType, GeomType, ObjType, SensorType, Stage
from diffsim.base.joints import is_ball, is_scalar
from diffsim.compiler.draft import Draft, Node
from diffsim.compiler.elements.plugins import plugin_dim
from diffsim.mjcf.elements import sensor as elements
from diffsim.mjcf.elements.settings import MOST_NUMBERS
from diffsim.sensor.table import SENSORS, Demand, Sensor
from diffsim.types.history import buffer_size
from diffsim.types.kinds import OBJECT_KIND

# the field that says whether an object of this type is limited
LIMITED = {ObjType.JOINT: "jnt_limited", ObjType.TENDON: "tendon_limited"}

# reductions of contact sensors that depend on forces
FORCE_REDUCTIONS = [elements.REDUCTIONS[name] for name in ("maxforce", "netforce")]


def sensor_rows(draft: Draft) -> None:
    """Fills the rows of all sensors. Their history buffers follow the buffers of the actuators."""
    address = 0
    history = draft.fields["nhistory"]
    for node in draft.nodes["sensor"]:
        node.row = _sensor_row(draft, node)
        dim = node.row["sensor_dim"]
        size = int(buffer_size(node.e.nsample, node.row["sensor_dim"]))
        node.row["sensor_adr"] = address
        node.row["sensor_historyadr"] = history if size else -1
        address = address + dim
        history = history + size
        if max(address, history) > MOST_NUMBERS:
            draft.problems.add(
                node.source, f"all sensors together have more than {MOST_NUMBERS} values", "make the model smaller"
            )
            break
    draft.problems.raise_if_any()
    draft.fields.update(nsensordata=address, nhistory=history)
    draft.columns("sensor")


def _sensor_row(draft: Draft, node: Node) -> dict:
    """The fields of a sensor, except for its addresses; notes errors."""
    e = node.e
    sensor = SENSORS[node.e.type]
    (objtype, objname), (reftype, refname) = e.ends
    target = draft.find(node.source, OBJECT_KIND[objtype], objname) if objname else None
    reference = draft.find(node.source, OBJECT_KIND[reftype], refname) if refname else None
    datatype = e.datatype if sensor.datatype is None else sensor.datatype
    for message in (*_object_problems(node, target, reference), *_number_problems(e, sensor, datatype)):
        draft.problems.add(node.source, message)
    return {
        "sensor_type": e.type,
        "sensor_datatype": datatype,
        "sensor_needstage": _stage(draft, e, sensor),
        "sensor_objtype": objtype,
        "sensor_objid": target.id if target else -1,
        "sensor_reftype": reftype,
        "sensor_refid": reference.id if reference else -1,
        "sensor_intprm": e.parameters,
        "sensor_dim": _dim(draft, node, sensor, target),
        "sensor_cutoff": e.cutoff,
        "sensor_noise": e.noise,
        "sensor_delay": e.delay,
        "sensor_interval": e.interval,
        "sensor_history": (e.nsample, e.interp),
    }


def _stage(draft: Draft, e: Any, sensor: Sensor) -> Stage:
    """The stage of the pipeline after which the sensor can be read."""
    if sensor.stage is None:
        return e.needstage
    if draft.spec.follows("sensor_stages"):
        if e.type == SensorType.TACTILE:
            return Stage.VEL
        if isinstance(e, elements.ContactSensor):
            forces = {ConDataField.FORCE, ConDataField.TORQUE} & set(e.data)
            return Stage.ACC if forces or e.reduce in FORCE_REDUCTIONS else Stage.POS
    return sensor.stage


def _dim(draft: Draft, node: Node, sensor: Sensor, target: Node | None) -> int:
    """The number of values that the sensor returns."""
    e = node.e
    if e.type == SensorType.PLUGIN:
        return plugin_dim(draft, node)
    if callable(sensor.dim):
        return sensor.dim(draft.fields, target.id) if target else 0
    if sensor.fields is None:
        return int(e.dim if sensor.dim is None else sensor.dim)
    # one ray for each pixel of a camera, one slot for each contact
    rays = int(np.prod(target.e.resolution)) if target is not None and e.ends[0][0] == ObjType.CAMERA else 1
    return rays * getattr(e, "num", 1) * sum(sensor.fields[field] for field in e.data)


def _object_problems(node: Node, target: Node | None, reference: Node | None) -> Iterator[str]:
    """Yields errors in the object of a sensor, or in the two objects whose distance it measures."""
    demands = SENSORS[node.e.type].demands
    objtype = node.e.ends[0][0]
    if target is not None:
        if demands == Demand.SCALAR_JOINT and not is_scalar(target.e.type):
            yield "the joint must be a hinge or slide"
        if demands == Demand.BALL_JOINT and not is_ball(target.e.type):
            yield "the joint must be a ball joint"
        if demands == Demand.LIMIT and not target.row[LIMITED[objtype]]:
            yield f"the {objtype.name.lower()} must be limited"
    if isinstance(node.e, elements.GeomDistance):
        if target is reference:
            yield "the two objects must be different"
        if any(end is not None and getattr(end.e, "type", None) is GeomType.HFIELD for end in (target, reference)):
            yield "the distance to a height field is not supported"


def _number_problems(e: Any, sensor: Sensor, datatype: DataType) -> Iterator[str]:
    """Yields errors in the sensor's own attributes."""
    dim = {DataType.AXIS: 3, DataType.QUATERNION: 4}.get(datatype)
    start, phase = e.interval
    if sensor.datatype is None and dim is not None and e.dim != dim:
        yield f"attribute 'dim': datatype {datatype.name.lower()} needs dim {dim}"
    if e.cutoff > 0 and dim is not None and sensor.clipped:
        yield "attribute 'cutoff': does not apply to an axis or quaternion"
    if e.cutoff < 0:
        yield "attribute 'cutoff': cannot be negative"
    if e.noise < 0:
        yield "attribute 'noise': cannot be negative"
    if start < 0 or phase > 0 or (start > 0 and phase <= -start):
        yield "attribute 'interval': needs a period and a phase with -period < phase <= 0"
    if e.delay > 0 and e.nsample <= 0:
        yield "attribute 'delay' needs a history buffer: set nsample"

"""All kinds of sensors, one row each: when it can be read, how many numbers of what kind, and its function.

To add a sensor, write an element class with its tag in `mjcf/elements/sensor.py` (or add its tag to a class that fits),
`function(readings, group) -> (n, dim)` in a file of this package, and a row here. Reading, compiling and evaluating
follow from these three.
"""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from jax import Array

from diffsim.base.enums import DataType, ObjType, SensorType, Stage
from diffsim.sensor import camera, contact, distance, frame, joint, readings, tactile, touch_grid
from diffsim.sensor.distance import unsupported_distance
from diffsim.sensor.readings import Group, Readings
from diffsim.types import Topology


class Demand(enum.Enum):
    """What a sensor requires of the joint or tendon that it is attached to."""

    NOTHING = enum.auto()
    SCALAR_JOINT = enum.auto()
    BALL_JOINT = enum.auto()
    LIMIT = enum.auto()


POS = Stage.POS
VEL = Stage.VEL
ACC = Stage.ACC
SCALAR_JOINT = Demand.SCALAR_JOINT
BALL_JOINT = Demand.BALL_JOINT
LIMIT = Demand.LIMIT


@dataclass(frozen=True)
class Sensor:
    """One kind of sensor.

    Attributes:
      stage: the stage of the pipeline after which it can be read; None if the element's `needstage` gives it.
      dim: the number of its readings, or (compiled fields, id of its object) -> this number; None if the element's
        `dim` or `fields` give it.
      function: the readings of the sensors of a group, (n, dim).
      datatype: the type of the readings; None if the element's `datatype` gives it.
      fields: for sensors with data fields, the width of each; they come once per ray or contact slot.
      demands: what the sensor requires of its joint or tendon.
      variant: splits the sensors of this type further, so that each group is homogeneous.
      clipped: whether cutoff clamps the readings; otherwise it is a largest distance, or has no effect.
      refusal: (topology, sensor) -> why a sensor of this type cannot be evaluated, empty if it can.
    """

    stage: Stage | None
    dim: int | Callable[[Mapping, int], int] | None
    function: Callable[[Readings, Group], Array]
    datatype: DataType | None = DataType.REAL
    fields: Mapping | None = None
    demands: Demand = Demand.NOTHING
    variant: Callable[[Topology, int], int] = lambda topology, sensor: 0
    clipped: bool = True
    refusal: Callable[[Topology, int], str] = lambda topology, sensor: ""


def _site_type(topology: Topology, sensor: int) -> int:
    return int(topology.site_type[topology.sensor_objid[sensor]])


def _reference_site_type(topology: Topology, sensor: int) -> int:
    return int(topology.site_type[topology.sensor_refid[sensor]])


def _contact_site_type(topology: Topology, sensor: int) -> int:
    return _site_type(topology, sensor) if topology.sensor_objtype[sensor] == ObjType.SITE else -1


def _joint_type(topology: Topology, sensor: int) -> int:
    return int(topology.jnt_type[topology.sensor_objid[sensor]])


SENSORS: dict[SensorType, Sensor] = {
    SensorType.TOUCH: Sensor(ACC, 1, contact.touch, DataType.POSITIVE, variant=_site_type),
    SensorType.ACCELEROMETER: Sensor(ACC, 3, frame.accelerometer),
    SensorType.VELOCIMETER: Sensor(VEL, 3, frame.velocimeter),
    SensorType.GYRO: Sensor(VEL, 3, frame.gyro),
    SensorType.FORCE: Sensor(ACC, 3, frame.force),
    SensorType.TORQUE: Sensor(ACC, 3, frame.torque),
    SensorType.MAGNETOMETER: Sensor(POS, 3, frame.magnetometer),
    SensorType.RANGEFINDER: Sensor(POS, None, camera.rangefinder, fields=camera.WIDTH),
    SensorType.CAMPROJECTION: Sensor(POS, 2, camera.camera_projection),
    SensorType.JOINTPOS: Sensor(POS, 1, joint.joint_position, demands=SCALAR_JOINT),
    SensorType.JOINTVEL: Sensor(VEL, 1, joint.joint_velocity, demands=SCALAR_JOINT),
    SensorType.TENDONPOS: Sensor(POS, 1, joint.tendon_position),
    SensorType.TENDONVEL: Sensor(VEL, 1, joint.tendon_velocity),
    SensorType.ACTUATORPOS: Sensor(POS, 1, joint.actuator_position),
    SensorType.ACTUATORVEL: Sensor(VEL, 1, joint.actuator_velocity),
    SensorType.ACTUATORFRC: Sensor(ACC, 1, joint.actuator_force),
    SensorType.JOINTACTFRC: Sensor(ACC, 1, joint.joint_actuator_force, demands=SCALAR_JOINT),
    SensorType.TENDONACTFRC: Sensor(ACC, 1, joint.tendon_actuator_force),
    SensorType.BALLQUAT: Sensor(POS, 4, joint.ball_quaternion, DataType.QUATERNION, demands=BALL_JOINT),
    SensorType.BALLANGVEL: Sensor(VEL, 3, joint.ball_velocity, demands=BALL_JOINT),
    SensorType.JOINTLIMITPOS: Sensor(POS, 1, joint.joint_limit_position, demands=LIMIT, variant=_joint_type),
    SensorType.JOINTLIMITVEL: Sensor(VEL, 1, joint.joint_limit_velocity, demands=LIMIT, variant=_joint_type),
    SensorType.JOINTLIMITFRC: Sensor(ACC, 1, joint.joint_limit_force, demands=LIMIT, variant=_joint_type),
    SensorType.TENDONLIMITPOS: Sensor(POS, 1, joint.tendon_limit_position, demands=LIMIT),
    SensorType.TENDONLIMITVEL: Sensor(VEL, 1, joint.tendon_limit_velocity, demands=LIMIT),
    SensorType.TENDONLIMITFRC: Sensor(ACC, 1, joint.tendon_limit_force, demands=LIMIT),
    SensorType.FRAMEPOS: Sensor(POS, 3, frame.frame_position),
    SensorType.FRAMEQUAT: Sensor(POS, 4, frame.frame_quaternion, DataType.QUATERNION),
    SensorType.FRAMEXAXIS: Sensor(POS, 3, frame.frame_x_axis, DataType.AXIS),
    SensorType.FRAMEYAXIS: Sensor(POS, 3, frame.frame_y_axis, DataType.AXIS),
    SensorType.FRAMEZAXIS: Sensor(POS, 3, frame.frame_z_axis, DataType.AXIS),
    SensorType.FRAMELINVEL: Sensor(VEL, 3, frame.frame_linear_velocity),
    SensorType.FRAMEANGVEL: Sensor(VEL, 3, frame.frame_angular_velocity),
    SensorType.FRAMELINACC: Sensor(ACC, 3, frame.frame_linear_acceleration),
    SensorType.FRAMEANGACC: Sensor(ACC, 3, frame.frame_angular_acceleration),
    SensorType.SUBTREECOM: Sensor(POS, 3, readings.subtree_centre),
    SensorType.SUBTREELINVEL: Sensor(VEL, 3, readings.subtree_velocity),
    SensorType.SUBTREEANGMOM: Sensor(VEL, 3, readings.subtree_momentum),
    SensorType.INSIDESITE: Sensor(POS, 1, contact.inside_site, DataType.POSITIVE, variant=_reference_site_type),
    SensorType.GEOMDIST: Sensor(POS, 1, distance.geom_distance, refusal=unsupported_distance),
    SensorType.GEOMNORMAL: Sensor(
        POS, 3, distance.geom_normal, DataType.AXIS, clipped=False, refusal=unsupported_distance
    ),
    SensorType.GEOMFROMTO: Sensor(POS, 6, distance.geom_segment, clipped=False, refusal=unsupported_distance),
    SensorType.CONTACT: Sensor(
        ACC, None, contact.contact, fields=contact.WIDTH, variant=_contact_site_type, clipped=False
    ),
    SensorType.E_POTENTIAL: Sensor(POS, 1, readings.potential_energy),
    SensorType.E_KINETIC: Sensor(POS, 1, readings.kinetic_energy),
    SensorType.CLOCK: Sensor(POS, 1, readings.clock),
    SensorType.USER: Sensor(None, None, readings.user_sensor, datatype=None),
    SensorType.TACTILE: Sensor(
        ACC,
        lambda fields, mesh: tactile.CHANNELS * int(fields["mesh_vertnum"][mesh]),
        tactile.tactile,
        variant=lambda topology, sensor: int(topology.sensor_objid[sensor]),
        refusal=tactile.unsupported_tactile,
    ),
    SensorType.PLUGIN: Sensor(ACC, None, touch_grid.plugin_sensor, variant=lambda t, k: int(t.sensor_plugin[k])),
}

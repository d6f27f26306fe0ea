"""All kinds of sensors, one row each: when it can be read, its size, what its numbers are, and its function.

To add a sensor, write `function(readings, group) -> (n, dim)` and a row here; the compiler, the evaluation and the
tests read this table. `UNSUPPORTED` says why the other types are refused. Before a model is first evaluated, a user may
give `SENSORS[SensorType.USER]` a row of their own.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax

from diffsim.enums import DataType, ObjType, SensorType, Stage
from diffsim.sensor import (
    actuator,
    camera,
    contact,
    distance,
    frame,
    imu,
    inside,
    joint,
    limit,
    rangefinder,
    subtree,
    touch,
    world,
)
from diffsim.sensor.readings import Group, Readings
from diffsim.types import Topology

Array = jax.Array

POS, VEL, ACC = Stage.POS, Stage.VEL, Stage.ACC


@dataclass(frozen=True)
class Sensor:
    """One kind of sensor.

    `dim` is the number of outputs, None where the sensor's own parameters decide. `variant` splits the sensors of
    this type further, so that each group is homogeneous. `clipped` says whether cutoff limits the value.
    """

    stage: Stage
    dim: int | None
    function: Callable[[Readings, Group], Array]
    datatype: DataType = DataType.REAL
    variant: Callable[[Topology, int], int] = lambda topology, sensor: 0
    clipped: bool = True


def _site_type(topology: Topology, sensor: int) -> int:
    return int(topology.site_type[topology.sensor_objid[sensor]])


def _reference_site_type(topology: Topology, sensor: int) -> int:
    return int(topology.site_type[topology.sensor_refid[sensor]])


def _contact_site_type(topology: Topology, sensor: int) -> int:
    return _site_type(topology, sensor) if topology.sensor_objtype[sensor] == ObjType.SITE else -1


def _joint_type(topology: Topology, sensor: int) -> int:
    return int(topology.jnt_type[topology.sensor_objid[sensor]])


SENSORS: dict[SensorType, Sensor] = {
    SensorType.TOUCH: Sensor(ACC, 1, touch.touch, DataType.POSITIVE, _site_type),
    SensorType.ACCELEROMETER: Sensor(ACC, 3, imu.accelerometer),
    SensorType.VELOCIMETER: Sensor(VEL, 3, imu.velocimeter),
    SensorType.GYRO: Sensor(VEL, 3, imu.gyro),
    SensorType.FORCE: Sensor(ACC, 3, imu.force),
    SensorType.TORQUE: Sensor(ACC, 3, imu.torque),
    SensorType.MAGNETOMETER: Sensor(POS, 3, imu.magnetometer),
    SensorType.RANGEFINDER: Sensor(POS, None, rangefinder.rangefinder),
    SensorType.CAMPROJECTION: Sensor(POS, 2, camera.camera_projection),
    SensorType.JOINTPOS: Sensor(POS, 1, joint.joint_position),
    SensorType.JOINTVEL: Sensor(VEL, 1, joint.joint_velocity),
    SensorType.TENDONPOS: Sensor(POS, 1, actuator.tendon_position),
    SensorType.TENDONVEL: Sensor(VEL, 1, actuator.tendon_velocity),
    SensorType.ACTUATORPOS: Sensor(POS, 1, actuator.actuator_position),
    SensorType.ACTUATORVEL: Sensor(VEL, 1, actuator.actuator_velocity),
    SensorType.ACTUATORFRC: Sensor(ACC, 1, actuator.actuator_force),
    SensorType.JOINTACTFRC: Sensor(ACC, 1, joint.joint_actuator_force),
    SensorType.TENDONACTFRC: Sensor(ACC, 1, actuator.tendon_actuator_force),
    SensorType.BALLQUAT: Sensor(POS, 4, joint.ball_quaternion, DataType.QUATERNION),
    SensorType.BALLANGVEL: Sensor(VEL, 3, joint.ball_velocity),
    SensorType.JOINTLIMITPOS: Sensor(POS, 1, limit.joint_limit_position, variant=_joint_type),
    SensorType.JOINTLIMITVEL: Sensor(VEL, 1, limit.joint_limit_velocity, variant=_joint_type),
    SensorType.JOINTLIMITFRC: Sensor(ACC, 1, limit.joint_limit_force, variant=_joint_type),
    SensorType.TENDONLIMITPOS: Sensor(POS, 1, limit.tendon_limit_position),
    SensorType.TENDONLIMITVEL: Sensor(VEL, 1, limit.tendon_limit_velocity),
    SensorType.TENDONLIMITFRC: Sensor(ACC, 1, limit.tendon_limit_force),
    SensorType.FRAMEPOS: Sensor(POS, 3, frame.frame_position),
    SensorType.FRAMEQUAT: Sensor(POS, 4, frame.frame_quaternion, DataType.QUATERNION),
    SensorType.FRAMEXAXIS: Sensor(POS, 3, frame.frame_x_axis, DataType.AXIS),
    SensorType.FRAMEYAXIS: Sensor(POS, 3, frame.frame_y_axis, DataType.AXIS),
    SensorType.FRAMEZAXIS: Sensor(POS, 3, frame.frame_z_axis, DataType.AXIS),
    SensorType.FRAMELINVEL: Sensor(VEL, 3, frame.frame_linear_velocity),
    SensorType.FRAMEANGVEL: Sensor(VEL, 3, frame.frame_angular_velocity),
    SensorType.FRAMELINACC: Sensor(ACC, 3, frame.frame_linear_acceleration),
    SensorType.FRAMEANGACC: Sensor(ACC, 3, frame.frame_angular_acceleration),
    SensorType.SUBTREECOM: Sensor(POS, 3, subtree.subtree_centre),
    SensorType.SUBTREELINVEL: Sensor(VEL, 3, subtree.subtree_velocity),
    SensorType.SUBTREEANGMOM: Sensor(VEL, 3, subtree.subtree_momentum),
    SensorType.INSIDESITE: Sensor(POS, 1, inside.inside_site, DataType.POSITIVE, _reference_site_type),
    SensorType.GEOMDIST: Sensor(POS, 1, distance.geom_distance),
    SensorType.GEOMNORMAL: Sensor(POS, 3, distance.geom_normal, DataType.AXIS),
    SensorType.GEOMFROMTO: Sensor(POS, 6, distance.geom_segment, clipped=False),
    SensorType.CONTACT: Sensor(ACC, None, contact.contact, variant=_contact_site_type, clipped=False),
    SensorType.E_POTENTIAL: Sensor(POS, 1, world.potential_energy),
    SensorType.E_KINETIC: Sensor(POS, 1, world.kinetic_energy),
    SensorType.CLOCK: Sensor(POS, 1, world.clock),
}

UNSUPPORTED: dict[SensorType, str] = {
    SensorType.TACTILE: "tactile sensors need signed distance fields, which diffsim has not",
    SensorType.PLUGIN: "plugins are compiled C code",
    SensorType.USER: "user sensors are C callbacks; compute the value from Data in Python instead",
}

"""Sensors: what a robot could measure, read off the finished Data (MuJoCo documentation, "Sensors").

The last stage of the pipeline. `table.py` lists all kinds, one row each; a kind's function lives in the file of its
family. A new sensor is its element in `mjcf/elements/sensor.py`, one function and one row.
"""

from diffsim.sensor.evaluate import read_sensors as read_sensors
from diffsim.sensor.evaluate import unsupported_sensors as unsupported_sensors
from diffsim.sensor.readings import Group as Group
from diffsim.sensor.readings import Readings as Readings

"""Draws a robot on a checkered floor: the robot is attached to a stage, and the floor is put under its feet.

`python examples/portrait.py --robot ROBOT.xml` draws any MJCF or URDF file; the default is the quadruped of
`diffsim.envs`. `--azimuth 150` turns the camera. `--hide 0` also hides group 0, where some packages keep collision
geoms. Prints the seconds per picture after compilation.
"""

import pathlib

import numpy as np
from common import arguments, result, timed

import diffsim
from diffsim import envs, mjcf, viz
from diffsim.base.enums import GeomType

STAGE = """
<mujoco>
  <asset>
    <texture type="skybox" builtin="gradient" rgb1="0.55 0.66 0.78" rgb2="0.93 0.95 0.97" width="64" height="64"/>
    <texture name="tiles" type="2d" builtin="checker" rgb1="0.78 0.81 0.85" rgb2="0.68 0.72 0.78" width="8" height="8"/>
    <material name="tiles" texture="tiles" texrepeat="1 1" texuniform="true"/>
  </asset>
  <worldbody><geom name="stage" type="plane" size="0 0 0.1" material="tiles" group="2"/></worldbody>
</mujoco>
"""


def on_stage(path: pathlib.Path) -> diffsim.Model:
    """The robot in a world with a floor; unchanged if it has a floor already."""
    robot = mjcf.read(path, allow_outside=True)
    if any(geom.type == GeomType.PLANE for geom in robot.geoms):
        return diffsim.compile(robot)
    stage = mjcf.read(STAGE)
    stage.attach(robot)
    return diffsim.compile(stage)


def floor_under(model: diffsim.Model, state: diffsim.State) -> diffsim.Model:
    """The model with its stage moved to the height of the robot's lowest point."""
    poses = viz.poses_of(model, state)
    stage = model.geom("stage").id
    middle, half = np.split(np.asarray(model.geom_aabb), 2, axis=1)
    up = np.asarray(poses.geom_xmat)[:, 2]
    bottoms = np.asarray(poses.geom_xpos)[:, 2] + np.sum(up * middle, axis=1) - np.sum(np.abs(up) * half, axis=1)
    lowest = [geom for geom in np.argsort(bottoms) if geom != stage][:4]
    height = min(float(diffsim.geom_distance(model, poses, stage, int(geom)).distance) for geom in lowest)
    return model.replace(geom_pos=model.geom_pos.at[stage, 2].add(height))


def main() -> None:
    """Builds the stage and draws the robot."""
    quadruped = envs.MODELS / "quadruped.xml"
    options = arguments(__doc__, robot=quadruped, width=480, azimuth=140, elevation=-12, distance=200, hide=5)
    model = on_stage(options.robot)
    state = diffsim.make_state(model, 0 if model.nkey else None)
    if model.geom(0).name == "stage":
        model = floor_under(model, state)
    places = np.asarray(viz.poses_of(model, state).geom_xpos)[model.topology.geom_bodyid > 0]
    low, high = places.min(axis=0), places.max(axis=0)
    # the option is a percentage of the robot's largest side
    distance = options.distance / 100 * float(np.max(high - low))
    view = viz.View(tuple((low + high) / 2), distance, options.azimuth, options.elevation)
    look = {"size": (options.width, options.width * 2 // 3), "samples": 3, "hidden_groups": (3, 4, options.hide)}
    viz.render(model, state, view, **look)
    image, seconds = timed(lambda: viz.render(model, state, view, **look))
    viz.save(options.out / "portrait.webp", image)
    result(seconds=seconds)


if __name__ == "__main__":
    main()

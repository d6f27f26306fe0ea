"""Tasks of ours that the defaults of `optimize.plan` were not chosen on: models, starts and goals."""

from typing import NamedTuple

import numpy as np

PUSHER = """<joint name="x" type="slide" axis="1 0 0"/><joint name="y" type="slide" axis="0 1 0"/>
<geom type="sphere" size=".03" mass="1"/></body>"""
MOTORS = """<actuator><velocity joint="x" kv="30" ctrlrange="-.5 .5"/>
<velocity joint="y" kv="30" ctrlrange="-.5 .5"/></actuator>"""
HEAD = """<option timestep=".02" integrator="implicitfast" gravity="0 0 0"/>
<default><geom condim="3" friction=".5"/></default>"""

Row = tuple[float, ...]


class Problem(NamedTuple):
    """A model, steps, where it starts and how far that scatters, where it shall end, and weights: (nq,) all."""

    xml: str
    steps: int
    start: Row
    scatter: Row
    goal: Row
    weights: Row


OURS = {
    # a puck behind a wall
    "PuckAroundWall": Problem(
        f"""<mujoco>{HEAD}<worldbody><geom type="box" size=".2 .02 .05"/><body pos="-.1 -.25 0">{PUSHER}
<body pos="0 -.12 0"><joint type="slide" axis="1 0 0" damping="8"/><joint type="slide" axis="0 1 0" damping="8"/>
<geom type="sphere" size=".05" mass=".5"/></body></worldbody>{MOTORS}</mujoco>""",
        150,
        (0, 0, 0, 0),
        (0, 0, 0.1, 0),
        (0, 0, 0, 0.27),
        (0, 0, 1, 1),
    ),
    # the same puck in a pocket, whose arms must be got around too
    "PuckFromPocket": Problem(
        f"""<mujoco>{HEAD}<worldbody><geom type="box" size=".15 .02 .05"/>
<geom type="box" size=".02 .06 .05" pos="-.17 -.04 0"/><geom type="box" size=".02 .06 .05" pos=".17 -.04 0"/>
<body pos="-.1 -.3 0">{PUSHER}<body pos="0 -.18 0"><joint type="slide" axis="1 0 0" damping="8"/>
<joint type="slide" axis="0 1 0" damping="8"/><geom type="sphere" size=".05" mass=".5"/></body></worldbody>
{MOTORS}</mujoco>""",
        200,
        (0, 0, 0, 0),
        (0.05, 0.02, 0.08, 0.01),
        (0, 0, 0, 0.33),
        (0, 0, 1, 1),
    ),
    # and behind a long wall with a gate off to the side
    "PuckThroughGate": Problem(
        f"""<mujoco>{HEAD}<worldbody><geom type="box" size=".3 .02 .05" pos="-.15 0 0"/>
<geom type="box" size=".1 .02 .05" pos=".43 0 0"/><body pos="-.1 -.25 0">{PUSHER}<body pos="0 -.12 0">
<joint type="slide" axis="1 0 0" damping="8"/><joint type="slide" axis="0 1 0" damping="8"/>
<geom type="sphere" size=".05" mass=".5"/></body></worldbody>{MOTORS}</mujoco>""",
        200,
        (0, 0, 0, 0),
        (0.05, 0.02, 0.08, 0),
        (0, 0, 0, 0.27),
        (0, 0, 1, 1),
    ),
    # a T to a pose
    "PushT": Problem(
        f"""<mujoco>{HEAD}<worldbody><body pos="-.2 -.2 0">{PUSHER}<body>
<joint type="slide" axis="1 0 0" damping="15"/><joint type="slide" axis="0 1 0" damping="15"/><joint damping=".2"/>
<geom type="box" size=".12 .03 .03" mass=".5"/><geom type="box" size=".03 .08 .03" pos="0 -.1 0" mass=".3"/></body>
</worldbody>{MOTORS}</mujoco>""",
        150,
        (0, 0, 0.1, 0.1, 0),
        (0, 0, 0.1, 0.1, 1.5),
        (0, 0, 0, 0, 0),
        (0, 0, 5, 5, 0.1),
    ),
    # a ball that two pads squeeze and lift
    "SqueezeAndLift": Problem(
        """<mujoco><option timestep=".01" integrator="implicitfast"/><default><geom condim="3"/></default>
<worldbody><geom type="plane" size="1 1 .1"/><body pos="-.2 0 .08"><joint name="lx" type="slide" axis="1 0 0"/>
<joint name="lz" type="slide" axis="0 0 1"/><geom type="box" size=".02 .05 .05" mass=".5"/></body><body pos=".2 0 .08">
<joint name="rx" type="slide" axis="1 0 0"/><joint name="rz" type="slide" axis="0 0 1"/>
<geom type="box" size=".02 .05 .05" mass=".5"/></body><body pos="0 0 .08"><joint type="slide" axis="1 0 0"/>
<joint type="slide" axis="0 0 1"/><joint axis="0 1 0"/><geom type="sphere" size=".08" mass=".3"/></body></worldbody>
<actuator><position joint="lx" kp="200" kv="20" ctrlrange="0 .2"/>
<position joint="lz" kp="200" kv="20" ctrlrange="-.05 .3"/><position joint="rx" kp="200" kv="20" ctrlrange="-.2 0"/>
<position joint="rz" kp="200" kv="20" ctrlrange="-.05 .3"/></actuator></mujoco>""",
        150,
        (0, 0, 0, 0, 0, 0, 0),
        (0, 0, 0, 0, 0.05, 0, 0),
        (0, 0, 0, 0, 0, 0.2, 0),
        (0, 0, 0, 0, 1, 1, 0),
    ),
    # a leg that hops forward
    "HopForward": Problem(
        """<mujoco><option timestep=".01" integrator="implicitfast"/>
<worldbody><geom type="plane" size="2 1 .1"/>
<body pos="0 0 .62"><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/>
<joint axis="0 1 0" damping="1"/>
<geom type="sphere" size=".1" mass="3"/><body><joint name="hip" axis="0 1 0" range="-60 60" damping="1"/>
<geom type="capsule" size=".03" fromto="0 0 0 0 0 -.3" mass=".5"/><body pos="0 0 -.3">
<joint name="knee" type="slide" axis="0 0 1" range="-.02 .2" damping="2" stiffness="400"/>
<geom type="capsule" size=".03" fromto="0 0 0 0 0 -.26" mass=".3"/></body></body></body></worldbody>
<actuator><position joint="hip" kp="60" kv="3" ctrlrange="-.8 .8"/>
<motor joint="knee" gear="150" ctrlrange="-1 1"/></actuator></mujoco>""",
        150,
        (0, 0, 0, 0, 0),
        (0.1, 0, 0, 0, 0),
        (0.6, 0, 0, 0, 0),
        (1, 0, 0.5, 0, 0),
    ),
    # an ellipsoid to a pose, by a turning paddle
    "PushEgg": Problem(
        f"""<mujoco>{HEAD}<worldbody><body pos="-.25 -.1 0"><joint name="x" type="slide" axis="1 0 0"/>
<joint name="y" type="slide" axis="0 1 0"/><joint name="yaw"/><geom type="box" size=".015 .07 .03" mass="1"/></body>
<body><joint type="slide" axis="1 0 0" damping="15"/><joint type="slide" axis="0 1 0" damping="15"/>
<joint damping=".2"/><geom type="ellipsoid" size=".12 .06 .03" mass=".5"/></body></worldbody><actuator>
<velocity joint="x" kv="30" ctrlrange="-.5 .5"/><velocity joint="y" kv="30" ctrlrange="-.5 .5"/>
<velocity joint="yaw" kv=".3" ctrlrange="-2 2"/></actuator></mujoco>""",
        150,
        (0, 0, 0, 0.1, 0, 0.5),
        (0, 0, 0, 0.05, 0.1, 0.5),
        (0, 0, 0, 0.3, 0.1, 0),
        (0, 0, 0, 5, 5, 0.1),
    ),
    # a box by a quarter turn, against a wall
    "FlipBox": Problem(
        """<mujoco><option timestep=".01" integrator="implicitfast"/>
<default><geom condim="3" friction=".8"/></default><worldbody><geom type="plane" size="1 1 .1"/>
<geom type="box" size=".02 .3 .3" pos=".32 0 .3"/><body pos="-.2 0 .06"><joint name="fx" type="slide" axis="1 0 0"/>
<joint name="fz" type="slide" axis="0 0 1"/><geom type="sphere" size=".03" mass=".3"/></body>
<body pos=".1 0 .05"><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/><joint axis="0 1 0"/>
<geom type="box" size=".08 .1 .05" mass=".4"/></body></worldbody>
<actuator><position joint="fx" kp="200" kv="20" ctrlrange="-.1 .6"/>
<position joint="fz" kp="200" kv="20" ctrlrange="-.1 .3"/></actuator></mujoco>""",
        200,
        (0, 0, 0, 0, 0),
        (0.03, 0, 0.05, 0, 0),
        (0, 0, 0, 0, np.pi / 2),
        (0, 0, 0, 0, 1),
    ),
    # a drawer by its handle, open at one end
    "PullDrawer": Problem(
        f"""<mujoco>{HEAD}<worldbody><body pos="-.3 -.2 0">{PUSHER}<body>
<joint type="slide" axis="1 0 0" damping="20"/><geom type="box" size=".02 .15 .03" mass=".5"/>
<geom type="capsule" size=".01" fromto="-.13 -.06 0 -.13 .06 0" mass=".05"/>
<geom type="capsule" size=".01" fromto="-.13 .06 0 0 .06 0" mass=".05"/></body></worldbody>{MOTORS}</mujoco>""",
        150,
        (0, 0, 0),
        (0.05, 0.05, 0),
        (0, 0, -0.25),
        (0, 0, 1),
    ),
    # a cylinder over a step, to a place
    "RollOverStep": Problem(
        """<mujoco><option timestep=".01" integrator="implicitfast"/>
<default><geom condim="3" friction=".8"/></default><worldbody><geom type="plane" size="1 1 .1"/>
<geom type="box" size=".3 .3 .03" pos=".45 0 0"/><body pos="-.25 0 .1"><joint name="fx" type="slide" axis="1 0 0"/>
<joint name="fz" type="slide" axis="0 0 1"/><geom type="sphere" size=".03" mass=".3"/></body>
<body pos="0 0 .08"><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/><joint axis="0 1 0"/>
<geom type="cylinder" size=".08 .05" euler="90 0 0" mass=".5"/></body></worldbody>
<actuator><position joint="fx" kp="300" kv="30" ctrlrange="-.1 .8"/>
<position joint="fz" kp="300" kv="30" ctrlrange="-.05 .2"/></actuator></mujoco>""",
        200,
        (0, 0, 0, 0, 0),
        (0.03, 0, 0.05, 0, 0),
        (0, 0, 0.4, 0, 0),
        (0, 0, 1, 0, 0),
    ),
}

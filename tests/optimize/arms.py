"""Arms with the dimensions and ranges of a Franka Panda and a Universal Robots UR5, from their data sheets.

Links are given in the modified convention of Denavit and Hartenberg: along x and about x first, then along z. The joint
turns about z.
"""

import math

HALF = math.pi / 2
# a (m), alpha (rad) of the joint before, d (m), range (rad)
PANDA = [
    (0.0, 0.0, 0.333, (-2.8973, 2.8973)),
    (0.0, -HALF, 0.0, (-1.7628, 1.7628)),
    (0.0, HALF, 0.316, (-2.8973, 2.8973)),
    (0.0825, HALF, 0.0, (-3.0718, -0.0698)),
    (-0.0825, -HALF, 0.384, (-2.8973, 2.8973)),
    (0.0, HALF, 0.0, (-0.0175, 3.7525)),
    (0.088, HALF, 0.0, (-2.8973, 2.8973)),
]
UR5 = [
    (0.0, 0.0, 0.089159, (-2 * math.pi, 2 * math.pi)),
    (0.0, HALF, 0.0, (-2 * math.pi, 2 * math.pi)),
    (-0.425, 0.0, 0.0, (-2 * math.pi, 2 * math.pi)),
    (-0.39225, 0.0, 0.10915, (-2 * math.pi, 2 * math.pi)),
    (0.0, HALF, 0.09465, (-2 * math.pi, 2 * math.pi)),
    (0.0, -HALF, 0.0, (-2 * math.pi, 2 * math.pi)),
]
# m, from the last joint to the flange
FLANGE = {"panda": 0.107, "ur5": 0.0823}
HOME = {"panda": (0.0, -0.785, 0.0, -2.356, 0.0, 1.571, 0.785), "ur5": (0.0, -1.57, 1.57, -1.57, -1.57, 0.0)}


def arm(name: str) -> str:
    """The MJCF of an arm, with a site "tip" and a keyframe "home"."""
    inside = f'<site name="tip" pos="0 0 {FLANGE[name]}"/>'
    rows = PANDA if name == "panda" else UR5
    for number, (a, alpha, d, (low, high)) in reversed(list(enumerate(rows, 1))):
        # translations along x and along the turned z
        place = f"{a} {-d * math.sin(alpha)} {d * math.cos(alpha)}"
        inside = (
            f'<body name="link{number}" pos="{place}" euler="{alpha} 0 0">'
            f'<joint name="joint{number}" axis="0 0 1" range="{low} {high}"/>'
            f'<geom type="capsule" size="0.04 0.05" mass="2"/>{inside}</body>'
        )
    home = " ".join(map(str, HOME[name]))
    return (
        f'<mujoco><compiler angle="radian"/><worldbody>{inside}</worldbody>'
        f'<keyframe><key name="home" qpos="{home}"/></keyframe></mujoco>'
    )

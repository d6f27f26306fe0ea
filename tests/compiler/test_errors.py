"""Models that the compiler refuses: all problems at once, each with its line and how to mend it."""

import pytest
from compiler.features import TWO, world

from diffsim.base.errors import MjcfError, UnsupportedError
from diffsim.load import load

BALL = '<geom size=".1"/>'

WRONG = {
    "joint_range": (
        world(f'<body><joint name="k" range="2 1" limited="true"/>{BALL}</body>'),
        "range must be increasing",
    ),
    "axis": (world(f'<body><joint axis="0 0 0"/>{BALL}</body>'), "the axis is zero"),
    "springdamper": (world(f'<body><joint springdamper="1 0"/>{BALL}</body>'), "two positive numbers"),
    "seven_dofs": (world(f"<body><freejoint/><joint/>{BALL}</body>"), "more than 6"),
    "free_not_alone": (world(f"<body><freejoint/><joint/>{BALL}</body>"), "only joint of its body"),
    "free_not_on_top": (world(f"<body><joint/>{BALL}<body><freejoint/>{BALL}</body></body>"), "child of the world"),
    "rotation_after_ball": (world(f'<body><joint type="ball"/><joint/>{BALL}</body>'), "followed by a rotation"),
    "ball_range": (world(f'<body><joint type="ball" range="1 2"/>{BALL}</body>'), "begins with 0"),
    "autolimits": (
        world(f'<body><joint range="0 1"/>{BALL}</body>', '<compiler autolimits="false"/>'),
        "set limited or autolimits",
    ),
    "mocap": (world('<body><body mocap="true"/></body>'), "child of the world"),
    "mocap_joint": (world(f'<body mocap="true"><joint/>{BALL}</body>'), "mocap body cannot have joints"),
    "massless": (world("<body><joint/></body>"), "needs mass and inertia"),
    "parallel_slides": (
        world(f'<body><joint name="a" type="slide"/><joint name="b" type="slide"/>{BALL}</body>'),
        r'degrees of freedom \[0, 1\] of <joint name="a"> \(line 1\) and <joint name="b"> \(line 1\)',
    ),
    "negative_mass": (world('<body><geom size="1" mass="-1"/></body>'), "cannot be negative"),
    "thin_inertia": (
        world('<body><freejoint/><inertial pos="0 0 0" mass="1" diaginertia="1 1 3"/></body>'),
        "A \\+ B >= C",
    ),
    "flat_fullinertia": (
        world('<body><freejoint/><inertial pos="0 0 0" mass="1" fullinertia="1 1 0 0 0 0"/></body>'),
        "positive eigenvalues",
    ),
    "no_size": (world('<geom type="box" size="1 2"/>'), "size 3 of a box must be positive"),
    "plane_grid": (world('<geom type="plane" size="1 1 0"/>'), "size 3 of a plane"),
    "moving_plane": (world(f'<body><joint/>{BALL}<geom type="plane" size="1 1 1"/></body>'), "does not move"),
    "fromto_sphere": (world('<geom size="1" fromto="0 0 0 1 1 1"/>'), "fromto requires"),
    "fromto_and_pos": (
        world('<geom type="capsule" size="1" pos="1 0 0" fromto="0 0 0 1 1 1"/>'),
        "both pos and fromto",
    ),
    "fromto_point": (world('<geom type="capsule" size="1" fromto="0 0 0 0 0 0"/>'), "too close"),
    "plane_site": (world('<site type="plane"/>'), "a site cannot be a plane"),
    "dark_light": (world('<light dir="0 0 0"/>'), "cannot be zero"),
    "fovy": (world('<camera fovy="180"/>'), "less than 180"),
    "focal": (world('<camera focal="1 1"/>'), "require sensorsize"),
    "zero_axis": (world('<site axisangle="0 0 0 1"/>'), "the axis of axisangle is zero"),
    "condim": (world(TWO, '<contact><pair geom1="g1" geom2="g2" condim="2"/></contact>'), "1, 3, 4 or 6"),
    "self_weld": (world(TWO, '<equality><weld body1="one" body2="one"/></equality>'), "constrained to itself"),
    "free_polynomial": (
        world(f'<body><joint name="b" type="ball"/>{BALL}</body>', '<equality><joint joint1="b"/></equality>'),
        "not a hinge or slide",
    ),
    "empty_tendon": (world(TWO, "<tendon><fixed/></tendon>"), "cannot be empty"),
    "short_path": (world(TWO, '<tendon><spatial><site site="s1"/></spatial></tendon>'), "at least two"),
    "last_pulley": (
        world(TWO, '<tendon><spatial><site site="s1"/><site site="s2"/><pulley divisor="2"/></spatial></tendon>'),
        "ends",
    ),
    "lone_geom": (
        world(TWO, '<tendon><spatial><geom geom="g1"/><site site="s2"/></spatial></tendon>'),
        "between two sites",
    ),
    "wrapped_box": (
        world(TWO, '<tendon><spatial><site site="s1"/><geom geom="g2"/><site site="s2"/></spatial></tendon>'),
        "not a sphere or cylinder",
    ),
    "springlength": (
        world(TWO, '<tendon><fixed springlength="2 1"><joint joint="j2" coef="1"/></fixed></tendon>'),
        "must not decrease",
    ),
    "ctrlrange": (
        world(TWO, '<actuator><motor joint="j2" ctrllimited="true"/></actuator>'),
        "ctrlrange must be increasing",
    ),
    "actrange": (
        world(TWO, '<actuator><general joint="j2" actrange="0 1"/></actuator>'),
        "dyntype is 'none'",
    ),
    "inheritrange": (
        world(TWO, '<actuator><position joint="j2" inheritrange="1"/></actuator>'),
        "has no range",
    ),
    "endless_length": (
        world(f'<body><joint name="j"/>{BALL}</body>', '<actuator><muscle joint="j"/></actuator>'),
        "does not come to rest",
    ),
    "long_measurement": (
        world(TWO, '<compiler><lengthrange timestep="1e-9"/></compiler><actuator><muscle joint="j2"/></actuator>'),
        "more than 100000 steps",
    ),
    "key_length": (world(TWO, '<keyframe><key ctrl="1 2"/></keyframe>'), "takes 0 numbers, 2 given"),
    "sensor_joint": (
        world(f'<body><joint name="b" type="ball"/>{BALL}</body>', '<sensor><jointpos joint="b"/></sensor>'),
        "hinge or slide",
    ),
    "sensor_cutoff": (world(TWO, '<sensor><framequat objtype="body" objname="one" cutoff="1"/></sensor>'), "cutoff"),
}

LACKS = {
    "sensor": (
        world(
            '<geom name="g" size="1"/>',
            '<asset><mesh name="m" vertex="0 0 0 1 0 0 0 1 0 0 0 1"/></asset>'
            '<sensor><tactile geom="g" mesh="m"/></sensor>',
        ),
        "tactile sensors",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_model_is_refused(name: str) -> None:
    text, message = WRONG[name]
    with pytest.raises(MjcfError, match=message) as caught:
        load(text)
    assert not isinstance(caught.value, UnsupportedError)
    assert all(problem.line > 0 and problem.element for problem in caught.value.problems)


@pytest.mark.parametrize("name", LACKS)
def test_an_unsupported_model_is_refused(name: str) -> None:
    text, message = LACKS[name]
    with pytest.raises(UnsupportedError, match=message):
        load(text)


def test_problems_of_a_pass_come_together() -> None:
    inside = f'<body><joint axis="0 0 0"/>{BALL}</body>\n<body><joint range="1 0" limited="true"/>{BALL}</body>'
    with pytest.raises(MjcfError) as caught:
        load(world(inside))
    assert [problem.line for problem in caught.value.problems] == [1, 2]


def test_the_message_says_where_and_what() -> None:
    text = world(f'\n<body>\n<joint name="knee" range="2 1" limited="true"/>{BALL}</body>')
    with pytest.raises(MjcfError) as caught:
        load(text)
    assert str(caught.value) == '<xml>:3 <joint name="knee">: range must be increasing, not 2 1'

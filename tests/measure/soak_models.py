# ruff: noqa: E501
"""Models of `make measure WHAT=soak`: what must keep its energy, stand still, or is hard to solve."""

PENDULUM = """<mujoco><option timestep=".001" integrator="RK4"><flag energy="enable" contact="disable"/></option>
<worldbody><body name="upper"><joint axis="0 1 0"/><geom type="capsule" fromto="0 0 0 0 0 -.5" size=".03"/>
<body pos="0 0 -.5"><joint axis="0 1 0"/><geom type="capsule" fromto="0 0 0 .1 0 -.4" size=".03"/></body></body></worldbody></mujoco>"""

SPINNER = """<mujoco><option timestep=".001" integrator="RK4" gravity="0 0 0"><flag energy="enable"/></option>
<worldbody><body><freejoint/><inertial pos=".01 .02 0" mass="1" diaginertia=".01 .02 .025"/></body></worldbody></mujoco>"""

BOXES = """<mujoco><worldbody><geom type="plane" size="5 5 .1"/>
<replicate count="10" offset="0 0 .2" euler="0 0 7"><body pos="0 0 .1"><freejoint/><geom type="box" size=".1 .1 .1"/></body></replicate>
</worldbody></mujoco>"""


def _world(inside: str, option: str = "", around: str = "") -> str:
    return f'<mujoco><option {option}/><worldbody><geom name="floor" type="plane" size="5 5 .1"/>{inside}</worldbody>{around}</mujoco>'


_STACK = """<body pos="0 0 .0995"><freejoint/><geom type="box" size=".1 .1 .1" mass="{}"/></body>
<body pos="0.02 0 .2985"><freejoint/><geom type="box" size=".1 .1 .1" mass="{}"/></body>"""
_ARM = """<body name="a" pos="0 0 1"><joint name="j" axis="0 1 0" armature="{0}" range="-10 10" limited="true"/><geom size=".05" pos=".3 0 0" mass="1"/>
<body name="b" pos=".3 0 0"><joint name="k" axis="0 1 0"/><inertial pos="0 0 .1" mass="{1}" diaginertia="{2} {2} {2}"/><geom size=".02" pos="0 0 .1" mass="0"/></body></body>"""

HOSTILE = {
    "mass ratio 1e6": _world(_STACK.format("1e-3", "1e3")),
    "mass ratio 1e6, light above": _world(_STACK.format("1e3", "1e-3"), 'cone="elliptic"'),
    "tiny inertia": _world(_ARM.format("0", "1e-6", "1e-12")),
    "stiff solref": _world(_STACK.format("1", "1").replace("mass", 'solref="-1e9 -1e5" mass')),
    "sharp solimp": _world(_STACK.format("1", "1").replace("mass", 'solimp="0 .9999 1e-12 .5 6" mass')),
    "soft solimp": _world(_STACK.format("1", "1").replace("mass", 'solimp="1e-9 1e-9 1" solref="1e-5 .01" mass')),
    "impratio 1e4": _world(_STACK.format("1", "1"), 'impratio="1e4" cone="elliptic"'),
    "impratio 1e4, pyramids": _world(_STACK.format("1", "1"), 'impratio="1e4"'),
    "huge friction": _world(
        _STACK.format("1", "1").replace("mass", 'friction="1e4 1e2 1e2" condim="6" mass'), 'cone="elliptic"'
    ),
    "conflicting welds": _world(
        _ARM.format("0", "1", ".01"),
        around='<equality><weld body1="b"/><connect body1="b" body2="a" anchor="0 0 .5"/><joint joint1="j" polycoef="1"/><joint joint1="j" polycoef="-1"/></equality>',
    ),
    "limits that conflict": _world(
        _ARM.format("0", "1", ".01").replace('range="-10 10"', 'range="5 5.001" margin="1"')
    ),
    "slow and heavy": _world(_STACK.format("1e6", "1e6"), 'timestep=".05" gravity="0 0 -1000"'),
}

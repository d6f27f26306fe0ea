# ruff: noqa: E501
"""Small models, one per corner of the compiler: XML by name. `body` makes a world with one falling geom beside."""

BALL = '<geom size=".1"/>'


def world(inside: str, around: str = "") -> str:
    """XML of a model with the given world body and the given sections."""
    return f"<mujoco>{around}<worldbody>{inside}</worldbody></mujoco>"


ORIENTATIONS = """
<body pos="0 0 1" {}><freejoint/><geom type="box" size=".1 .2 .3" {}/><site pos=".1 0 0" {}/><camera {}/></body>
<frame pos="1 2 3" {}><body pos=".1 .2 .3" {}><joint axis="1 2 3" range="-10 20"/>
<frame pos="0 0 .1" {}><geom type="capsule" size=".1 .2" pos="1 0 0"/><light pos="1 1 1" dir="1 0 -1"/></frame>
<frame {}><joint type="slide" pos=".1 .2 .3" axis="0 1 1"/><site size=".01" fromto="0 0 0 1 2 3" type="capsule"/></frame>
</body></frame>"""


def _oriented(how: str) -> str:
    return ORIENTATIONS.format(*([how] * ORIENTATIONS.count("{}")))


SHAPES = "".join(
    f'<body pos="0 0 {height}"><freejoint/><geom type="{kind}" size=".11 .23 .17" {options}/></body>'
    for height, kind in enumerate(("sphere", "capsule", "ellipsoid", "cylinder", "box"))
    for options in (
        "",
        'shellinertia="true"',
        'mass="2.5"',
        'density="400" shellinertia="true" fluidshape="ellipsoid" fluidcoef=".1 .2 .3 .4 .5"',
        'fluidshape="ellipsoid"',
    )
)

COMPOUND = """
<body><freejoint/><geom size=".1" pos="1 0 0"/><geom type="box" size=".1 .2 .3" pos="0 1 0" euler="10 20 30"/>
 <geom type="capsule" size=".05" fromto="0 0 0 .3 .4 1"/><geom size=".1" mass="0"/><geom size=".2" group="3"/>
 <body pos="0 0 1"><geom type="cylinder" size=".1 .2" density="0"/><site name="s"/>
  <body><joint type="ball"/><geom type="ellipsoid" size=".1 .2 .3" fromto="0 0 0 0 0 -1"/></body></body></body>"""

INERTIAL = """
<body name="full"><freejoint/><inertial pos=".1 .2 .3" mass="2" fullinertia="1 2 2.5 .1 -.2 .3"/></body>
<body><freejoint/><inertial pos="0 0 0" mass="1" diaginertia="1 2 2.5" euler="0 45 10"/><geom size="1"/></body>
<body><freejoint/><inertial pos="0 0 0" mass="1" fullinertia="2 2 2 0 0 0"/></body>
<body><freejoint/><inertial pos="0 0 0" mass="1" fullinertia="1 3 2.5 0 0 0"/></body>"""

JOINTS = """
<body pos="0 0 1" euler="0 30 0"><joint name="a" type="slide" axis="1 1 0" range="-1 2" ref=".3" springref=".1" stiffness="1 .2 .3"
  damping=".1 .2" armature=".1" frictionloss=".2" margin=".01" solreflimit=".03" solimplimit=".8" actuatorfrcrange="-1 1"/>
 <joint name="b" type="hinge" axis="0 1 0" range="-90 45" ref="30" springref="10" limited="true" actuatorgravcomp="true"/>
 <joint name="c" type="hinge" pos="0 0 .1" range="-90 45" limited="false" solreffriction=".1 1.5" group="2"/>
 <geom size=".1"/>
 <body pos=".3 0 0" gravcomp=".5"><joint name="d" type="ball" range="0 60" springdamper=".2 .7"/><geom size=".1" pos=".1 0 0"/>
  <body pos="0 0 .2"><joint name="e" springdamper=".1 1"/><geom type="box" size=".1 .1 .2"/></body></body></body>
<body name="m" mocap="true" pos="1 2 3" quat="1 1 0 0"><geom size=".1" contype="0"/></body>
<body pos="0 1 0"><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/><geom size=".1"/></body>"""

CONTACT = """<contact><exclude name="x" body1="two" body2="one"/><exclude body1="one" body2="world"/>
<pair geom1="g2" geom2="g1" friction="2 2 .1" solref=".01" margin=".1" gap=".05" condim="4" solreffriction="-100 -10"/>
<pair name="p" geom1="floor" geom2="g1"/></contact>"""

EQUALITY = """<equality><connect body1="one" body2="two" anchor=".1 .2 .3"/><connect body1="two" anchor="1 0 0" active="false"/>
<connect site1="s1" site2="s2"/><weld body1="one" body2="two"/><weld body1="two" anchor="0 1 0" torquescale=".5"/>
<weld body1="one" body2="two" relpose="1 2 3 2 0 0 0" solref=".1 1"/><weld site1="s1" site2="s2"/>
<joint joint1="j2" polycoef=".1 2" solimp=".5"/><joint joint1="j2" joint2="j3"/>
<tendon tendon1="t1" tendon2="t2" polycoef="0 1 .1"/></equality>
<tendon><fixed name="t1"><joint joint="j2" coef="2"/><joint joint="j3" coef="-1"/></fixed>
<fixed name="t2" range="-1 1" stiffness="1 2" damping="1" springlength=".1 .2" armature=".3" frictionloss=".1"
 actuatorfrcrange="-1 2" margin=".1"><joint joint="j3" coef="1"/></fixed></tendon>"""

TWO = """<geom name="floor" type="plane" size="1 1 .1"/>
<body name="one" pos="0 0 1" euler="10 20 30"><freejoint/><geom name="g1" size=".1"/><site name="s1" pos=".15 .02 .01"/>
 <body name="two" pos="0 .5 0"><joint name="j2" axis="1 0 0" ref="20"/><geom name="g2" type="box" size=".1 .2 .1"/>
 <site name="s2"/><body pos="0 .3 0"><joint name="j3" type="slide"/><geom name="g3" size=".05"/></body></body></body>"""

SERVOS = """<default><general gear="2"/><default class="strong"><position kp="50" dampratio=".7"/></default></default>
<actuator><motor joint="j2" ctrlrange="-1 1"/><position class="strong" joint="j2"/><position joint="j3" kp="3" kv="1" forcerange="-1 1"/>
<position joint="j3" kp="10" dampratio="1.2" timeconst=".1"/><velocity joint="j2" kv="2" gear="3"/>
<intvelocity joint="j3" kp="5" actrange="-2 2"/><damper joint="j3" kv="4" ctrlrange="0 1"/>
<cylinder joint="j2" timeconst=".2" diameter=".3" bias="1 2 3"/><general joint="j2" dyntype="filter" dynprm=".3" biastype="affine" gainprm="2" biasprm="1 2 3"/>
<motor tendon="t1" group="2" gear="-1"/><position tendon="t2" inheritrange=".5" kp="2"/>
<general joint="j3" damping="1 2" armature=".1"/><motor site="s1" gear="0 0 1 0 0 .5"/><motor site="s2" refsite="s1" gear="1 0 0 0 0 0"/>
<motor jointinparent="j2"/><muscle joint="j3" lengthrange="-1 2" force="10"/><muscle joint="j2" lengthrange="0 1" range=".7 1"/></actuator>"""

SENSORS = """<sensor><touch site="s1"/><accelerometer site="s1" cutoff="3"/><velocimeter site="s1" noise=".1"/><gyro site="s2"/>
<force site="s2"/><torque site="s2"/><magnetometer site="s1"/><rangefinder site="s1" data="dist point normal"/><jointpos joint="j2"/>
<jointvel joint="j3"/><jointactuatorfrc joint="j2"/><tendonpos tendon="t1"/><tendonvel tendon="t2"/><tendonlimitpos tendon="t2"/>
<framepos objtype="site" objname="s1" reftype="body" refname="two"/><framequat objtype="xbody" objname="one"/>
<framexaxis objtype="geom" objname="g1"/><framelinvel objtype="body" objname="two"/><frameangacc objtype="camera" objname="eye"/>
<subtreecom body="one"/><subtreeangmom body="two"/><distance geom1="g1" body2="two"/><normal geom1="g1" geom2="g3" cutoff="1"/>
<fromto body1="one" body2="two"/><insidesite site="s1" objtype="geom" objname="g2"/><camprojection site="s1" camera="eye"/>
<contact geom1="g1" data="found force normal" num="3" reduce="mindist"/><contact subtree1="one" body2="world"/><clock/><e_potential/>
<e_kinetic/></sensor>"""
EYES = """<camera name="eye" pos="1 1 1" xyaxes="0 1 0 -1 0 1" resolution="320 240" focal=".02 .03" sensorsize=".04 .03"/>
<camera name="pixels" resolution="320 240" focalpixel="160.5 161.25" principalpixel="-1.5 .25" sensorsize=".04 .03"/>
<camera mode="targetbodycom" target="one" fovy="60" ipd=".1" output="rgb depth"/><light mode="trackcom" type="directional" pos="1 0 2"/>
<light mode="targetbody" target="two" active="false" castshadow="false"/>"""

CUSTOM = """<custom><numeric name="n" data="1 2 3" size="5"/><numeric name="k" data="4"/><text name="t" data="hello"/>
<tuple name="u"><element objtype="body" objname="one" prm="3"/><element objtype="geom" objname="g1"/></tuple></custom>
<keyframe><key name="up" qpos="0 0 2 2 0 0 0 .1 .2" qvel="1 2 3 4 5 6 7 8"/><key time="3" qvel="1 2 3"/></keyframe><size nkey="4" nuserdata="7"/>"""

OPTIONS = """<option timestep=".01" gravity="1 2 3" density="1.2" viscosity=".1" integrator="implicitfast" cone="elliptic"
 solver="CG" iterations="7" tolerance="1e-5" impratio="3" wind="1 0 0" o_friction=".5"><flag contact="disable" energy="enable" eulerdamp="disable"/></option>
<statistic meaninertia="3" extent="5"/><compiler angle="radian" eulerseq="ZYX"/>"""

SPATIAL = """<tendon><spatial range="0 1" limited="true" springlength=".2" damping=".1 .2" width=".01"><site site="s1"/><site site="s2"/></spatial>
<spatial stiffness="3"><site site="s1"/><geom geom="g1" sidesite="s2"/><site site="s2"/><pulley divisor="2"/><site site="s1"/><geom geom="g3"/>
<site site="s2"/></spatial><spatial armature=".2"><site site="s1"/><site site="s2"/></spatial></tendon>"""

STATIC = """<body name="st" pos="1 0 0" euler="0 0 90"><geom size=".1" material="m"/><site name="s0"/><body name="mv" pos="1 0 0"><joint/><geom size=".3"/>
<body pos="0 0 1" euler="10 20 30"><geom type="box" size=".1 .2 .3" pos=".1 0 0"/><camera name="c" pos="1 2 3"/><light pos="1 1 1" dir="1 0 0"/><site name="s1" pos="1 0 0"/>
<body name="dp"><joint/><geom size=".1"/><body name="keep"><geom size=".1"/><site name="fs"/></body><body name="named" pos="0 1 0"><geom size=".2"/></body></body><body><geom contype="0" conaffinity="0" size=".5"/></body></body></body></body>
<body name="mm" mocap="true"/>"""
FELT = """<sensor><framepos objtype="body" objname="named"/><force site="fs"/></sensor><asset><material name="m"/></asset>"""

SHOWN = """<geom type="mesh" mesh="seen" contype="0" conaffinity="0"/><geom name="told" type="mesh" mesh="told" contype="0" conaffinity="0"/>
<body><freejoint/><geom type="mesh" mesh="felt"/><geom mesh="fitted"/></body>"""
VERTICES = (
    "<asset>"
    + "".join(
        f'<mesh name="{name}" vertex="0 0 0 1 0 0 0 1 0 0 0 {high}"/>'
        for high, name in enumerate(("fitted", "seen", "told", "unused", "felt"), 1)
    )
    + '</asset><sensor><framepos objtype="geom" objname="told"/></sensor>'
)

MEASURED = """<body pos="0 0 1"><joint name="a" axis="0 1 0" range="-30 70" damping="1"/><geom type="capsule" size=".1" fromto="0 0 0 0 0 1"/>
<body pos="0 0 1"><joint name="b" type="slide" axis="1 0 0" range="-.2 .3" limited="true"/><geom size=".1"/><site name="s"/></body></body><site name="o" pos=".5 0 1"/>"""
MUSCLES = """<tendon><spatial name="t"><site site="o"/><site site="s"/></spatial></tendon><actuator><muscle tendon="t"/><motor joint="b"/>
<motor joint="a" gear="2" lengthrange="0 1"/></actuator>"""

EVERY_ACTUATOR = """<mujoco><compiler inertiagrouprange="0 3"/><size nuser_actuator="3"/>
<default><general group="2"/><default class="d"><dcmotor motorconst="0.05" resistance="2" thermal="1 0 4" lugre="1 2 3"/></default></default>
<worldbody><camera name="c" resolution="3 2"/><body name="one"><freejoint/><geom name="g1" size=".1"/><site name="s1" pos=".2 0 0"/><body name="two" pos="0 .5 0"><joint name="j2" range="-30 40"/><geom size=".1"/><site name="s2"/><body pos="0 .3 0"><joint name="j3" type="slide" range="-1 2"/><geom size=".1"/></body></body></body>
<body name="bb" pos="3 0 0"><joint name="ball" type="ball"/><geom size=".1"/></body></worldbody>
<tendon><fixed name="t" range="0 1"><joint joint="j3" coef="1"/></fixed></tendon>
<actuator>
<adhesion name="a" body="one" gain="3" ctrlrange="0 2" forcerange="-1 1" group="1" user="1 2"/>
<dcmotor name="d1" joint="j2" class="d" saturation="3 0 2" controller="1 2 3 4 5 6" input="position"/>
<dcmotor name="d2" joint="j2" nominal="12 0.5 300" inductance="0.001 0.1" cogging="1 2 3" damping="0.001"/>
<dcmotor name="d3" tendon="t" nominal="12 0 300" resistance="3" damping="0.01" saturation="0 2" ctrlrange="-2 2"/>
<motor joint="j2" nsample="4" delay=".02" interp="linear" damping="0"/>
<position joint="j3" kp="3" kv=".3" nsample="3" delay=".01" interp="cubic" forcelimited="true" forcerange="-1 1"/>
<general joint="ball" gear="1 2 3" dyntype="user" actdim="3" actlimited="true" actrange="0 1" actearly="true" gaintype="user" biastype="user" dynprm="1 2 3" gainprm="4 5" biasprm="6"/>
<general jointinparent="ball" gear="0 0 1" dyntype="filterexact" dynprm=".2" actearly="true"/>
<motor cranksite="s1" slidersite="s2" cranklength=".3" gear="2" damping="0" armature="0"/>
<general body="two" dyntype="integrator" damping="0" armature="0"/>
<position tendon="t" inheritrange="1" timeconst=".1" dampratio="1"/>
<intvelocity joint="j2" inheritrange=".9" kp="2" kv="1"/>
<cylinder joint="j3" timeconst="2" area="3" bias="4 5 6"/>
<damper damping=".1 .2 .3" armature=".1" joint="j2" kv="2" ctrlrange="0 3"/>
<velocity site="s1" gear="0 0 0 1 0 0" damping="0" armature="0"/>
</actuator>
<sensor><clock name="s" nsample="4" delay=".01" interval=".01 -.002" interp="linear"/><jointpos joint="j2" nsample="2"/><user dim="3" user="1 2" datatype="axis" needstage="vel" objtype="site" objname="s1"/>
<user dim="2" noise=".1" cutoff="3"/><gyro site="s1" nsample="5" interp="cubic" delay=".004"/><insidesite site="s1" objtype="xbody" objname="two"/><ballquat joint="ball"/><ballangvel joint="ball"/><jointlimitpos joint="j2"/><jointlimitvel joint="j2"/><jointlimitfrc joint="j2"/><tendonactuatorfrc tendon="t"/><tendonlimitvel tendon="t"/><tendonlimitfrc tendon="t"/><actuatorpos actuator="a"/><actuatorvel actuator="a"/><actuatorfrc actuator="d1"/>
<framezaxis objtype="camera" objname="c" reftype="site" refname="s1"/><frameyaxis objtype="geom" objname="g1"/><frameangvel objtype="body" objname="one"/><framelinacc objtype="xbody" objname="one"/><subtreelinvel body="one"/><rangefinder camera="c" data="dist dir origin point normal depth"/><contact site="s1" num="2" data="found force torque dist pos normal tangent" reduce="netforce"/></sensor>
<keyframe><key qpos="0 0 0 2 0 0 0"/></keyframe>
<custom><tuple name="t"><element objtype="actuator" objname="a" prm="2"/><element objtype="sensor" objname="s"/></tuple></custom>
</mujoco>"""

ALIGNED = (
    '<body pos="1 2 3" euler="10 0 0"><freejoint align="true"/><geom size=".1" pos="1 0 0"/>'
    '<geom type="box" size=".1 .2 .3" pos="0 1 1"/><site/><camera/><light/></body><body><freejoint/>'
    '<geom size=".1" pos="1 1 1"/></body>'
)

# layers of a class, and a texture or layers over them
LAYERS = """<mujoco><default><default class="a"><material texture="s"/></default><default class="b"><material>
<layer role="rgb" texture="s"/><layer role="orm" texture="t"/></material></default></default><asset>
<texture name="s" type="2d" builtin="flat" width="2" height="2"/><texture name="t" type="2d" builtin="flat" width="2" height="2"/>
<material name="one" class="a"><layer role="rgb" texture="t"/></material><material name="two" class="b" texture="t"/>
<material name="three" class="b"><layer role="rgb" texture="t"/></material><material name="four" class="b"/></asset></mujoco>"""

FEATURES: dict[str, str] = {
    "layers": LAYERS,
    "quat": world(_oriented('quat="1 2 3 4"')),
    "axisangle": world(_oriented('axisangle="1 2 3 40"')),
    "xyaxes": world(_oriented('xyaxes="1 1 0 -1 1 1"')),
    "zaxis": world(_oriented('zaxis="1 -2 3"')),
    "zaxis_down": world(_oriented('zaxis="0 0 -1"')),
    "euler": world(_oriented('euler="10 20 30"')),
    "euler_fixed": world(_oriented('euler=".1 .2 .3"'), '<compiler eulerseq="ZxY" angle="radian"/>'),
    "shapes": world(SHAPES),
    "compound": world(COMPOUND),
    "compound_groups": world(COMPOUND, '<compiler inertiagrouprange="0 2"/>'),
    "inertial": world(INERTIAL),
    "inertial_in_frame": world(
        '<body><frame pos="1 0 0" euler="0 30 0"><joint/><frame pos="1 0 0"><inertial pos="0 1 0" mass="1" '
        'diaginertia="1 2 2.5" euler="10 0 0"/></frame></frame><geom size=".1"/></body>'
    ),
    "inertia_from_geom": world(
        '<body><freejoint/><inertial pos="1 0 0" mass="3" diaginertia="1 1 1"/><geom size="1"/></body>',
        '<compiler inertiafromgeom="true"/>',
    ),
    "bounds": world(
        '<body><joint/><geom size=".01"/></body><body><joint/><inertial pos="0 0 0" mass="1" diaginertia="1 1 3"/></body>',
        '<compiler boundmass=".5" boundinertia=".1" balanceinertia="true" settotalmass="7"/>',
    ),
    "alignfree": world(ALIGNED),
    "alignfree_and_fusestatic": world(ALIGNED, '<compiler fusestatic="true"/>'),
    "joints": world(JOINTS),
    "contact": world(TWO, CONTACT),
    "equality": world(TWO, EQUALITY),
    "spatial": world(TWO, SPATIAL),
    "servos": world(TWO, EQUALITY + SERVOS),
    "sensors": world(TWO + EYES, EQUALITY + SENSORS),
    "custom": world(TWO, CUSTOM),
    "options": world(TWO, OPTIONS),
    "fusestatic": world(STATIC, FELT + '<compiler fusestatic="true" settotalmass="9"/>'),
    "discardvisual": world(STATIC, FELT + '<compiler discardvisual="true"/>'),
    "discarded_meshes": world(SHOWN, VERTICES + '<compiler discardvisual="true"/>'),
    "fused_and_discarded": world(STATIC, FELT + '<compiler fusestatic="true" discardvisual="true"/>'),
    "lengthrange": world(
        MEASURED,
        '<compiler><lengthrange mode="all" accel="10" maxforce="4" timestep=".02" inttotal="8" interval="1"/></compiler>'
        + MUSCLES,
    ),
    "lengthrange_limits": world(MEASURED, '<compiler><lengthrange uselimit="true" mode="none"/></compiler>' + MUSCLES),
    "every_actuator": EVERY_ACTUATOR,
    "empty": world(""),
    "ground": world('<geom type="plane" size="1 1 1"/>'),
    "flat": world('<body><joint/><inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/></body><body pos="0 1 2"/>'),
    "only_world": world(BALL),
    "static": world('<geom type="plane" size="0 0 1"/><body pos="1 0 0"><geom size="1"/></body><body pos="1 2 3"/>'),
    "classes": world(
        '<body childclass="small"><joint/><geom friction=".7"/><body><joint class="stiff" damping="3"/><geom class="main" '
        'size=".2" solref=".1"/></body></body>',
        '<default><geom size=".3" friction=".5 .1 .2"/><joint damping="1 2 3"/><default class="small"><geom type="capsule" '
        'size=".1 .2" solimp=".5 .6"/><default class="stiff"><joint stiffness="4" range="-1 1"/></default></default></default>',
    ),
}

"""One model with a bit of everything that features.md 2.1-2.6 lists, under every option and flag that changes it."""

from diffsim.base.enums import DisableBit, Integrator

MODEL = """<mujoco><option timestep=".005" {option}><flag {flag}/></option>
<default><geom density="600"/></default>
<worldbody><geom name="floor" type="plane" size="3 3 1" solref=".01 1"/>
  <body name="base" pos="0 0 .6" gravcomp=".7">
    <joint name="s" type="slide" axis="0 0 1" stiffness="30 4 9" damping="1 .4 .3" springref=".1" frictionloss=".2"
      actuatorgravcomp="true"/>
    <geom type="capsule" size=".04 .1" fluidshape="{shape}"/><site name="s0" pos=".06 0 .1"/>
    <body name="link" pos="0 0 -.15">
      <joint name="h" axis="0 1 0" range="-60 60" stiffness="2 1" damping=".1 .05 .02" armature=".01"
        actuatorfrcrange="-2 2"/>
      <geom name="gl" type="capsule" size=".03 .1" pos="0 0 -.1"/>
      <geom name="w" type="sphere" size=".02" contype="0" conaffinity="0"/><site name="s1" pos=".05 0 -.2"/>
      <body name="tip" pos="0 0 -.22" gravcomp="1.2">
        <joint name="b" type="ball" stiffness="1 .5 .3" damping=".05 .02" range="0 70"/>
        <geom name="tip" type="box" size=".03 .05 .04" pos=".02 0 -.03"/><site name="s2" pos="0 .02 -.05"/>
  </body></body></body>
  <body name="free" pos=".4 0 .3"><freejoint name="f"/>
    <geom type="box" size=".1 .07 .05" fluidshape="{shape}"/><site name="s3" pos=".1 0 0"/></body>
  <body name="crank" pos="-.5 0 .5"><joint name="c" axis="0 1 0" damping=".02"/>
    <geom size=".05" pos=".1 0 0"/><site name="cs" pos=".1 0 0"/></body>
  <body name="slider" pos="-.5 0 .2"><joint name="sl" type="slide" axis="0 0 1"/>
    <geom size=".04"/><site name="ss"/></body>
</worldbody>
<tendon>
  <spatial name="t" stiffness="20 3" damping=".5 .1" springlength=".2 .25" frictionloss=".05" range="0 .5">
    <site site="s0"/><geom geom="w"/><site site="s1"/></spatial>
  <spatial name="t3" armature=".02" stiffness="3"><site site="s1"/><site site="s3"/></spatial>
  <fixed name="t2" armature=".05" actuatorfrcrange="-1 1">
    <joint joint="s" coef="1"/><joint joint="h" coef="-.5"/></fixed>
</tendon>
<equality><joint joint1="c" joint2="h" polycoef=".1 .5 .2 0 0"/></equality>
<actuator>
  <motor joint="s" gear="5" ctrlrange="-.5 .5" group="1"/>
  <position joint="h" kp="10" kv="1" forcerange="-3 3" ctrlrange="-1 1"/>
  <general joint="b" gear="1 .5 .2" dyntype="integrator" actrange="-.3 .3" actearly="true" gainprm="3"
    biastype="affine" biasprm="0 -1 -.2" group="2"/>
  <general jointinparent="b" gear=".2 .5 1" dyntype="filterexact" dynprm=".02"/>
  <general joint="f" gear="1 0 2 .1 .2 .3" dyntype="filter" dynprm=".03" gaintype="affine" gainprm="1 .1 .2"/>
  <muscle tendon="t" lengthrange=".1 .5" force="20"/>
  <muscle tendon="t" lengthrange=".1 .5" force="-1" tausmooth=".2"/>
  <motor tendon="t2" gear="4"/><velocity joint="c" kv=".3" armature=".02" damping=".1 .02"/>
  <intvelocity joint="sl" kp="5" actrange="-1 1"/><damper joint="sl" kv="2" ctrlrange="0 1"/>
  <general cranksite="cs" slidersite="ss" cranklength=".25" gear="1"/>
  <general site="s2" refsite="s0" gear="1 .2 .3 .1 .1 .05"/><general site="s3" gear=".3 .2 .1 .05 .02 .01"/>
  <adhesion body="free" ctrlrange="0 1" gain="2"/><cylinder joint="sl" timeconst=".1" area=".5" bias="1 2 3"/>
  <dcmotor joint="c" motorconst=".1" resistance="2" damping=".01"/>
  <motor joint="h" nsample="4" delay=".012" interp="linear" gear=".5"/>
</actuator>
<sensor><e_potential/><e_kinetic/><framelinacc objtype="site" objname="s2"/>
  <jointpos joint="h" nsample="3" delay=".008" interp="cubic"/><subtreeangmom body="base"/></sensor>
</mujoco>"""

INTEGRATORS = {Integrator.EULER: "Euler", Integrator.RK4: "RK4"}
OPTIONS = {
    "fluid": 'density="50" viscosity=".3" wind=".3 .2 .1"',
    "gravity": 'gravity="0 0 0"',
    "elliptic": 'cone="elliptic" impratio="3"',
    "groups": 'actuatorgroupdisable="2"',
    "more groups": 'actuatorgroupdisable="0 1" integrator="implicitfast"',
}


def make(option: str = "", flag: str = "", shape: str = "none") -> str:
    return MODEL.format(option=option, flag=flag, shape=shape)


def everything() -> dict[str, str]:
    """MJCF texts by name."""
    found = {f"option {name}": make(text) for name, text in OPTIONS.items()}
    for kind in (kind for kind in Integrator if kind != Integrator.DISCRETE):  # new in 3.13
        name = INTEGRATORS.get(kind, kind.name.lower())
        option = f'integrator="{name}"'
        found[name] = make(option)
        found[f"{name} fluid"] = make(f"{option} {OPTIONS['fluid']}")
        found[f"{name} ellipsoids"] = make(f"{option} {OPTIONS['fluid']}", shape="ellipsoid")
        found[f"{name} without damper"] = make(option, 'damper="disable"')
        found[f"{name} without damper and spring"] = make(option, 'damper="disable" spring="disable"')
    for bit in DisableBit:
        found[f"without {bit.name.lower()}"] = make("", f'{bit.name.lower()}="disable"')
    for bit in ("actuation", "eulerdamp", "clampctrl"):
        found[f"implicitfast without {bit}"] = make('integrator="implicitfast"', f'{bit}="disable"')
    found["energy"] = make("", 'energy="enable" fwdinv="enable"')
    return found

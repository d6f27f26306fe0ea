"""Resolved elements have the values that MuJoCo's own reader finds: own, inherited by class, or default."""

import numpy as np
import oracle
import pytest
from corpus import GYM, SUITE

from diffsim.mjcf import read
from diffsim.mjcf.elements import (
    Actuator,
    Camera,
    Equality,
    Geom,
    Joint,
    Light,
    Material,
    Mesh,
    Pair,
    Site,
    Tendon,
)

# our class -> MjSpec's list
LISTS = {
    Joint: "joints",
    Geom: "geoms",
    Site: "sites",
    Camera: "cameras",
    Light: "lights",
    Material: "materials",
    Mesh: "meshes",
    Pair: "pairs",
    Equality: "equalities",
    Tendon: "tendons",
    Actuator: "actuators",
}
# our field -> MjSpec's, where the names differ
NAMES = {
    "class_": "classname",
    "user": "userdata",
    "actuatorfrclimited": "actfrclimited",
    "actuatorfrcrange": "actfrcrange",
    "actuatorgravcomp": "actgravcomp",
    "solreflimit": "solref_limit",
    "solimplimit": "solimp_limit",
    "solreffriction": "solref_friction",
    "solimpfriction": "solimp_friction",
    "shellinertia": "typeinertia",
    "fluidshape": "fluid_ellipsoid",
    "fluidcoef": "fluid_coefs",
    "projection": "proj",
}
# fields of other form, or not kept by MjSpec as such
SKIPPED = {
    *("name", "class_", "quat", "axisangle", "xyaxes", "zaxis", "euler", "fromto", "type", "directional", "texture"),
    *("mass", "output", "material", "mesh", "hfield", "target", "file_", "content_type", "vertex", "normal", "face"),
    *("texcoord", "builtin", "params", "inertia", "focal", "focalpixel", "principal", "principalpixel", "sensorsize"),
    *("geom1", "geom2", "anchor", "relpose", "polycoef", "torquescale", "slidersite", "refsite", "user"),
    *("body1", "body2", "site1", "site2", "joint1", "joint2", "tendon1", "tendon2", "shellinertia"),
    *("joint", "jointinparent", "tendon", "cranksite", "site", "body"),
}

DEFAULTS = """
<mujoco>
  <default>
    <geom friction="0.5" solref="0.01" rgba="1 0 0 1"/>
    <default class="a">
      <joint damping="3" stiffness="1 2" range="-1 1" solimplimit="0.8"/>
      <geom friction="0.6 0.01" euler="0 90 0"/>
      <position kp="7" kv="2" ctrlrange="-2 2"/>
      <tendon springlength="0.3" width="0.1"/>
      <equality solref="0.1 0.5"/>
      <default class="b">
        <motor gear="2 3"/>
        <geom size="0.1 0.2"/>
        <site size="0.3"/>
      </default>
      <default class="muscle"><muscle force="10" lmin="0.4"/></default>
      <default class="dc"><dcmotor motorconst="0.05" resistance="2" thermal="1 0 4" lugre="1 2 3"/></default>
    </default>
    <general gainprm="4"/>
  </default>
  <default>
    <geom margin="0.01"/>
    <default class="late"><geom gap="0.02"/></default>
  </default>
  <worldbody>
    <body childclass="a">
      <joint name="one"/>
      <geom name="one" size="0.2"/>
      <frame childclass="b">
        <geom name="two" size="0.3" friction="0.9"/>
        <body>
          <joint name="two" damping="5"/>
          <geom name="three" class="late" size="1" type="box"/>
          <site name="one"/>
          <body childclass="late">
            <joint name="three" type="slide"/><geom name="four" class="a" size="1"/>
          </body>
        </body>
      </frame>
    </body>
  </worldbody>
  <tendon>
    <fixed name="t" class="a"><joint joint="one" coef="1"/></fixed>
  </tendon>
  <equality><joint class="a" joint1="one" joint2="two"/></equality>
  <actuator>
    <general name="general" joint="one"/>
    <general name="general_a" class="a" joint="one" gainprm="1 2 3"/>
    <position name="position_a" class="a" joint="one" timeconst="0.1"/>
    <position name="ratio" class="a" joint="one" kp="3" dampratio="0.7"/>
    <position name="inherit" joint="one" inheritrange="0.9"/>
    <velocity name="velocity_b" class="b" joint="one"/>
    <intvelocity name="integral" class="b" joint="one" actrange="-1 1"/>
    <damper name="damper" class="a" joint="one" kv="2" ctrlrange="0 1"/>
    <cylinder name="cylinder" class="a" tendon="t" diameter="0.2" timeconst="3" bias="1 2 3"/>
    <muscle name="muscle_main" joint="one"/>
    <muscle name="muscle" class="muscle" joint="one" timeconst="0.02 0.05" range="0.6 1.1" tausmooth="0.1"/>
    <motor name="motor" class="muscle" joint="one" armature="0.1" damping="1 2"/>
    <dcmotor name="dc" class="dc" joint="one" saturation="3 0 2" controller="1 2 3 4 5 6" input="position"/>
    <dcmotor name="dc_nominal" joint="one" nominal="12 0.5 300" inductance="0.001 0.1" cogging="1 2 3" damping="0.001"/>
    <dcmotor name="dc_known" joint="one" nominal="12 0 300" resistance="3" damping="0.01" saturation="0 2"/>
  </actuator>
</mujoco>
"""
ADHESION = """
<mujoco>
  <worldbody><body name="b"><geom size="1"/></body></worldbody>
  <actuator><adhesion name="x" body="b" gain="5" ctrlrange="0 2"/></actuator>
</mujoco>
"""


def theirs(spec):
    """MjSpec's elements by list and key."""
    return {
        name: {key(element.name, int(line(element))): element for element in getattr(spec, name)}
        for name in LISTS.values()
    }


def line(element):
    return element.info.split()[-1] if element.info else 0


def key(name, line):
    return name or line


def differences(ours, reference):
    found = []
    for name in ours.attributes():
        other = NAMES.get(name, name)
        if name in SKIPPED or not hasattr(reference, other):
            continue
        value, expected = (
            np.ravel(np.asarray(each, float)) for each in (getattr(ours, name), getattr(reference, other))
        )
        if not np.allclose(value, expected, rtol=1e-7, atol=0):
            found.append((ours.label, ours.line, name, value, expected))
    return found


def compare(spec, reference):
    """All differences, and how many elements were compared."""
    found, count = [], 0
    others = theirs(reference)
    for cls, name in LISTS.items():
        for element in spec.all(cls):
            own = others[name].get(key(getattr(element, "name", None), element.line))
            if own is not None:
                count += 1
                found += differences(spec.resolve(element), own)
    return found, count


@pytest.mark.parametrize("text", [DEFAULTS, ADHESION])
def test_classes_and_shortcuts(text):
    found, count = compare(read(text), oracle.mujoco.MjSpec.from_string(text))
    assert found == []
    assert count >= 1


@pytest.mark.parametrize("path", [*SUITE, *GYM])
def test_models(path):
    file = oracle.package_path(path)
    found, count = compare(read(file), oracle.mujoco.MjSpec.from_file(str(file)))
    assert found == []
    assert count > 3

"""Contact sensors see what MuJoCo lists: contacts in a gap and contacts that just touch, in its order."""

import numpy as np
import pytest
from oracle import at_rest, inputs_of, load_oracle, state_of

import diffsim
from tests.uncompiled import uncompiled

DATA = 'data="found dist pos normal"'
SENSORS = "".join(
    f'<contact {what} num="{num}" {DATA} reduce="{reduce}"/>'
    for what in ('body1="first"', 'geom1="floor"', 'body1="second" body2="third"', 'subtree1="world"')
    for num, reduce in ((1, "none"), (3, "none"), (2, "mindist"), (3, "maxforce"))
)

# bodies in another order than their geoms' types, several geoms each, equal depths, an explicit pair
MIXED = """<mujoco><option>{flag}</option><worldbody>
  <body name="first" pos="0 0 .09"><freejoint/><geom type="capsule" size=".1 .1" euler="90 0 0"/>
    <geom name="ball" size=".1" pos=".15 0 0"/><geom type="box" size=".1 .1 .1" pos="-.25 0 0"/></body>
  <body name="second" pos="0 .25 .095"><freejoint/><geom type="box" size=".1 .1 .1"/><geom size=".1" pos=".15 0 0"/>
    <geom size=".1" pos="-.15 0 0"/></body>
  <body name="third" pos="0 .44 .1"><freejoint/><geom size=".1" pos="-.15 0 0"/>
    <geom name="rod" type="capsule" size=".1 .2" euler="0 90 0"/></body>
  <geom name="floor" type="plane" size="5 5 1"/></worldbody>
  <contact><pair geom1="rod" geom2="floor"/></contact><sensor>{sensors}</sensor></mujoco>"""
GAP = """<mujoco><worldbody><geom name="floor" type="plane" size="5 5 1" margin=".02" gap=".015"/>
  <body name="first" pos="0 0 .11"><freejoint/><geom size=".1"/></body>
  <body name="second" pos="1 0 .11"><freejoint/><geom type="box" size=".1 .1 .1"/></body>
  <body name="third" pos="2 0 .125"><freejoint/><geom size=".1"/></body></worldbody>
  <sensor>{sensors}</sensor></mujoco>"""
TOUCHING = GAP.replace('margin=".02" gap=".015"', "").replace(' .11"', ' .1"')

SCENES = {
    "mixed": MIXED.format(flag="", sensors=SENSORS),
    "all to all": MIXED.format(flag='<flag midphase="disable"/>', sensors=SENSORS),
    "gap": GAP.format(sensors=SENSORS),
    "touching": TOUCHING.format(sensors=SENSORS),
}


@pytest.mark.parametrize("name", SCENES)
def test_the_same_contacts_are_reported(name: str) -> None:
    mjmodel, model = load_oracle(SCENES[name]), diffsim.load(SCENES[name])
    mjmodel.opt.tolerance, mjmodel.opt.iterations = 1e-15, 500
    model = model.replace(opt=model.opt.replace(tolerance=1e-15, iterations=500))
    mjdata = at_rest(mjmodel)
    data = uncompiled(diffsim.forward)(model, state_of(mjdata), inputs_of(mjdata))
    assert np.any(mjdata.sensordata)
    for i in range(mjmodel.nsensor):
        part = slice(mjmodel.sensor_adr[i], mjmodel.sensor_adr[i] + mjmodel.sensor_dim[i])
        np.testing.assert_allclose(data.sensordata[part], mjdata.sensordata[part], atol=1e-9, err_msg=f"sensor {i}")

"""Clear objects and mirrors: what one sees through glass and in a floor, worked out from the parts of one scene."""

import functools

import jax.numpy as jnp
import numpy as np

import diffsim
from diffsim import viz
from diffsim.viz.scene import plan_of
from diffsim.viz.shade import exposed

# from the left, over a slab: a plate of glass, an opaque plate, nothing, an opaque block, a clear block
XML = """<mujoco><asset>
  <material name='slab' specular='0' rgba='.9 .1 .1 1'/><material name='plate' specular='0' rgba='.1 .3 .9 1'/>
  <material name='glass' specular='0' rgba='.1 .3 .9 .25'/><material name='block' specular='0' rgba='.1 .9 .1 1'/>
  <material name='clear' specular='0' rgba='.1 .9 .1 .5'/><material name='floor' specular='0' reflectance='.5'/>
</asset><worldbody>
  <geom type='plane' size='9 9 .1' pos='0 0 -1' material='floor'/>
  <geom type='box' size='4 .5 .1' material='slab'/>
  <geom type='box' size='.4 .4 .1' pos='-3 0 1' material='glass'/>
  <geom type='box' size='.4 .4 .1' pos='-1 0 1' material='plate'/>
  <geom type='box' size='.3 .3 .3' pos='1.9 0 1' material='block'/>
  <geom type='box' size='.3 .3 .3' pos='3.2 0 1' material='clear'/>
  <camera name='top' pos='0 0 10' xyaxes='1 0 0 0 1 0' fovy='60'/>
  <camera name='front' pos='0 -10 2' xyaxes='1 0 0 0 0 1' fovy='60'/>
</worldbody></mujoco>"""
WIDTH, HEIGHT = 160, 120
FOCAL = HEIGHT / 2 / np.tan(np.radians(30))


@functools.cache
def picture(camera: str) -> np.ndarray:
    """What a camera sees, linear (height, width, 3)."""
    model = diffsim.load(XML)
    image = viz.render(model, diffsim.make_state(model), camera, size=(WIDTH, HEIGHT), samples=1)
    return np.asarray(exposed(jnp.asarray(image / 255.0)))


def above(x: float, z: float, y: float = 0) -> np.ndarray:
    """What the upper camera sees at a point."""
    return picture("top")[int(HEIGHT / 2 - FOCAL * y / (10 - z)), int(WIDTH / 2 + FOCAL * x / (10 - z))]


def ahead(x: float, y: float, z: float) -> np.ndarray:
    """What the front camera sees at a point."""
    return picture("front")[int(HEIGHT / 2 - FOCAL * (z - 2) / (10 + y)), int(WIDTH / 2 + FOCAL * x / (10 + y))]


def test_glass_adds_its_part_to_what_is_behind() -> None:
    glass, plate, slab = above(-3, 1.1), above(-1, 1.1), above(0.5, 0.1)
    assert plate[2] > 4 * plate[0] and slab[0] > 4 * slab[2]
    # 8 bits are 1% of a bright channel and a few percent of a dark one
    np.testing.assert_allclose(glass, 0.25 * plate + 0.75 * slab, rtol=0.02, atol=0.005)


def test_of_a_clear_shape_only_the_front_is_drawn() -> None:
    block, clear, slab = above(1.9, 1.3), above(3.2, 1.3), above(0.5, 0.1)
    np.testing.assert_allclose(clear, 0.5 * block + 0.5 * slab, rtol=0.02, atol=0.005)


def test_clear_shapes_cast_no_shadow() -> None:
    # the sun is to the left and below: the shadow of a plate falls to the right of it and above
    beside_glass, beside_plate, slab = (above(x, 0.1, 0.3) for x in (-2.3, -0.3, 0.5))
    np.testing.assert_allclose(beside_glass, slab, rtol=0.02, atol=0.005)
    assert beside_plate[0] < 0.6 * slab[0]


def test_a_floor_mirrors_what_is_above_it() -> None:
    # the image of the slab's front side at z = 0 lies at z = -2; next to it the floor mirrors the sky
    image, floor = ahead(0, -0.5, -2), ahead(5, -0.5, -2)
    assert image[0] > 1.5 * image[2] and floor[2] > floor[0]


def test_only_some_plans_look_through() -> None:
    plain = diffsim.load(XML.replace(".25'", "1'").replace(".5'/>", "1'/>", 1).replace("reflectance='.5'", ""))
    assert plan_of(diffsim.load(XML))[-2:] == (True, True)
    assert plan_of(plain)[-2:] == (False, False)

"""The model's own lights: what they send to points, and one picture, beside what was worked out by hand."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import oracle
from compiler.compare import differences
from uncompiled import uncompiled

import diffsim
from diffsim import viz
from diffsim.viz.lights import BRIGHT, Lamps, drawn_lights, incident, lights_of
from diffsim.viz.shade import exposed

# a slab with a plate over it; the directional light from the left casts shadows and the one from the right does not
XML = """<mujoco><visual><headlight active='0' ambient='.2 .3 .4'/></visual><worldbody>
  <light type='directional' dir='1 0 -1' ambient='.4 0 0' diffuse='.8 .8 .8' specular='0 0 0'/>
  <light type='directional' dir='-1 0 -1' castshadow='false' diffuse='0 0 .5' specular='0 0 0'/>
  <light name='off' type='directional' active='false' diffuse='9 9 9'/>
  <light name='spot' pos='0 2 3' cutoff='30' exponent='4' attenuation='1 .5 .25' diffuse='0 .6 0' specular='0 0 0'/>
  <light name='point' type='point' pos='0 2 3' attenuation='0 1 0' diffuse='0 0 0' specular='0 0 0'/>
  <geom type='box' size='4 4 .1' rgba='.5 .6 .7 1'/><geom type='box' size='.4 .4 .1' pos='-1 0 1.1' rgba='.5 .6 .7 1'/>
  <camera name='top' pos='0 0 10' xyaxes='1 0 0 0 1 0' fovy='60'/>
</worldbody></mujoco>"""
SIZE = 96
# pixels per metre at a distance of 1 m
FOCAL = SIZE / 2 / np.tan(np.radians(30))


@functools.cache
def model() -> diffsim.Model:
    return diffsim.load(XML)


@functools.cache
def picture() -> np.ndarray:
    """Linear colours of what the camera sees."""
    image = viz.render(model(), diffsim.make_state(model()), "top", size=(SIZE, SIZE), samples=1)
    return np.asarray(exposed(jnp.asarray(image / 255.0)))


def floor(x: float, y: float) -> np.ndarray:
    """The linear colour of the top of the slab, at z = 0.1."""
    return picture()[int(SIZE / 2 - FOCAL * y / 9.9), int(SIZE / 2 + FOCAL * x / 9.9)]


def expected(*lights: tuple[tuple[float, float, float], float]) -> np.ndarray:
    """The sum of lights of a colour and an amount, on the slab."""
    colour = np.array([0.5, 0.6, 0.7]) ** 2.2
    return sum((colour * BRIGHT * np.array(light) ** 2.2 * amount for light, amount in lights), np.zeros(3))


AMBIENT = ((0.4, 0, 0), 1)
LEFT = ((0.8, 0.8, 0.8), np.sqrt(0.5))
RIGHT = ((0, 0, 0.5), np.sqrt(0.5))


def test_colours_are_compiled() -> None:
    assert differences(model(), oracle.mujoco.MjModel.from_xml_string(XML)) == []


def test_directional_lights_and_their_shadows() -> None:
    # 8 bits are 1% of a bright channel
    np.testing.assert_allclose(floor(-2, -2), expected(AMBIENT, LEFT, RIGHT), rtol=0.02, atol=2e-3)
    # the plate's shadow is 1 m to its right: only the light without shadows comes there
    np.testing.assert_allclose(floor(0, 0), expected(AMBIENT, RIGHT), rtol=0.02, atol=2e-3)
    # and none lies where the other light would cast one
    np.testing.assert_allclose(floor(-2, 0), expected(AMBIENT, LEFT, RIGHT), rtol=0.02, atol=2e-3)


def test_a_spot_light_in_the_picture() -> None:
    # straight below it, 2.9 m away
    below = ((0, 0.6, 0), 1 / (1 + 0.5 * 2.9 + 0.25 * 2.9**2))
    np.testing.assert_allclose(floor(0, 2), expected(AMBIENT, LEFT, RIGHT, below), rtol=0.02, atol=2e-3)


def test_the_headlight_shines_from_the_camera_in_its_colours() -> None:
    own = model()
    on = own.vis.headlight.replace(active=1, diffuse=[0.2, 0, 0.6], ambient=[0, 0.3, 0], specular=[0, 0, 0])
    shown = own.replace(vis=own.vis.replace(headlight=on))
    # the program of the other picture; the camera looks straight down on the slab
    image = viz.render(shown, diffsim.make_state(shown), "top", size=(SIZE, SIZE), samples=1)
    row, column = int(SIZE / 2), int(SIZE / 2)
    seen = np.asarray(exposed(jnp.asarray(image / 255.0)))[row, column]
    head = (((0.2, 0, 0.6), 1), ((0, 0.3, 0), 1))
    np.testing.assert_allclose(seen, expected(AMBIENT, RIGHT, *head), rtol=0.02, atol=2e-3)


def light(name: str) -> int:
    """The place of a light among those that are drawn."""
    return drawn_lights(model().topology).index(model().id("light", name))


def amounts(name: str, points: np.ndarray) -> jax.Array:
    """The amount of a light that comes to points."""
    ids = drawn_lights(model().topology)
    lamps = Lamps(model().light_pos[np.array(ids)], model().light_dir[np.array(ids)])
    lights = lights_of(model(), ids, lamps, jnp.eye(3))
    one = jax.tree.map(lambda column: column[light(name)], lights)
    return uncompiled(lambda points: incident(one, points, jnp.zeros(3)).amount)(jnp.asarray(points))


def test_cones_and_attenuation() -> None:
    angle = np.radians([0, 20, 29, 31, 90])
    ways = np.stack([np.sin(angle), 0 * angle, -np.cos(angle)], axis=1)
    cone = np.where(angle < np.radians(30), np.cos(angle) ** 4, 0)
    np.testing.assert_allclose(amounts("spot", [0, 2, 3] + 2 * ways), cone / (1 + 0.5 * 2 + 0.25 * 4), atol=1e-6)
    np.testing.assert_allclose(amounts("point", [0, 2, 3] + 2 * ways), np.full(5, 1 / 2), atol=1e-6)
    # where the light itself is there is no direction to it
    assert np.isfinite(amounts("point", np.array([[0.0, 2, 3]]))).all()


def test_a_model_without_active_lights_has_a_sun() -> None:
    assert [model().name("light", k) for k in drawn_lights(model().topology)] == ["", "", "spot", "point"]
    dark = diffsim.load("<mujoco><worldbody><light active='false'/><light type='image'/></worldbody></mujoco>")
    assert drawn_lights(dark.topology) == ()

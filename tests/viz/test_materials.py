"""Textures, materials, skies, tendons: each pixel beside what was worked out by hand; one picture shows them all."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from compiler import asset_files
from oracle import load_with_assets

import diffsim
from diffsim import viz
from diffsim.compiler.convert import from_mujoco
from diffsim.viz.material import visible_geoms
from diffsim.viz.scene import tendon_lines
from diffsim.viz.shade import developed, exposed
from diffsim.viz.textures import TextureLookup, atlas_of, images, on_cube, sample

# red, green over blue, yellow
FOUR = np.array([[[255, 0, 0], [0, 255, 0]], [[0, 0, 255], [255, 255, 0]]], np.uint8)
BIG = FOUR.repeat(16, axis=0).repeat(16, axis=1)
XML = """<mujoco><asset>
  <texture name='sky' type='skybox' builtin='flat' rgb1='.2 .4 .6' rgb2='.1 .1 .1' width='8'/>
  <texture name='four' type='2d' file='four.png'/>
  <texture name='faces' type='cube' fileright='r.png' fileup='g.png' rgb1='0 0 1'/>
  <material name='image' texture='four' texuniform='true'/><material name='uv' texture='four' texrepeat='9 9'/>
  <material name='cube' texture='faces'/><material name='lamp' rgba='1 1 1 1' emission='2'/>
  <material name='red' rgba='.9 .1 .1 1'/>
  <mesh name='sheet' vertex='-1 -1 0 1 -1 0 1 1 0 -1 1 0 0 0 -.1' face='0 1 2 0 2 3 1 0 4 2 1 4 3 2 4 0 3 4'
    texcoord='0 0 1 0 1 1 0 1 .5 .5'/>
</asset><worldbody>
  <camera name='top' pos='0 0 10' xyaxes='1 0 0 0 1 0' fovy='60'/>
  <geom type='plane' size='1 1 .1' material='image'/>
  <geom type='mesh' mesh='sheet' material='uv' pos='3 0 0'/>
  <geom type='box' size='.5 .5 .5' material='cube' pos='-3 0 0' euler='90 0 0'/>
  <geom type='box' size='.5 .5 .5' material='cube' pos='-5 0 0' euler='0 -90 0'/>
  <geom type='box' size='.5 .5 .5' material='cube' pos='-5 -2 0'/>
  <geom type='box' size='.5 .5 .5' material='lamp' pos='0 3 0'/><geom type='box' size='.5 .5 .5' pos='2 3 0'/>
  <geom type='box' size='.5 .5 .5' material='red' pos='-2 3 0'/>
  <geom type='box' size='.5 .5 .5' material='red' rgba='.1 .9 .1 1' pos='-4 3 0'/>
  <site name='a' pos='-3 -3 0'/><site name='b' pos='3 -3 0'/>
  <geom name='pole' type='sphere' size='1' pos='0 -3.5 0' rgba='.5 .5 .5 0'/><site name='s' pos='0 -1 0'/>
  <body pos='5 3 0'><joint type='slide'/><geom size='.5' group='3' rgba='.9 .1 .9 1'/></body>
  <body pos='5 -2 0'><joint type='slide'/><geom size='.5' group='3' rgba='.9 .1 .9 1'/><geom size='.2'/></body>
</worldbody><tendon>
  <spatial width='.1' rgba='.9 .9 .1 1'><site site='a'/><geom geom='pole' sidesite='s'/><site site='b'/></spatial>
</tendon></mujoco>"""
SIZE = WIDTH, HEIGHT = (120, 80)
FOCAL = HEIGHT / 2 / np.tan(np.radians(30))


@functools.cache
def model() -> diffsim.Model:
    plain = {
        f"{name}.png": np.tile(np.array(rgb, np.uint8), (4, 4, 1))
        for name, rgb in {"r": (255, 0, 0), "g": (0, 255, 0)}.items()
    }
    files = {name: asset_files.png(pixels) for name, pixels in {"four.png": BIG, **plain}.items()}
    return from_mujoco(load_with_assets(XML, files))


@functools.cache
def pictures() -> np.ndarray:
    """At rest, and with both bodies higher by 2 m, in one program."""
    state = diffsim.make_state(model())
    both = jax.tree.map(lambda *each: jnp.stack(each), state, state.replace(qpos=state.qpos + 2))
    return viz.render(model(), both, "top", size=SIZE, samples=1).astype(int)


def seen(x: float, y: float, z: float, frame: int = 0) -> np.ndarray:
    """The pixel that shows a point."""
    return pictures()[frame][int(HEIGHT / 2 - FOCAL * y / (10 - z)), int(WIDTH / 2 + FOCAL * x / (10 - z))]


def colour(pixel: np.ndarray) -> str:
    """Which of red, green and blue are strong."""
    return "".join(letter for letter, value in zip("rgb", pixel, strict=True) if value > 0.6 * pixel.max())


def test_a_texel_is_seen_in_its_middle_and_blended_between() -> None:
    atlas = atlas_of(model().topology)
    (four,) = (k for k in range(3) if model().name("texture", k) == "four")
    np.testing.assert_array_equal(images(model().topology)[four][0], BIG)

    def look(place: tuple[float, float], footprint: float) -> np.ndarray:
        lookup = TextureLookup(jnp.array([four]), jnp.array([0]), jnp.array([place]), jnp.array([footprint]))
        return np.asarray(255 * sample(atlas, lookup))[0]

    np.testing.assert_allclose(look((8.5 / 32, 8.5 / 32), 1), [255, 0, 0], atol=1e-3)
    # between four texels, and over the rim, where the image begins anew
    np.testing.assert_allclose(look((0.5, 0.5), 1), [127.5, 127.5, 63.75], atol=1e-3)
    np.testing.assert_allclose(look((0.0, 0.0), 1), [127.5, 127.5, 63.75], atol=1e-3)
    np.testing.assert_allclose(look((0.25, 0.9), 32), [128, 128, 64], atol=1)
    # half of the weight at size 16 and half at 8: both are one colour there
    np.testing.assert_allclose(look((0.25, 0.25), 2**1.5), [255, 0, 0], atol=1e-3)


def test_faces_of_a_cube() -> None:
    sides = jnp.array(
        [[1, 0.5, -0.25], [-1, 0.5, -0.25], [0.5, 1, 0.25], [0.5, -1, 0.25], [0.5, 0.25, 1], [0.5, 0.25, -1]]
    )
    face, place, largest = on_cube(2.0 * sides)
    np.testing.assert_array_equal(face, np.arange(6))
    np.testing.assert_allclose(largest, 2)
    expected = [[0.625, 0.25], [0.375, 0.25], [0.75, 0.625], [0.75, 0.375], [0.75, 0.375], [0.25, 0.375]]
    np.testing.assert_allclose(place, expected)


def test_an_image_lies_on_a_floor_with_its_top_away() -> None:
    # one repeat is 2 m wide and begins at -1
    found = [colour(seen(x, y, 0)) for x, y in ((-0.5, 0.5), (0.5, 0.5), (-0.5, -0.5), (0.5, -0.5))]
    assert found == ["r", "g", "b", "rg"]


def test_a_mesh_has_its_own_coordinates() -> None:
    # the first row of the image is at v = 0, here y = -1; texrepeat plays no part
    found = [colour(seen(3 + x, y, 0)) for x, y in ((-0.5, -0.5), (0.5, -0.5), (-0.5, 0.5), (0.5, 0.5))]
    assert found == ["r", "g", "b", "rg"]


def test_cubes_show_the_face_that_is_up() -> None:
    # y, x and z; the last has no file and thus the colour rgb1
    assert [colour(seen(x, y, 0.5)) for x, y in ((-3, 0), (-5, 0), (-5, -2))] == ["g", "r", "b"]


def test_materials_and_colours_of_geoms() -> None:
    lamp, gray, red, green = (seen(x, 3, 0.5) for x in (0, 2, -2, -4))
    assert lamp.min() > gray.max() + 30
    # a geom's own colour comes before its material's
    assert colour(red) == "r" and colour(green) == "g"


def test_a_tendon_goes_around_its_geom() -> None:
    assert colour(seen(-2.5, -2.95, 0)) == "rg"
    # the pole cannot be seen, so that what is inside of it can: half as wide, on the side of the site
    lines = jax.jit(tendon_lines)(model(), viz.poses_of(model(), diffsim.make_state(model())))
    np.testing.assert_allclose(lines.radius, [0.1, 0.05, 0.1])
    touch = np.asarray(lines.start[1:])
    np.testing.assert_allclose(np.linalg.norm(touch - [0, -3.5, 0], axis=1), 1, atol=1e-6)
    assert colour(seen(*touch.mean(axis=0))) == "rg" and touch[0, 1] > -3
    assert colour(seen(0, -3, 0)) != "rg"


def test_a_body_without_anything_to_be_seen_shows_where_it_collides() -> None:
    assert visible_geoms(model())[-3:].tolist() == [True, False, True]
    assert colour(seen(5, 3, 0.5)) == "rb"


def test_the_sky_has_the_colours_of_its_texture() -> None:
    np.testing.assert_allclose(developed(exposed(jnp.linspace(0, 1, 11))), np.linspace(0, 1, 11), atol=1e-6)
    # the camera looks down, on rgb2
    np.testing.assert_allclose(seen(-6, -4, 0), [25, 25, 25], atol=1)


def test_many_frames_in_one_program() -> None:
    assert pictures().shape == (2, HEIGHT, WIDTH, 3)
    higher = (5, 3, 2.5)
    assert colour(seen(*higher, frame=1)) == "rb" != colour(seen(*higher))

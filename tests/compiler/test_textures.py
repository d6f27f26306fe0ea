"""Textures and materials: patterns, images and cubes have the oracle's bytes; wrong ones are refused."""

import struct

import numpy as np
import oracle
import pytest
from compiler import asset_files
from compiler.compare import differences

from diffsim.base.errors import MjcfError
from diffsim.compiler.assets.mersenne_twister import uniform
from diffsim.load import load

COLOURS = 'rgb1=".11 .62 .93" rgb2=".9 .31 .2" markrgb="1 .5 .25"'
RANDOM = np.random.default_rng(3)


def pixels(height: int, width: int, channels: int) -> np.ndarray:
    return RANDOM.integers(0, 256, size=(height, width, channels)).astype(np.uint8)


FILES = {
    **asset_files.field_files(),
    "wide.png": asset_files.png(pixels(8, 6, 3)),
    "cross.png": asset_files.png(pixels(12, 16, 3)),
    "square.png": asset_files.png(pixels(4, 4, 3)),
    "other.png": asset_files.png(pixels(4, 4, 4)),
    "own.bin": struct.pack("<2i", 5, 3) + pixels(3, 5, 3).tobytes(),
}
# the chunk sRGB stands after the header, which is 33 bytes with the signature
FILES["srgb.png"] = FILES["square.png"][:33] + bytes.fromhex("000000017352474200aece1ce9") + (FILES["square.png"][33:])


def model(*attributes: str) -> str:
    textures = "".join(f'<texture name="t{k}" {each}/>' for k, each in enumerate(attributes))
    return f"""<mujoco><compiler texturedir="d"/><asset>{textures}<material name="m" texture="t0"
    texrepeat="2 3" texuniform="true" emission=".1" specular=".2" shininess=".3"/></asset><worldbody>
    <geom size="1" material="m"/></worldbody></mujoco>"""


def same(*attributes: str) -> None:
    """A model with these textures is the oracle's."""
    files = {f"d/{name}": data for name, data in FILES.items()}
    text = model(*attributes)
    assert differences(load(text, assets=files), oracle.load_with_assets(text, files)) == []


@pytest.mark.parametrize(
    "kind", ['type="2d" width="13" height="8"', 'type="cube" width="9"', 'type="skybox" width="8"']
)
def test_patterns_have_the_oracles_bytes(kind: str) -> None:
    same(
        *(
            f'{kind} builtin="{builtin}" mark="{mark}" random=".2" {COLOURS}'
            for mark in ("none", "edge", "cross", "random")
            for builtin in ("gradient", "checker", "flat")
        )
    )


def test_a_fine_gradient_and_a_fourth_channel() -> None:
    same(
        f'type="skybox" builtin="gradient" width="300" {COLOURS}',
        f'type="2d" builtin="gradient" width="300" height="200" {COLOURS}',
        f'type="2d" builtin="checker" width="4" height="4" nchannel="4" {COLOURS}',
    )


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_an_image_gives_the_same_pixels(channels: int) -> None:
    names = [name for name in FILES if name.endswith("png")]
    same(*(f'type="2d" file="{name}" nchannel="{channels}" hflip="true"' for name in names))


def test_cubes_from_images() -> None:
    same(
        'file="square.png" vflip="true"',
        'file="cross.png" gridsize="3 4" gridlayout=".U..LFRB.D.."',
        'file="cross.png" gridsize="3 4" gridlayout=".U..LF.B...." ' + COLOURS,
        f'fileright="square.png" fileback="other.png" {COLOURS}',
        'type="2d" file="own.bin" vflip="true" colorspace="sRGB"',
    )


def test_layers_and_tendons() -> None:
    xml = """<mujoco><asset><texture name="t" type="2d" builtin="flat" width="2" height="2"/>
    <material name="m" metallic=".5" roughness=".2" reflectance=".3"><layer texture="t" role="normal"/>
    <layer texture="t" role="rgb"/></material></asset>
    <worldbody><site name="a"/><site name="b" pos="1 0 0"/></worldbody><tendon>
    <spatial width=".02" rgba="1 0 0 1" material="m"><site site="a"/><site site="b"/></spatial></tendon></mujoco>"""
    ours = load(xml)
    assert differences(ours, oracle.load_oracle(xml)) == []
    assert ours.tendon(0).width == pytest.approx(0.02) and ours.texture("t").data.shape == (12,)
    discarded = model('builtin="flat" width="2"').replace("<mujoco>", '<mujoco><compiler discardvisual="true"/>')
    assert load(discarded).ntex == oracle.load_oracle(discarded).ntex == 0


def test_the_twister_is_the_library_s() -> None:
    # the ten thousandth word of the default seed, by the standard
    assert uniform(5489, 10_000)[-1] == pytest.approx(9981545732273789042 / 2**64, abs=1e-16)


WRONG = {
    "damaged": ('file="bad.png" type="2d"', "damaged PNG"),
    "grid": ('file="wide.png" gridsize="3 4" gridlayout=".U..LFRB.D.."', "not a grid of 3 by 4"),
    "letter": ('file="cross.png" gridsize="3 4" gridlayout=".X..LFRB.D.."', "'X', which is not one of"),
    "faces": ('fileright="square.png" fileleft="wide.png"', "square and of the same size"),
    "channels": ('file="square.png" type="2d" nchannel="2"', "must be 1, 3 or 4, not 2"),
    "cube_channels": ('file="square.png" nchannel="4"', "3 channels, not 4"),
    "builtin_channels": ('type="2d" builtin="flat" width="2" height="2" nchannel="1"', "3 channels, not 1"),
    "nothing": ('type="2d"', "needs attribute 'file' or 'builtin'"),
    "no_face": ('type="cube"', "or a file for each face"),
    "unknown": ('type="2d" file="plain.xyz"', "neither PNG nor"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_texture_is_refused(name: str) -> None:
    attributes, message = WRONG[name]
    files = FILES | {"bad.png": FILES["square.png"][:50], "plain.xyz": b"abc"}
    with pytest.raises(MjcfError, match=message):
        load(model(attributes), assets={f"d/{name}": data for name, data in files.items()})

"""Damaged, wrong and huge assets: refused at once, with file, line, element, asset file and reason."""

import struct
import time
from pathlib import Path

import numpy as np
import pytest
from compiler import asset_files
from compiler.asset_files import TRIANGLES, crooked_box

from diffsim.base.errors import MjcfError, UnsupportedError
from diffsim.load import load

BOX = crooked_box()
STL, MSH = asset_files.stl(BOX, TRIANGLES), asset_files.msh(BOX, TRIANGLES)
OBJ, PNG = asset_files.obj(BOX, TRIANGLES), asset_files.field_files()["gray.png"]
NOT_A_NUMBER = struct.pack("<f", np.nan)

MESH_FILES = {
    "stl_short": ("m.stl", STL[:-1], "not an STL file: 683 bytes for 12 triangles"),
    "stl_header": ("m.stl", STL[:60], "not an STL file"),
    "stl_count": ("m.stl", STL[:80] + struct.pack("<i", 2**31 - 1) + STL[84:], "not an STL file"),
    "stl_huge": ("m.stl", bytes(80) + struct.pack("<i", 200_001) + bytes(50 * 200_001), "200001 triangles, the limit"),
    "stl_nan": ("m.stl", STL[:96] + NOT_A_NUMBER + STL[100:], "not finite"),
    "stl_far": ("m.stl", STL[:96] + struct.pack("<f", 2e9) + STL[100:], r"further out than 2\^30"),
    "stl_text": ("m.stl", asset_files.ascii_stl(BOX, TRIANGLES).replace(b"vertex", b"vertec", 1), "35 vertices for 12"),
    "stl_word": ("m.stl", b"solid\nfacet normal 0 0 1\nvertex a b c\nvertex 1 2 3\nvertex 1 2 3", "not a number"),
    "stl_empty": ("m.stl", b"", "is empty"),
    "stl_flat": ("m.stl", asset_files.stl(BOX * [1, 1, 0], TRIANGLES), "volume of the mesh is too small"),
    "stl_tiny": ("m.stl", asset_files.stl(BOX * 1e-9, TRIANGLES), "surface of the mesh is too small"),
    "obj_word": ("m.obj", OBJ.replace(b"v ", b"v x", 1), "not a number"),
    "obj_short": ("m.obj", OBJ + b"v 1 2\n", "fewer than 3 numbers"),
    "obj_corner": ("m.obj", OBJ + b"f 1 2 99\n", "uses vertex 99, but there are only 8"),
    "obj_zero": ("m.obj", OBJ + b"f 0 1 2\n", "uses vertex 0"),
    "obj_negative": ("m.obj", OBJ + b"f -9 1 2\n", "uses vertex 0"),
    "obj_slashes": ("m.obj", OBJ + b"f 1/1/1/1 2 3\n", "is not a corner"),
    "obj_letters": ("m.obj", OBJ + b"f a b c\n", "is not an integer"),
    "obj_large": ("m.obj", OBJ + b"f 1 2 12345678901234567890\n", "too large"),
    "obj_backtrack": ("m.obj", OBJ + b"f " + b"1" * 5000 + b"x", "uses vertex 2147483648"),
    "obj_infinite": ("m.obj", OBJ.replace(b"v ", b"v 1e99 0 0\nv ", 1), "not finite"),
    "obj_binary": ("m.obj", bytes(range(256)) * 10, "at least 4 vertices"),
    "msh_header": ("m.msh", MSH[:10], "header is missing"),
    "msh_short": ("m.msh", MSH[:-4], "its counts need"),
    "msh_counts": ("m.msh", struct.pack("<4i", 8, 3, 0, 12) + MSH[16:], "its counts are 8 3 0 12"),
    "msh_negative": ("m.msh", struct.pack("<4i", 8, 0, 0, -1) + MSH[16:], "its counts are"),
    "msh_huge": ("m.msh", struct.pack("<4i", 2**31 - 1, 0, 0, 12) + MSH[16:], "vertices, the limit is"),
    "msh_faces": ("m.msh", struct.pack("<4i", 8, 0, 0, 2**31 - 1) + MSH[16:], "triangles, the limit is"),
    "msh_corner": ("m.msh", MSH[:-4] + struct.pack("<i", -5), "but there are only 8"),
    "kind": ("m.ply", STL, "'.ply' is not a supported kind of mesh file"),
    "missing": ("other.stl", STL, "file 'm.stl' does not exist"),
}

FIELD_FILES = {
    "png_bomb": ("h.png", asset_files.bomb(10_000, 10_000), r"100000000 pixels \(10000 by 10000\), the limit"),
    "png_wide": ("h.png", asset_files.bomb(2**31 - 1, 2**31 - 1), "the limit is 16777216"),
    "png_lies": ("h.png", asset_files.bomb(4000, 4000), "damaged PNG"),
    "png_empty": ("h.png", asset_files.bomb(0, 5), "0 by 5 pixels"),
    "png_cut": ("h.png", PNG[:50], "damaged PNG"),
    "png_none": ("h.png", b"GIF89a" + PNG, "not a PNG"),
    "header": ("h.bin", b"1234", "header is missing"),
    "counts": ("h.bin", struct.pack("<2i", 0, 5), "0 rows and 5 columns"),
    "huge": ("h.bin", struct.pack("<2i", 100_000, 100_000), r"10000000000 elevations \(100000 by 100000\), the limit"),
    "short": ("h.bin", struct.pack("<2i", 3, 3) + bytes(35), "43 bytes for 3 by 3"),
    "nan": ("h.bin", struct.pack("<2i3f", 1, 3, 1, np.nan, 2), r"row 0 from the lowest y, column 1\) is not finite"),
    "range": ("h.bin", struct.pack("<2i2f", 1, 2, -3e38, 3e38), "too large for float32"),
    "kind": ("h.stl", STL, "'model/stl' is not a supported kind of height field"),
}

TETRAHEDRON = 'vertex="0 0 0 1 0 0 0 1 0 0 0 1"'
CLOSED = 'face="0 2 1 0 1 3 0 3 2 1 2 3"'
ELEMENTS = {
    "three": ('<mesh name="m" vertex="0 0 0 1 0 0 0 1 0"/>', "at least 4 vertices, 3 given"),
    "flat": ('<mesh name="m" vertex="0 0 0 1 0 0 0 1 0 1 1 0"/>', "in one plane"),
    "line": ('<mesh name="m" vertex="0 0 0 1 0 0 2 0 0 3 0 0"/>', "on one line"),
    "point": ('<mesh name="m" vertex="1 0 0 1 0 0 1 0 0 1 0 0"/>', "in one place"),
    "rest": ('<mesh name="m" vertex="0 0 0 1 0 0 0 1 0 0 0 1 1"/>', "multiple of 3, 13 given"),
    "face": (f'<mesh name="m" {TETRAHEDRON} face="0 1 2 0 1 9"/>', "triangle 1 uses vertices"),
    "face_negative": (f'<mesh name="m" {TETRAHEDRON} face="0 2 1 0 1 -3"/>', "triangle 1 uses vertices"),
    "face_rest": (f'<mesh name="m" {TETRAHEDRON} face="0 2 1 0"/>', "multiple of 3, 4 given"),
    "no_number": (f'<mesh name="m" {TETRAHEDRON.replace("1", "nan", 1)}/>', "'nan' is not a finite number"),
    "far": (f'<mesh name="m" {TETRAHEDRON} {CLOSED} scale="1e12 1 1"/>', "vertex 1 .* further out .* scale right"),
    "degenerate": (f'<mesh name="m" {TETRAHEDRON} face="0 1 1 2 2 3"/>', "surface of the mesh .* is its scale right"),
    "one_face": (f'<mesh name="m" {TETRAHEDRON} inertia="exact" face="0 2 1"/>', "is too small; try inertia"),
    "overflow": ('<mesh name="m" vertex="0 0 0 1 0 0 0 1e300 0 0 0 1"/>', "not finite"),
    "orientation": (
        f'<mesh name="m" {TETRAHEDRON} inertia="exact" face="0 1 2 0 1 3 0 3 2 1 2 3"/>',
        "inconsistent .*counterc",
    ),
    "inside_out": (
        f'<mesh name="m" {TETRAHEDRON} inertia="exact" face="0 1 2 0 3 1 0 2 3 1 3 2"/>',
        "inside out; list",
    ),
    "mirrored": (f'<mesh name="m" {TETRAHEDRON} inertia="convex" scale="-1 1 1"/>', "inside out"),
    "scale": (f'<mesh name="m" {TETRAHEDRON} scale="0 1 1"/>', "too small"),
    "scales": (f'<mesh name="m" {TETRAHEDRON} scale="0 0 0"/>', "surface of the mesh is too small"),
    "texcoord": (f'<mesh name="m" {TETRAHEDRON} texcoord="0 1 2 3"/>', "2 texture coordinates for 4"),
    "twice": ('<mesh name="m" file="m.stl" vertex="0 0 0"/>', "has it already"),
    "params": ('<mesh name="m" builtin="sphere" params="1 2"/>', "takes 1 numbers, 2 given"),
    "sphere": ('<mesh name="m" builtin="sphere" params="5"/>', "from 0 to 4, not 5"),
    "supersphere": ('<mesh name="m" builtin="supersphere" params="100000 1 1"/>', "vertices, the limit"),
    "torus": ('<mesh name="m" builtin="supertorus" params="9 2 1 1"/>', r"radius in \(0, 1\]"),
    "wedge": ('<mesh name="m" builtin="wedge" params="9 9 200 9 0"/>', "field of view"),
    "plate": ('<mesh name="m" builtin="plate" params="99999 99999"/>', "vertices, the limit"),
    "large wedge": (
        '<mesh name="m" builtin="wedge" params="1000 1000 30 30 0"/>',
        "1000000 vertices of a wedge, the limit is",
    ),
    "cone": ('<mesh name="m" builtin="cone" params="-1 1"/>', "from 0 to 5000"),
    "no_field": ('<hfield name="h" size="1 1 1 1"/>', "needs attribute 'file', or 'nrow' and 'ncol'"),
    "field_size": ('<hfield name="h" nrow="2" ncol="2" size="1 1 0 1"/>', "must be positive"),
    "field_nan": ('<hfield name="h" nrow="1" ncol="2" size="1 1 1 1" elevation="0 nan"/>', "'nan' is not a finite"),
    "field_count": ('<hfield name="h" nrow="2" ncol="2" size="1 1 1 1" elevation="0 1 2"/>', "= 4 numbers, 3 given"),
    "field_overflow": (
        '<hfield name="h" nrow="1" ncol="2" size="1 1 1 1" elevation="1e40 0"/>',
        "column 0.* not finite",
    ),
    "field_huge": ('<hfield name="h" nrow="100000" ncol="100000" size="1 1 1 1"/>', "10000000000 elevations"),
    "texture_huge": ('<texture name="t" builtin="flat" width="100000" height="100000"/>', "60000000000 pixels"),
    "texture_none": ('<texture name="t" file="t.png"/>', "does not exist"),
}

GEOMS = {
    "no_mesh": ('<geom type="mesh"/>', "needs attribute 'mesh'"),
    "unknown": ('<geom type="mesh" mesh="n"/>', "there is no mesh 'n'"),
    "no_field": ('<geom type="hfield"/>', "needs attribute 'hfield'"),
    "field_on_box": ('<geom type="box" size="1 1 1" hfield="h"/>', "needs type 'hfield'"),
    "shell": ('<geom type="mesh" mesh="m" shellinertia="true"/>', 'give the mesh inertia="shell"'),
    "fromto": (
        '<geom type="capsule" mesh="m" size="1" fromto="0 0 0 1 1 1"/>',
        "'fromto' and 'mesh' cannot both",
    ),
    "plane": ('<geom type="plane" mesh="m" size="1 1 1"/>', "a plane cannot be fitted"),
}


def refused(message: str, assets: str, geoms: str = "", files: dict[str, bytes] | None = None) -> MjcfError:
    """The error of a model that is refused with a message, which takes no time."""
    began = time.process_time()
    with pytest.raises(MjcfError, match=message) as caught:
        load(f"<mujoco><asset>{assets}</asset>\n<worldbody>{geoms}</worldbody></mujoco>", assets=files)
    assert time.process_time() - began < 1
    assert not isinstance(caught.value, UnsupportedError)
    assert all(problem.line > 0 and problem.element for problem in caught.value.problems)
    return caught.value


@pytest.mark.parametrize("name", MESH_FILES)
def test_a_damaged_mesh_is_refused(name: str) -> None:
    file, data, message = MESH_FILES[name]
    wanted = "m.stl" if name == "missing" else file
    error = refused(message, f'<mesh name="m" file="{wanted}"/>', files={file: data})
    assert error.problems[0].message.startswith(f"file '{wanted}'")


@pytest.mark.parametrize("name", FIELD_FILES)
def test_a_damaged_height_field_is_refused(name: str) -> None:
    file, data, message = FIELD_FILES[name]
    error = refused(message, f'<hfield name="h" size="1 1 1 1" file="{file}"/>', files={file: data})
    assert error.problems[0].message.startswith(f"file '{file}'")


@pytest.mark.parametrize("name", ELEMENTS)
def test_a_wrong_asset_is_refused(name: str) -> None:
    element, message = ELEMENTS[name]
    refused(message, element, files={"m.stl": STL})


@pytest.mark.parametrize("name", GEOMS)
def test_a_geom_without_its_asset_is_refused(name: str) -> None:
    geom, message = GEOMS[name]
    assets = f'<mesh name="m" {TETRAHEDRON}/><hfield name="h" nrow="2" ncol="2" size="1 1 1 1"/>'
    refused(message, assets, geom)


def test_a_texture_bomb_is_refused() -> None:
    bomb = asset_files.bomb(10_000, 10_000)
    refused("100000000 pixels", '<texture name="t" file="t.png"/>', files={"t.png": bomb})


def test_polygons_that_take_long_to_cut_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("diffsim.mjcf.files.ears.MOST_WORK", 5)
    prism, sides = asset_files.star()
    refused("write it as triangles", '<mesh file="m.obj"/>', files={"m.obj": asset_files.obj(prism, sides)})


def test_every_wrong_asset_is_named_at_once() -> None:
    meshes = '<mesh file="a.stl"/>\n<mesh file="b.obj"/>\n<mesh file="m.stl"/>'
    error = refused("does not exist", meshes, files={"m.stl": STL})
    assert [problem.line for problem in error.problems] == [1, 2]


def test_assets_outside_of_the_model_s_folder_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "m.stl").write_bytes(STL)
    (folder / "link.stl").symlink_to(tmp_path / "m.stl")
    for file in ("../m.stl", str(tmp_path / "m.stl"), "link.stl"):
        path = folder / "model.xml"
        path.write_text(f'<mujoco><asset><mesh name="m" file="{file}"/></asset></mujoco>')
        with pytest.raises(MjcfError, match="outside the model's folder"):
            load(path, allow_outside=False)
        assert load(path).topology.nmesh == 1


def test_a_texture_that_may_not_be_opened_is_white_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    path = tmp_path / "model" / "model.xml"
    path.write_text('<mujoco><asset><texture name="t" type="2d" file="../t.png"/></asset></mujoco>')
    with pytest.warns(
        UserWarning, match=r'model.xml:1 <texture name="t"> is white: file .* outside .*pass allow_outside=True'
    ):
        model = load(path, allow_outside=False)
    assert model.topology.tex_data.tolist() == [255, 255, 255]
    with pytest.raises(MjcfError, match=r"file '\.\./t\.png' does not exist"):
        load(path)

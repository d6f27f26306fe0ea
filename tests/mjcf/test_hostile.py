# ruff: noqa: E501
"""Models from strangers: damaged, illegal, extreme; too large; and files that are not theirs to open."""

import os
import pathlib
import sys
import time
from collections.abc import Iterator
from typing import Any

import hostile
import pytest

from diffsim.base.errors import MjcfError
from diffsim.load import load
from diffsim.mjcf import read


@pytest.mark.parametrize(
    "kind", ["damaged", "illegal", "extreme", "structure", "encoding", "asset", "archive", "argument"]
)
def test_hostile_input_passes_or_is_refused(kind: str) -> None:
    """A few of each kind; `make sweep` takes thousands."""
    counts = hostile.judge_kind(kind, range(21))
    assert (counts.crashed, counts.slow, counts.large) == ([], [], [])
    assert counts.refused > 5


def test_what_once_crashed() -> None:
    for text in (
        "<mujoco><worldbody><attach/></worldbody></mujoco>",
        '<mujoco><worldbody><geom type="capsule" size="1" fromto="1e308 0 0 -1e308 0 0"/></worldbody></mujoco>',
        '<mujoco><worldbody><geom size="1e200"/></worldbody></mujoco>',
    ):
        with pytest.raises(MjcfError):
            load(text)


BOMBS = {
    "replicate": ('<worldbody><replicate count="1000000"><geom size="1"/></replicate></worldbody>', "20000"),
    "nested": (
        "<worldbody>" + '<replicate count="99">' * 5 + "<site/>" + "</replicate>" * 5 + "</worldbody>",
        "20000",
    ),
    "nkey": ('<size nkey="2000000000"/>', "at most 10000000"),
    "nuserdata": ('<size nuserdata="2000000000"/>', "at most 10000000"),
    "keys": (
        '<size nkey="9999999"/><worldbody><body><freejoint/><geom size="1"/></body></worldbody>',
        "10000000 numbers",
    ),
    "sensor": ('<sensor><user dim="2000000000"/></sensor>', "10000000 values"),
    "contact": ('<sensor><contact num="2000000000"/></sensor>', "10000000 values"),
    "numeric": ('<custom><numeric name="n" size="2000000000"/></custom>', "at most 500"),
    "depth": (
        "<worldbody>" + "<body>" * 100_000 + "</body>" * 100_000 + "</worldbody>",
        "nested more than|not valid XML",
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_what_would_be_too_large_is_refused_at_once(name: str) -> None:
    inside, limit = BOMBS[name]
    start = time.process_time()
    with pytest.raises(MjcfError, match=limit):
        load(f"<mujoco>{inside}</mujoco>")
    assert time.process_time() - start < 1.0


LAUGHS = "<!DOCTYPE m [<!ENTITY a 'ha'><!ENTITY b '&a;&a;&a;&a;'><!ENTITY c '&b;&b;&b;&b;'>]><mujoco model='&c;'/>"
EXTERNAL = "<!DOCTYPE m [<!ENTITY a SYSTEM 'secret.xml'>]><mujoco>&a;</mujoco>"
PARAMETER = "<!DOCTYPE m SYSTEM 'secret.dtd'><mujoco/>"
XINCLUDE = '<mujoco xmlns:xi="http://www.w3.org/2001/XInclude"><xi:include href="secret.xml"/></mujoco>'
STYLE = '<?xml-stylesheet href="secret.xsl"?><mujoco><include file="file:///etc/passwd"/></mujoco>'


@pytest.mark.parametrize("text", [LAUGHS, EXTERNAL, PARAMETER, XINCLUDE, STYLE])
def test_no_entities_and_no_foreign_includes(text: str) -> None:
    with pytest.raises(MjcfError, match=r"not allowed|unknown element|outside the model|does not exist"):
        read(text)


opened: list[str] = []
watching = False


def _watch(event: str, arguments: Any) -> None:
    if watching and event == "open" and isinstance(arguments[0], str):
        opened.append(os.path.realpath(arguments[0]))


sys.addaudithook(_watch)


@pytest.fixture
def model_folder(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A folder beside a secret; every file opened meanwhile has to lie in it."""
    global watching
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret.xml").write_text("<mujoco><worldbody/></mujoco>")
    (tmp_path / "secret.stl").write_bytes(b"\0" * 200)
    (folder / "link.xml").symlink_to(tmp_path / "secret.xml")
    (folder / "link.stl").symlink_to(tmp_path / "secret.stl")
    (folder / "device.xml").symlink_to("/dev/zero")
    (folder / "up").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe.xml")
    opened.clear()
    watching = True
    yield folder
    watching = False
    code = ("/usr/lib", sys.prefix, sys.base_prefix, str(pathlib.Path(__file__).parents[2]))
    assert [name for name in opened if not name.startswith((str(folder), *code))] == []


NAMES = ("../secret.xml", "link.xml", "up/secret.xml", "/etc/passwd", "device.xml", "/dev/zero", "pipe.xml", "~/x.xml")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("element", ["<include file='{}'/>", "<asset><model name='m' file='{}'/></asset>"])
def test_only_the_models_own_files_are_opened(model_folder: pathlib.Path, name: str, element: str) -> None:
    main = model_folder / "main.xml"
    main.write_text("<mujoco>" + element.format(name) + "</mujoco>")
    with pytest.raises(MjcfError, match=r"outside the model's folder|does not exist|cannot be read"):
        read(main, allow_outside=False)
    if name in ("device.xml", "/dev/zero", "pipe.xml"):
        # what is no file is not opened in any mode
        with pytest.raises(MjcfError, match=r"does not exist|cannot be read"):
            read(main)


@pytest.mark.parametrize("name", ["../secret.stl", "link.stl", "up/secret.stl", "/dev/zero"])
def test_assets_are_the_models_own_too(model_folder: pathlib.Path, name: str) -> None:
    main = model_folder / "main.xml"
    main.write_text(
        f"<mujoco><asset><mesh name='m' file='{name}'/></asset><worldbody><geom type='mesh' mesh='m'/></worldbody></mujoco>"
    )
    with pytest.raises(MjcfError):
        load(main, allow_outside=False)


SLOW = {
    "comments": "<mujoco>" + "<!--" * 50_000 + "</mujoco>",
    "comment begins": "<mujoco><!-- " + "<!-" * 100_000 + "</mujoco>",
    "attributes": '<mujoco><worldbody><geom size="1" ' + " ".join(f'a{i}="1"' for i in range(100_000)) + "/></worldbody></mujoco>",
    "elements": "<mujoco><worldbody>" + "<gem/>" * 40_000 + "</worldbody></mujoco>",
    "references": "<mujoco><worldbody>" + "".join(f'<geom name="g{i:05d}" size="1"/>' for i in range(5_000))
    + "</worldbody><contact>" + '<pair geom1="h1234" geom2="h2345"/>' * 5_000 + "</contact></mujoco>",
    "digits": f'<mujoco><worldbody><geom size="{"9" * 200_000}x"/></worldbody></mujoco>',
    "a long name": f'<mujoco><worldbody><geom size="1" {"z" * 60_000}="1"/></worldbody></mujoco>',
}  # fmt: skip


@pytest.mark.parametrize("name", SLOW)
def test_time_grows_with_the_text(name: str) -> None:
    start = time.process_time()
    with pytest.raises(MjcfError):
        read(SLOW[name])
    assert time.process_time() - start < 4.0


@pytest.mark.parametrize("encoding", ["utf-7", "idna", "punycode", "unicode_escape", "zlib", "undefined"])
def test_exotic_encodings_are_refused(encoding: str) -> None:
    with pytest.raises(MjcfError, match="is not supported; save the file as UTF-8"):
        read(f'<?xml version="1.0" encoding="{encoding}"?><mujoco/>'.encode())


@pytest.mark.parametrize("encoding", ["utf-8", "UTF-8", "latin-1", "ISO-8859-1", "us-ascii", "windows-1252"])
def test_usual_encodings_are_read(encoding: str) -> None:
    assert read(f'<?xml version="1.0" encoding="{encoding}"?><mujoco model="m"/>'.encode()).model == "m"


def test_models_attached_too_deep_are_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "0.xml").write_text("<mujoco><worldbody><body name='b'/></worldbody></mujoco>")
    for level in range(1, 301):
        asset = f"<asset><model name='m' file='{level - 1}.xml'/></asset>"
        inside = "<worldbody><attach model='m' body='b' prefix=''/></worldbody>"
        (tmp_path / f"{level}.xml").write_text(f"<mujoco>{asset}{inside}</mujoco>")
    with pytest.raises(MjcfError, match="attached more than 32 deep"):
        read(tmp_path / "300.xml")

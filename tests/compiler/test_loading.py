"""load: what it takes and what it refuses; damaged saved models; capacities that a model asks for."""

import io
import json
import os
import pathlib
import pickle
import struct
import zipfile
from typing import Any

import numpy as np
import pytest

from diffsim.base.errors import ArgumentError, CapacityWarning, MissingFileError, MjcfError
from diffsim.load import load

BALL = (
    '<mujoco><worldbody><geom type="plane" size="1 1 1"/><body><freejoint/><geom size="1"/></body></worldbody></mujoco>'
)


@pytest.mark.parametrize("given", [None, 3, ["<mujoco/>"], b"a", {}])
def test_what_is_no_model_is_refused(given: Any) -> None:
    with pytest.raises((ArgumentError, MjcfError)) as error:
        load(given)
    assert str(error.value)


def test_text_may_be_bytes() -> None:
    assert load(BALL.encode()).nv == load(bytearray(BALL.encode())).nv == 6  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["max_contacts", "max_pairs"])
@pytest.mark.parametrize("number", [-1, 2.5, "3", True, 10**12, float("nan")])
def test_a_capacity_is_a_number_of_contacts(name: str, number: Any, tmp_path: pathlib.Path) -> None:
    with pytest.raises(ArgumentError, match=f"{name} is .*, expected an integer from 0"):
        load(BALL, **{name: number})
    with pytest.raises(ArgumentError, match=f"{name} is .*, expected an integer from 0"):
        load(tmp_path / "saved.npz", **{name: number})


def test_only_files_are_opened(tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder.npz").mkdir()
    for name in ("pipe", "folder.npz", ".", "n" * 256, "n" * 5000, "a\0b"):
        with pytest.raises(MjcfError):
            load(tmp_path / name)


@pytest.mark.parametrize("name", ["nope", "nope.xml", "no/such.urdf", "nope.npz"])
def test_a_missing_file_is_one_kind_of_error(
    name: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"no such file|does not exist") as caught:
        load(name)
    assert isinstance(caught.value, MissingFileError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize("element", ["<include file='{}'/>", "<asset><mesh name='m' file='{}'/></asset>"])
def test_names_of_files_may_be_too_long(element: str, tmp_path: pathlib.Path) -> None:
    shown = "<worldbody><geom type='mesh' mesh='m'/></worldbody>" if "mesh" in element else ""
    (tmp_path / "m.xml").write_text("<mujoco>" + element.format("n" * 256 + ".stl") + shown + "</mujoco>")
    with pytest.raises(MjcfError, match="is not a file name"):
        load(tmp_path / "m.xml")


# ------------------------------------------------------------------------------------------------------ saved models


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("saved") / "ball.npz"
    load(BALL).save(path)
    return path.read_bytes()


def _patched(data: bytes, place: int, value: int) -> bytes:
    """The archive with a field of every header changed; `place`: its offset in local headers (directory: 2 more)."""
    changed = bytearray(data)
    for signature, offset in ((b"PK\x03\x04", place), (b"PK\x01\x02", place + 2)):
        start = 0
        while (start := data.find(signature, start)) >= 0:
            struct.pack_into("<H", changed, start + offset, value)
            start += 4
    return bytes(changed)


def _with_facts(data: bytes, facts: bytes) -> bytes:
    with np.load(io.BytesIO(data)) as file:
        arrays = {name: file[name] for name in file.files}
    arrays["facts"] = np.frombuffer(facts, np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


DAMAGES = {
    "encrypted": lambda data: _patched(data, 6, 1),
    "patched data": lambda data: _patched(data, 6, 0x20),
    "strong encryption": lambda data: _patched(data, 6, 0x40),
    "version": lambda data: _patched(data, 4, 99),
    "method": lambda data: _patched(data, 8, 97),
    "bzip2": lambda data: _patched(data, 8, zipfile.ZIP_BZIP2),
    "lzma": lambda data: _patched(data, 8, zipfile.ZIP_LZMA),
    "nesting": lambda data: _with_facts(data, b"[" * 100_000 + b"]" * 100_000),
    "no object": lambda data: _with_facts(data, b"3"),
    "deep facts": lambda data: _with_facts(
        data, json.dumps({"format": "diffsim model", "version": 1, "digest": "", "facts": []}).encode()
    ),
    "cut": lambda data: data[: len(data) // 2],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_saved_model_is_refused(damage: str, saved: bytes, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "damaged.npz"
    path.write_bytes(DAMAGES[damage](saved))
    with pytest.raises(MjcfError, match=r"not a saved model|does not fit|damaged"):
        load(path)


# -------------------------------------------------------------------------------------------------------- capacities


def test_a_model_that_cuts_its_contacts_warns() -> None:
    cut = BALL.replace("</worldbody>", '<body><freejoint/><geom type="box" size="1 1 1"/></body></worldbody>').replace(
        "</mujoco>", '<custom><numeric name="max_contact_points" data="2"/></custom></mujoco>'
    )
    with pytest.warns(CapacityWarning, match="keep at most 2 contacts; without"):
        assert load(cut).topology.max_contacts == 2
    # who gives the number knows it
    assert load(cut, max_contacts=3).topology.max_contacts == 3
    assert load(cut.replace('data="2"', 'data="1000"')).topology.max_contacts == 1000

"""Damaged files of saved models: bytes, zip entries and headers changed; seeded."""

import functools
import io
import json
import pathlib
import tempfile
import zipfile

import numpy as np
from compiler.features import FEATURES

import diffsim
from hostile.files import damaged
from hostile.judge import Case

SOURCES = ("joints", "servos", "sensors", "custom")
VALUES = (None, True, -1, 0, 2**70, 1e308, float("nan"), "", "a", [], [[]], {}, {"a": [1]}, [1, "a"], "9" * 5000)
DTYPES = (np.float64, np.float16, np.int8, np.int64, np.bool_, np.complex64, "S3", "U2", "M8[s]", "V4")
# places of a zip entry's local and central header: flags, method, sizes
FIELDS = {b"PK\x03\x04": (6, 8, 18, 22, 26), b"PK\x01\x02": (6, 8, 10, 20, 24, 28, 42)}


@functools.cache
def folder() -> pathlib.Path:
    """Where the files lie, of this process."""
    return pathlib.Path(tempfile.mkdtemp())


@functools.cache
def saved(name: str) -> bytes:
    """The bytes of a saved model."""
    path = folder() / name
    diffsim.load(FEATURES[name]).save(path)
    return path.read_bytes()


def with_fields(data: bytes, rng: np.random.Generator) -> bytes:
    """Numbers of zip headers changed."""
    out = bytearray(data)
    for _ in range(rng.integers(1, 4)):
        mark = list(FIELDS)[rng.integers(2)]
        places = [k for k in range(len(data) - 46) if data.startswith(mark, k)]
        at = int(rng.choice(places)) + int(rng.choice(FIELDS[mark]))
        out[at : at + 2] = int(rng.choice([0, 1, 8, 9, 12, 14, 95, 99, 255, 2**15, 2**16 - 1])).to_bytes(2, "little")
    return bytes(out)


def with_entries(data: bytes, rng: np.random.Generator) -> bytes:
    """Entries removed, doubled, emptied, of other types and shapes, or put in another way."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = [(name, archive.read(name)) for name in archive.namelist()]
    for _ in range(rng.integers(1, 4)):
        at = int(rng.integers(len(entries)))
        name, content = entries[at]
        entries[at] = CHANGES[rng.integers(len(CHANGES))](name, content, rng)
    method = int(rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in entries:
            archive.writestr(name, content)
    return buffer.getvalue()


def _renamed(name: str, content: bytes, rng: np.random.Generator) -> tuple[str, bytes]:
    return str(
        rng.choice(["a.npy", "../a.npy", "facts", "topology/a.npy", "opt.npy", "x" * 5000, "a/b/c/d.npy"])
    ), content


def _cut(name: str, content: bytes, rng: np.random.Generator) -> tuple[str, bytes]:
    return name, content[: int(rng.integers(len(content) + 1))]


def _torn(name: str, content: bytes, rng: np.random.Generator) -> tuple[str, bytes]:
    return name, damaged(content, rng)


def _retyped(name: str, content: bytes, rng: np.random.Generator) -> tuple[str, bytes]:
    shape = [(), (0,), (1,), (7,), (2, 3), (1, 1, 1, 1), (10**6,)][rng.integers(7)]
    return name, _npy(np.zeros(shape, DTYPES[rng.integers(len(DTYPES))]))


def _claimed(name: str, content: bytes, rng: np.random.Generator) -> tuple[str, bytes]:
    shape = ["(900000000000,)", "(-1,)", "(0, 0, 0)", "(1" + ", 1" * 5000 + ")", "('a',)", "[1]"][rng.integers(6)]
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".encode().ljust(60) + b"\n"
    return name, b"\x93NUMPY\x01\x00" + (len(header) % 2**16).to_bytes(2, "little") + header + b"\0" * 64


def _pickled(name: str, content: bytes, rng: np.random.Generator) -> tuple[str, bytes]:
    buffer = io.BytesIO()
    np.save(buffer, np.array([{}], object), allow_pickle=True)
    return name, buffer.getvalue()


CHANGES = (_renamed, _cut, _torn, _retyped, _claimed, _pickled)


def with_header(data: bytes, rng: np.random.Generator) -> bytes:
    """Facts of the header changed, removed or added."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    header = json.loads(np.load(io.BytesIO(entries["facts.npy"])).tobytes())
    for _ in range(rng.integers(1, 4)):
        table = header if rng.random() < 0.3 or not isinstance(header.get("facts"), dict) else header["facts"]
        key = [*sorted(table), "a", "topology/a"][rng.integers(len(table) + 2)]
        table[key] = VALUES[rng.integers(len(VALUES))]
        if rng.random() < 0.3:
            del table[key]
    text = json.dumps(header).encode() if rng.random() < 0.9 else b"[" * 10**5
    entries["facts.npy"] = _npy(np.frombuffer(text, np.uint8))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def _npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


DAMAGES = (damaged, with_fields, with_entries, with_header)


def case(seed: int) -> Case:
    """A damaged file, loaded."""
    rng = np.random.default_rng(seed)
    data = DAMAGES[seed % len(DAMAGES)](saved(SOURCES[rng.integers(len(SOURCES))]), rng)
    path = folder() / "damaged.npz"

    def load() -> object:
        path.write_bytes(data)
        return diffsim.load(path)

    return load

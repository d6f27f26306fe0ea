"""Damaged mesh, PNG and height field files, seeded, and models that use them."""

import numpy as np
from compiler import asset_files

import diffsim
from hostile.judge import Case

SEEDS = {
    **asset_files.mesh_files(),
    "text.stl": asset_files.ascii_stl(asset_files.crooked_box(), asset_files.TRIANGLES),
    **asset_files.field_files(),
}
EXTREMES = [0, 1, -1, 3, 2**31 - 1, -(2**31), 2**16, 0x7F800000, 0x7FC00000, -0x800000, 12, 200_000, 10_000]
WORDS = [
    b"nan",
    b"inf",
    b"-1",
    b"0",
    b"1e300",
    b"1e37",
    b"99999999999",
    b"/",
    b"//",
    b"v",
    b"f",
    b"vertex",
    b"\xff",
    b"-",
    b"1/1",
]


def damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """The file with one to four things done to it."""
    for _ in range(rng.integers(1, 5)):
        at = int(rng.integers(0, max(1, len(data))))
        kind = rng.integers(0, 7)
        if kind == 0:
            data = data[:at]
        elif kind == 1:
            data = data[:at] + bytes([int(rng.integers(0, 256))]) + data[at + 1 :]
        elif kind == 2:
            at -= at % 4
            data = data[:at] + (int(rng.choice(EXTREMES)) % 2**32).to_bytes(4, "little") + data[at + 4 :]
        elif kind == 3:
            # big-endian numbers of a PNG header
            data = data[:16] + (int(rng.choice(EXTREMES)) % 2**32).to_bytes(4, "big") + data[20:]
        elif kind == 4:
            data = data[:at] + data[at : at + int(rng.integers(1, 200))] * int(rng.integers(2, 50)) + data[at:]
        elif kind == 5:
            data = data[:at] + data[at + int(rng.integers(1, 60)) :]
        else:
            words = data.split(b" ")
            words[int(rng.integers(0, len(words)))] = WORDS[int(rng.integers(0, len(WORDS)))]
            data = b" ".join(words)
    return data


def model_with(name: str, rng: np.random.Generator) -> str:
    """A model that uses the file."""
    if name in asset_files.field_files():
        seen = 'type="hfield" hfield="a"'
        asset = f'<hfield name="a" size="1 1 1 1" file="{name}"/>'
    else:
        inertia = rng.choice(["legacy", "convex", "exact", "shell"])
        seen = f'type="{rng.choice(["mesh", "box"])}" mesh="a"'
        asset = f'<mesh name="a" file="{name}" inertia="{inertia}" maxhullvert="{rng.choice([-1, 5])}"/>'
    return f"<mujoco><asset>{asset}</asset><worldbody><geom {seen}/></worldbody></mujoco>"


def case(seed: int) -> Case:
    """A model with a damaged file, loaded."""
    rng = np.random.default_rng(seed)
    name = list(SEEDS)[seed % len(SEEDS)]
    xml, data = model_with(name, rng), damaged(SEEDS[name], rng)
    return lambda: diffsim.load(xml, assets={name: data})

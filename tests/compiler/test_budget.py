"""Models that are legal line by line and too large in all: refused soon, with the number and the element."""

import pathlib
import time

import numpy as np
import pytest

from diffsim.base.errors import MjcfError
from diffsim.compiler import budget
from diffsim.load import load

BALL = '<geom size="1" contype="0" conaffinity="0"/>'
TOO_MANY = {
    "bodies": (
        f'<worldbody><replicate count="2500"><body name="b"><freejoint/>{BALL}</body></replicate></worldbody>',
        r'<freejoint>: from here on the model has more than \d+ degrees of freedom, 15000 in total',
    ),
    "static geoms": (
        f'<worldbody><replicate count="50000">{BALL}</replicate></worldbody>',
        "macros up to here would make more than 20000 elements",
    ),
    "static geoms in full": (
        f"<worldbody>{BALL * 60_000}</worldbody>",
        "the model has 60002 elements, more than 25000",
    ),
    "geoms": (
        f'<worldbody><replicate count="7000">{BALL}</replicate></worldbody>',
        r"<geom>: from here on the model has more than \d+ geoms, 7000 in total",
    ),
    "pairs": (
        '<worldbody><replicate count="2900"><geom size="1"/></replicate>'
        '<body><freejoint/><replicate count="2900"><geom size="1"/></replicate></body></worldbody>',
        r"<geom>: 8410000 pairs of geoms could touch, 2900 of them with this geom",
    ),
    "keys": (
        f'<worldbody><replicate count="300"><body><freejoint/>{BALL}</body></replicate></worldbody>'
        '<keyframe>' + '<key/>' * 20_000 + '</keyframe>',
        r"<replicate>: with one keyframe for each copy the model has 6020000, more than 25000",
    ),
    "one tree": (
        f'<worldbody><body name="b"><joint/>{BALL}<replicate count="3000"><body><joint/>{BALL}</body></replicate>'
        '</body></worldbody>',
        r'<body name="b">: the tree has 3001 bodies and 3001 degrees of freedom, too many for its derived constants',
    ),
    "actuators": (
        f'<worldbody><body><joint name="j"/>{BALL}</body></worldbody>'
        '<actuator>' + '<motor joint="j"/>' * 12_001 + '</actuator>',
        r"<motor>: from here on the model has more than 12000 actuators, 12001 in total",
    ),
    "activations of the longest, for each": (
        f'<worldbody><body><joint name="j"/>{BALL}</body></worldbody><actuator>'
        '<general name="a" joint="j" dyntype="user" actdim="9000000"/><motor joint="j"/></actuator>',
        r'<general name="a">: 2 actuators with as many activations as this one have more than 10000000',
    ),
    "activations": (
        f'<worldbody><body><joint name="j"/>{BALL}</body></worldbody>'
        '<actuator><general name="a" joint="j" dyntype="integrator" actdim="2147483647"/></actuator>',
        r'<general name="a">: from here on the model has more than 10000000 activations, 2147483647 in total',
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TOO_MANY)
def test_too_much_is_refused_with_number_and_element(name: str) -> None:
    inside, message = TOO_MANY[name]
    start = time.process_time()
    with pytest.raises(MjcfError, match=message):
        load(f"<mujoco>{inside}</mujoco>")
    assert time.process_time() - start < 5.0


def test_attaching_twice_again_and_again_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "0.xml").write_text(f'<mujoco><worldbody><body name="b"><freejoint/>{BALL}</body></worldbody></mujoco>')
    for level in range(1, 12):
        twice = "".join(f'<frame><attach model="m" prefix="{side}"/></frame>' for side in "lr")
        text = f'<asset><model name="m" file="{level - 1}.xml"/></asset><worldbody>{twice}</worldbody>'
        (tmp_path / f"{level}.xml").write_text(f"<mujoco>{text}</mujoco>")
    start = time.process_time()
    with pytest.raises(MjcfError, match="12288 in total"):
        load(tmp_path / "11.xml")
    assert time.process_time() - start < 10.0


def test_a_hundred_dofs_under_the_limit_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    text = f'<mujoco><worldbody><replicate count="3"><body><freejoint/>{BALL}</body></replicate></worldbody></mujoco>'
    monkeypatch.setattr(budget, "MOST_DOFS", 18)
    assert load(text).nv == 18
    monkeypatch.setattr(budget, "MOST_DOFS", 17)
    with pytest.raises(MjcfError, match="more than 17 degrees of freedom, 18 in total"):
        load(text)


FREE = '<body pos="0 0 2"><freejoint/><geom size=".1"/>{}</body>'
SCENES = {"free bodies": (1000, FREE.format("")), "chains": (100, FREE)}


@pytest.mark.parametrize("name", SCENES)
def test_large_honest_scenes_load_soon(name: str) -> None:
    limb = '<body pos="0 0 -.1"><joint axis="0 1 0"/><geom type="capsule" size=".03 .05"/>{}</body>'
    limbs = "".join(limb.format(limb.format(limb.format(""))) for _ in range(7))
    count, body = SCENES[name]
    inside = f'<replicate count="{count}" offset=".3 0 0">{body.format(limbs)}</replicate>'
    text = f"<mujoco><worldbody>{inside}</worldbody></mujoco>"
    start = time.process_time()
    model = load(text)
    assert time.process_time() - start < 5.0
    # body by body as for one alone
    alone = load(text.replace(f'count="{count}"', 'count="1"')).body_invweight0[1:]
    weights = np.asarray(model.body_invweight0[1:]).reshape(count, *alone.shape)
    np.testing.assert_allclose(weights[[0, -1]], np.stack([alone, alone]), rtol=1e-9)

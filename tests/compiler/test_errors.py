"""Models that the compiler refuses: all problems at once, each with its line and how to mend it."""

import pytest
from compiler.features import TWO, world

from diffsim.base.errors import MjcfError, UnsupportedError
from diffsim.load import load

BALL = '<geom size=".1"/>'

WRONG = {
    "parallel_slides": (
        world(f'<body><joint name="a" type="slide"/><joint name="b" type="slide"/>{BALL}</body>'),
        r'degrees of freedom \[0, 1\] of <joint name="a"> \(line 1\) and <joint name="b"> \(line 1\)',
    ),
    "fromto_sphere": (world('<geom size="1" fromto="0 0 0 1 1 1"/>'), "'fromto' needs"),
    "fromto_and_pos": (
        world('<geom type="capsule" size="1" pos="1 0 0" fromto="0 0 0 1 1 1"/>'),
        "'pos' and 'fromto' cannot both be given",
    ),
    "endless_length": (
        world(f'<body><joint name="j"/>{BALL}</body>', '<actuator><muscle joint="j"/></actuator>'),
        "does not come to rest",
    ),
    "long_measurement": (
        world(TWO, '<compiler><lengthrange timestep="1e-9"/></compiler><actuator><muscle joint="j2"/></actuator>'),
        "more than 100000 steps",
    ),
}

LACKS = {
    "sensor": (
        world(
            '<geom name="g" size="1"/><body><plugin plugin="my.wind"/></body>',
            '<extension><plugin plugin="my.wind"/></extension>',
        ),
        "no body can use plugin 'my.wind'",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_model_is_refused(name: str) -> None:
    text, message = WRONG[name]
    with pytest.raises(MjcfError, match=message) as caught:
        load(text)
    assert not isinstance(caught.value, UnsupportedError)
    assert all(problem.line > 0 and problem.element for problem in caught.value.problems)


@pytest.mark.parametrize("name", LACKS)
def test_an_unsupported_model_is_refused(name: str) -> None:
    text, message = LACKS[name]
    with pytest.raises(UnsupportedError, match=message):
        load(text)


def test_problems_of_a_pass_come_together() -> None:
    inside = f'<body><joint axis="0 0 0"/>{BALL}</body>\n<body><joint range="1 0" limited="true"/>{BALL}</body>'
    with pytest.raises(MjcfError) as caught:
        load(world(inside))
    assert [problem.line for problem in caught.value.problems] == [1, 2]

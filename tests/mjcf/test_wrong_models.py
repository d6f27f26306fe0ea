"""Every wrong model of the table is refused in the words that the table has, and the oracle judges as it says."""

from collections import Counter

import oracle
import pytest
from mjcf.wrong_models import ROWS, SHARED

from diffsim.base.errors import MjcfError, UnsupportedError
from diffsim.load import load

VERDICTS = ("refuses", "loads", "unasked")


def complete(text: str) -> str:
    """The XML of a row, with the shared parts put in."""
    for word, part in SHARED.items():
        text = text.replace(word, part)
    return text


@pytest.mark.parametrize(("text", "message", "verdict"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_a_wrong_model(text: str, message: str, verdict: str) -> None:
    with pytest.raises(MjcfError) as caught:
        load(complete(text))
    assert not isinstance(caught.value, UnsupportedError)
    assert str(caught.value) == message
    assert all(problem.file == "<xml>" and problem.line for problem in caught.value.problems)
    if verdict != "unasked":
        assert oracle.refuses(complete(text)) == (verdict == "refuses")


def test_the_table_is_large_and_its_names_are_unique() -> None:
    assert max(Counter(row[0] for row in ROWS).values()) == 1
    counts = Counter(row[3] for row in ROWS)
    assert set(counts) <= set(VERDICTS)
    assert counts["refuses"] >= 300

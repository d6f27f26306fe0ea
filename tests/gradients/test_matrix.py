"""A few entries of the gradient matrix (tests/gradient_matrix.py): by Newton and with noslip."""

import pytest
from gradient_matrix import BAR, MODELS, Combination, check, combinations

from diffsim.enums import Cone, Integrator

CASES = [
    Combination("dof friction", Cone.PYRAMIDAL, "noslip", Integrator.EULER),
    Combination("contact 4", Cone.ELLIPTIC, "newton", Integrator.EULER),
]


@pytest.mark.parametrize("entry", CASES, ids=lambda entry: "-".join(map(str, entry)))
def test_entry(entry: Combination) -> None:
    outcome = check(entry)
    assert outcome.difference <= BAR and outcome.modes <= 1e-9
    assert not outcome.unresolved


def test_every_family_is_in_the_matrix() -> None:
    names = {entry.family for entry in combinations(full=False)}
    assert names == set(MODELS)

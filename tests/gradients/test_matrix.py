"""One entry of the gradient matrix; the rest is tests/gradient_matrix.py, noslip also tests/solver/test_noslip.py."""

from gradient_matrix import BAR, MODELS, Combination, check, combinations
from uncompiled import uncompiled

from diffsim.base.enums import Cone, Integrator


def test_elliptic_contacts_by_newton() -> None:
    outcome = check(Combination("contact 4", Cone.ELLIPTIC, "newton", Integrator.EULER), compiled=uncompiled)
    assert outcome.difference <= BAR and outcome.modes <= 1e-9
    assert not outcome.unresolved


def test_every_family_is_in_the_matrix() -> None:
    names = {entry.family for entry in combinations(full=False)}
    assert names == set(MODELS)

"""Random hulls on planes have the oracle's contacts and accelerations; `make measure WHAT=families` compares 200."""

from geometry.plane_hulls import compare


def test_random_hulls_on_a_plane_move_as_in_the_oracle() -> None:
    found = compare(10, 6, seed=1)
    assert found.contacts > 60
    assert found.other == 0 and found.qacc < 1e-6

"""The same program on the same batch gives the same bits, in any order of the worlds, on one device and on two."""

from tests.api.on_devices import output_of


def test_equal_programs_give_equal_bits() -> None:
    first, *lines = output_of("two_runs.py", 2)
    assert first == "contacts True differ True"
    found = dict(line.split() for line in lines)
    apart = float(found.pop("apart_from_one_device"))
    assert found == {
        "again": "True",
        "permuted": "True",
        "compiled_again": "True",
        "devices": "2",
        "again_on_two_devices": "True",
        "permuted_on_two_devices": "True",
    }
    # other batch sizes differ by rounding at most (float32)
    assert apart < 1e-3

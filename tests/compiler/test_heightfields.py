"""Height fields: every source compiles as in the oracle."""

import oracle
import pytest
from compiler import asset_files
from compiler.compare import differences

from diffsim.load import load

FILES = asset_files.field_files()


def field(attributes: str, assets: dict[str, bytes] | None = None) -> None:
    """A model with one height field is the oracle's."""
    xml = f"""<mujoco><compiler meshdir="d"/><asset><hfield name="h" size="1 2 .5 .1" {attributes}/></asset><worldbody>
    <geom type="hfield" hfield="h" pos="0 0 1" contype="0" conaffinity="0"/><geom size=".1"/></worldbody></mujoco>"""
    assert differences(load(xml, assets=assets), oracle.load_with_assets(xml, assets or {})) == []


@pytest.mark.parametrize("file", FILES)
def test_a_file_gives_the_same_elevations(file: str) -> None:
    field(f'file="{file}"', {f"d/{file}": FILES[file]})


@pytest.mark.parametrize(
    "attributes",
    ['nrow="2" ncol="3"', 'nrow="2" ncol="3" elevation="1 2 3 4 5 6"', 'nrow="1" ncol="1" elevation="7"'],
)
def test_numbers_give_the_same_elevations(attributes: str) -> None:
    field(attributes)


def test_a_huge_field_that_does_not_move_has_no_inertia_that_could_overflow() -> None:
    xml = """<mujoco><asset><hfield name="h" nrow="2" ncol="2" size="1e30 2 .5 .1"/></asset>
    <worldbody><geom type="hfield" hfield="h"/></worldbody></mujoco>"""
    assert differences(load(xml), oracle.load_oracle(xml)) == []


def test_the_content_type_decides_over_the_ending() -> None:
    field('file="f.bin" content_type="image/png"', {"d/f.bin": FILES["gray.png"]})
    field('file="f.xyz"', {"d/f.xyz": FILES["binary.bin"]})


def test_a_field_on_a_moving_body_has_the_mass_of_its_box() -> None:
    xml = """<mujoco><asset><hfield name="h" nrow="2" ncol="2" size="1 2 .5 .1"/></asset><worldbody>
    <body><freejoint/><geom type="hfield" hfield="h"/></body></worldbody></mujoco>"""
    assert differences(load(xml), oracle.load_oracle(xml)) == []


def test_real_height_fields_compile_as_in_the_oracle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("diffsim.compiler.passes.check_model", lambda draft, model: None)
    path = "dm_control/suite/quadruped.xml"
    assert differences(load(oracle.package_path(path)), oracle.load_oracle(path)) == []

"""Everything that the oracle's compiler computes, field by field, on small models of one feature and on real ones."""

import pathlib

import oracle
import pytest
from compiler.compare import differences, share_traces
from compiler.features import FEATURES

import diffsim.compiler
from diffsim.base.errors import UnsupportedError
from diffsim.load import load

# a file that compiles and cannot be simulated, and the reason
REFUSED = """<mujoco><asset><mesh name="m" vertex="0 0 0 1 0 0 0 1 0 0 0 1"/><hfield name="h" nrow="2" ncol="2"
  elevation="0 0 0 1" size="1 1 1 1"/></asset><worldbody><geom type="hfield" hfield="h"/><body><freejoint/>
  <geom name="g" size=".1"/></body></worldbody><sensor><tactile geom="g" mesh="m"/></sensor></mujoco>"""


@pytest.fixture
def all_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile also what the physics lacks: here the compiler alone is on trial."""
    monkeypatch.setattr("diffsim.compiler.passes.check_model", lambda draft, model: None)
    monkeypatch.setattr("diffsim.compiler.passes.check_elements", lambda draft: None)
    share_traces(monkeypatch)


@pytest.mark.parametrize("name", FEATURES)
def test_a_feature_compiles_as_in_the_oracle(name: str, all_supported: None) -> None:
    assert differences(load(FEATURES[name]), oracle.load_oracle(FEATURES[name])) == []


# `make corpus` compiles all of the packages' models
REAL = [
    "dm_control/suite/fish.xml",
    "dm_control/suite/humanoid_CMU.xml",
    "dm_control/suite/manipulator.xml",
    "dm_control/locomotion/walkers/assets/rodent.xml",
    "dm_control/locomotion/soccer/assets/boxhead/boxhead.xml",
    "gymnasium/envs/mujoco/assets/humanoidstandup.xml",
    "gymnasium/envs/mujoco/assets/pusher_v5.xml",
    "mujoco/mjx/test_data/constraints.xml",
    "mujoco/mjx/test_data/tendon/tendon.xml",
]


@pytest.mark.parametrize("path", REAL)
def test_a_real_model_compiles_as_in_the_oracle(path: str, all_supported: None) -> None:
    model = load(oracle.package_path(path))
    assert differences(model, oracle.load_oracle(path)) == []
    converted = diffsim.compiler.from_mujoco(oracle.load_oracle(path))
    assert model.topology == converted.topology


def test_what_is_not_supported_is_refused_by_name(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "refused.xml"
    file.write_text(REFUSED)
    with pytest.raises(UnsupportedError, match="may touch a height field") as caught:
        load(file)
    assert all(problem.line > 0 and problem.file.endswith(".xml") for problem in caught.value.problems)


def test_equal_content_gives_an_equal_topology() -> None:
    text = FEATURES["joints"]
    assert load(text).topology == load(text.replace('damping=".1', 'damping=".3')).topology
    assert load(text).topology != load(text.replace('name="a"', 'name="z"')).topology


def test_capacities_come_from_the_call_then_from_the_model() -> None:
    numerics = '<custom><numeric name="max_contact_points" data="7"/><numeric name="max_geom_pairs" data="5"/></custom>'
    text = FEATURES["contact"].replace("<contact>", numerics + "<contact>")
    assert (load(text).topology.max_contacts, load(text).topology.max_pairs) == (7, 5)
    assert load(text, max_contacts=3).topology.max_contacts == 3
    assert load(FEATURES["contact"]).topology.max_contacts is None

"""The benchmark's own parts: models that are made, and the table of stages."""

import importlib.util

import jax.numpy as jnp
import oracle
import pytest

from diffsim import cli
from diffsim.bench.engines import MADE, Ours, Workload
from diffsim.bench.report import STAGES, stage_table
from diffsim.load import load


@pytest.mark.parametrize("name", MADE)
def test_made_models_are_those_of_the_oracle(name: str) -> None:
    mjmodel, model = oracle.mujoco.MjModel.from_xml_string(MADE[name]()), load(MADE[name]())
    assert (model.nv, model.nu, model.topology.ntendon) == (mjmodel.nv, mjmodel.nu, mjmodel.ntendon)
    assert max(model.nv, model.topology.ntendon) in (100, 44)


def test_the_table_has_every_stage_and_adds_up() -> None:
    engine = Ours(Workload(str(oracle.package_path("dm_control/suite/pendulum.xml"))))
    rows = dict(stage_table([engine], [engine.start(2)], jnp.zeros((2, engine.nu)), repeats=1))
    assert {stage.name for stage in STAGES} <= set(rows)
    parts = sum(rows[stage.name][0] for stage in STAGES) + rows["integration"][0]
    assert parts == pytest.approx(rows["= whole step"][0])


@pytest.mark.parametrize(("engine", "missing"), [("mjx", "mujoco.mjx"), ("mjx-tuned", "mujoco"), ("c", "mujoco")])
def test_an_engine_that_is_not_installed_is_named(
    engine: str, missing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else name)
    assert cli.main(["bench", "made:chain", "--against", engine]) == 2
    assert capsys.readouterr().err.startswith(f"--against {engine} needs the package mujoco")

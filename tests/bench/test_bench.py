"""The benchmark's own parts: models that are made, and the table of stages."""

import importlib.util

import jax.numpy as jnp
import numpy as np
import oracle
import pytest

from diffsim import cli, envs
from diffsim.bench.engines import Ours, Workload
from diffsim.bench.made import MADE
from diffsim.bench.report import STAGES, stage_table
from diffsim.load import load


@pytest.mark.parametrize("name", MADE)
def test_made_models_are_those_of_the_oracle(name: str) -> None:
    mjmodel, model = oracle.mujoco.MjModel.from_xml_string(MADE[name]()), load(MADE[name]())
    assert (model.nv, model.nu, model.topology.ntendon) == (mjmodel.nv, mjmodel.nu, mjmodel.ntendon)
    assert max(model.nv, model.topology.ntendon) in (100, 44)


def test_the_table_has_every_stage_and_adds_up() -> None:
    engine = Ours(Workload(str(oracle.package_path("dm_control/suite/pendulum.xml"))))
    rows = dict(stage_table([engine], [engine.start(2)], jnp.zeros((2, engine.model.nu)), repeats=1))
    assert {stage.name for stage in STAGES} <= set(rows)
    parts = sum(rows[stage.name][0] for stage in STAGES) + rows["integration"][0]
    assert parts == pytest.approx(rows["= whole step"][0])


@pytest.mark.parametrize(
    ("engine", "missing"), [("mjx", "mujoco.mjx"), ("mjx-tuned", "mujoco"), ("c", "mujoco"), ("warp", "mujoco_warp")]
)
def test_an_engine_that_is_not_installed_is_named(
    engine: str, missing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else name)
    assert cli.main(["bench", "made:chain", "--against", engine]) == 2
    assert capsys.readouterr().err.startswith(f"--against {engine} needs the package mujoco")


def test_noise_is_added_to_the_controls_of_the_keyframe() -> None:
    model = load("quadruped")
    mean = np.asarray(model.key_ctrl[0])
    assert np.any(mean)
    steps, batch = 50, 40
    exact = Workload("quadruped", keyframe=0, noise=0.0).controls(steps, batch, model)
    noisy = Workload("quadruped", keyframe=0, noise=0.1).controls(steps, batch, model)
    np.testing.assert_allclose(exact, np.broadcast_to(mean, exact.shape), atol=1e-6)
    assert np.std(noisy - exact) == pytest.approx(0.1, rel=0.02)


def test_counts_are_those_of_the_oracle() -> None:
    """Contacts and rows of a quadruped that has landed on its feet."""
    workload = Workload(str(envs.MODELS / "quadruped.xml"), keyframe=0, noise=0.0)
    engine, mjmodel = Ours(workload), workload.mjmodel(oracle.mujoco)
    steps = 60
    ctrl = workload.controls(steps, 2, mjmodel)
    data = oracle.mujoco.MjData(mjmodel)
    oracle.mujoco.mj_resetDataKeyframe(mjmodel, data, 0)
    for row in ctrl[:, 0]:
        data.ctrl = row
        oracle.mujoco.mj_step(mjmodel, data)
    oracle.mujoco.mj_forward(mjmodel, data)
    assert data.ncon > 0
    states = engine.rollout(engine.start(2), jnp.asarray(ctrl))
    assert engine.counts(states, jnp.asarray(ctrl[-1]))[:2] == (data.ncon, data.nefc)


@pytest.mark.skipif(importlib.util.find_spec("mujoco_warp") is None, reason="needs mujoco-warp")
def test_warp_solves_what_diffsim_solves() -> None:
    """With the same start and controls, both engines find the same contacts and rows, and nothing is dropped."""
    from diffsim.bench import warp

    workload = Workload(str(envs.MODELS / "quadruped.xml"), keyframe=0, noise=0.0)
    engine = Ours(workload)
    steps, batch = 5, 4
    ctrl = jnp.asarray(workload.controls(2 * steps - 1, batch, engine.model))
    ours = engine.counts(engine.rollout(engine.start(batch), ctrl), ctrl[-1])
    theirs = warp.measure(workload, batch, steps, steps)
    assert theirs.speed > 0
    assert theirs.counts[:2] == pytest.approx(ours[:2])

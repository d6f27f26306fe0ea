"""The command line: what it says without a command, and pictures, films and pages of models by name."""

import argparse
import pathlib
import re

import numpy as np
import pytest
from PIL import Image

import diffsim
from diffsim import cli, envs
from diffsim.bench import selftest
from diffsim.cli.models import declare_floor, declare_model, find_model, load_model, load_on_floor
from diffsim.xla.warp.probe import Check


def test_without_a_command_it_helps(capsys: pytest.CaptureFixture) -> None:
    assert cli.main([]) == 0
    said = capsys.readouterr().out
    assert all(f"\n    {name} " in said for name in cli.COMMANDS)
    assert all(name in said for name in envs.TASKS)
    with pytest.raises(SystemExit) as left:
        cli.main(["--version"])
    assert left.value.code == 0
    assert re.match(rf"diffsim {diffsim.__version__} \(jax [\d.]+, Python 3", capsys.readouterr().out)


def test_info_names_things(capsys: pytest.CaptureFixture) -> None:
    assert cli.main(["info", "cartpole"]) == 0
    said = capsys.readouterr().out
    assert "nq 2" in said and "joints: slider, hinge" in said and "actuators: drive" in said
    assert cli.main(["info", "cartpole", "--all"]) == 0
    assert "jnt_range" in capsys.readouterr().out


def test_render_makes_pictures_films_and_pages(tmp_path: pathlib.Path) -> None:
    ball = "<mujoco><worldbody><body name='ball' pos='0 0 1'><freejoint/><geom size='.2'/></body></worldbody></mujoco>"
    (tmp_path / "ball.xml").write_text(ball)
    small = ["--size", "48", "32", "--samples", "1", "--seconds", "0.1", "--distance", "2"]
    for ending in ("gif", "html"):
        path = tmp_path / f"ball.{ending}"
        assert cli.main(["render", str(tmp_path / "ball.xml"), "--out", str(path), *small]) == 0
        assert path.stat().st_size > 500
    with Image.open(tmp_path / "ball.gif") as film:
        assert film.n_frames == 3 and film.size == (48, 32)


def test_render_hides_groups(tmp_path: pathlib.Path) -> None:
    both = "<geom size='.2' rgba='1 0 0 1'/><geom size='.1' rgba='0 1 0 1' group='1'/>"
    (tmp_path / "ball.xml").write_text(f"<mujoco><worldbody><body><joint/>{both}</body></worldbody></mujoco>")
    path, small = tmp_path / "ball.png", ["--size", "48", "32", "--samples", "1", "--no-floor"]
    for options, colour in ([], 0), (["--hide", "0"], 1):
        assert cli.main(["render", str(tmp_path / "ball.xml"), "--out", str(path), *small, *options]) == 0
        with Image.open(path) as picture:
            assert np.argmax(np.asarray(picture)[16, 24]) == colour


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.xml", "--out", "a.png"], "nowhere.xml"),
        (["cartpole", "--out", "a.tiff"], "the extension must be one of"),
        (["cartpole", "--out", "a.png", "--keyframe", "stand"], "--keyframe stand"),
        (["cartpole", "--out", "a.png", "--camera", "sid"], "did you mean 'side'"),
        (["cartpole", "--out", "a.png", "--follow", "kart"], "did you mean 'cart'"),
    ],
)
def test_mistakes_are_said_in_a_sentence(arguments: list[str], message: str, capsys: pytest.CaptureFixture) -> None:
    assert cli.main(["render", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_models_are_found_by_the_name_of_a_task_and_in_packages() -> None:
    assert find_model("hopper") == str(envs.MODELS / "hopper.xml")
    assert find_model("dm_control/suite/hopper.xml").endswith("site-packages/dm_control/suite/hopper.xml")
    assert find_model("nothing") == "nothing"


def test_all_commands_take_the_options_of_load(capsys: pytest.CaptureFixture) -> None:
    for command in cli.COMMANDS.keys() - {"selftest"}:
        with pytest.raises(SystemExit):
            cli.main([command, "--help"])
        shown = capsys.readouterr().out
        assert all(option in shown for option in ("--strict", "--max-contacts", "--max-pairs", "--keep"))
    parser = argparse.ArgumentParser()
    declare_model(parser)
    options = parser.parse_args(["hopper", "--max-contacts", "3", "--keep", "dof_frictionloss"])
    topology = load_model(options).topology
    assert topology.max_contacts == 3 and topology.has("dof_frictionloss")


def test_a_robot_without_ground_stands_on_a_floor(tmp_path: pathlib.Path) -> None:
    robot = tmp_path / "robot.xml"
    robot.write_text("<mujoco><worldbody><body pos='0 0 2'><freejoint/><geom size='.2'/></body></worldbody></mujoco>")
    parser = argparse.ArgumentParser()
    declare_model(parser)
    declare_floor(parser)
    model = load_on_floor(parser.parse_args([str(robot), "--max-contacts", "3"]))
    assert model.ngeom == 2 and model.topology.max_contacts == 3
    np.testing.assert_allclose(model.geom_pos[model.topology.geom_type == 0], [[0, 0, 1.8]], atol=1e-6)
    assert load_on_floor(parser.parse_args([str(robot), "--no-floor"])).ngeom == 1
    assert load_on_floor(parser.parse_args(["hopper"])).topology == diffsim.load("hopper").topology


def test_selftest_says_what_passed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    for name, small in (("WORLDS", 4), ("STEPS", 2), ("COMPARED", 2)):
        monkeypatch.setattr(selftest, name, small)
    monkeypatch.setattr(selftest, "check_kernels", lambda *_, **__: [Check("solve", 6, 1e-7)])
    measure, results = selftest._measure, []
    monkeypatch.setattr(selftest, "_measure", lambda *arguments: results.append(measure(*arguments)) or results[-1])
    assert cli.main(["selftest", "--models", "cartpole"]) == 0
    said = capsys.readouterr().out
    assert "solve          6 rows   error 1.0e-07       ok" in said and said.endswith("all checks passed\n")
    # a device that computes something else
    values, *timing = results[0]
    results[0] = [1.01 * value for value in values], *timing
    monkeypatch.setattr(selftest, "_measure", lambda *_: results.pop(0))
    with pytest.raises(SystemExit) as left:
        cli.main(["selftest", "--models", "cartpole"])
    assert left.value.code == 1
    assert "1 checks FAILED" in capsys.readouterr().out

"""Users' programs are type checked against the package (py.typed): what they may write passes, a mistake is found."""

import importlib.util
import pathlib
import subprocess
import sys

import pytest
from wide import wide

RIGHT = """
import jax
import diffsim
from diffsim import envs, mjx, optimize

model: diffsim.Model = diffsim.load("hopper")
state = diffsim.make_state(model)
data = diffsim.forward(model, state)
height: jax.Array = data.xpos[1, 2]
later: diffsim.State = diffsim.step(model, state.replace(qvel=state.qvel))
result = diffsim.rollout(model, state, jax.numpy.zeros((3, model.nu)), lambda state, data: data.sensordata)
worlds = envs.wrap(envs.make("hopper"), episode_length=100)
system: optimize.Linearization = optimize.linearize(model, state)
stepped: mjx.Data = mjx.step(mjx.put_model(object()), mjx.make_data(model))
lazily = diffsim.viz.render(model, state)
"""
WRONG = {"state.qpso": "qpso", "diffsim.step(state, model)": "cannot be assigned", "diffsim.stepp": "stepp"}


@pytest.mark.skipif(importlib.util.find_spec("pyright") is None, reason="pyright is not installed (extra dev)")
@pytest.mark.parametrize("program", wide([RIGHT]))
def test_a_users_program_is_checked(program: str, tmp_path: pathlib.Path) -> None:
    def complaints(text: str) -> str:
        (tmp_path / "program.py").write_text(text)
        command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "program.py"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        return "" if done.returncode == 0 else done.stdout

    assert complaints(program) == ""
    said = complaints(program + "\n".join(WRONG) + "\n")
    assert all(word in said for word in WRONG.values())

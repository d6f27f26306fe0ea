"""first_hour: what a new user does first, each task in an empty folder with the installed wheel: seconds and lines.

    make measure WHAT=first_hour                    # all tasks
    python -m tests.measure.first_hour arm film     # these; what was measured before is printed beside them
    python -m tests.measure.first_hour --install    # the wheel and what the tasks need, into the environment HOUR

HOUR (/tmp/diffsim_hour/env) is an environment of PYTHON (the one that runs this); `--install` makes it where it is
missing, and puts a wheel built from the commit at HEAD into it. A task is a program as the documentation has it,
without a compile cache; it has passed when it ends well, wrote its files and said what it should. ROBOTS is a folder
with `ur_description`, of the wheel example-robot-data; without it the arm is left out.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
from typing import Any, NamedTuple

ROOT = pathlib.Path(__file__).parents[2]
FOLDER = pathlib.Path(os.environ.get("RECORDED", "/tmp/diffsim_hour"))
HOUR = pathlib.Path(os.environ.get("HOUR", FOLDER / "env"))
ROBOTS = pathlib.Path(os.environ.get("ROBOTS", "/tmp/ur/cmeel.prefix/share/example-robot-data/robots"))
NEEDS = ("orbax-checkpoint",)


class Hour(NamedTuple):
    """A task: its program, what it must say (a pattern), the files that it must write, and the bars."""

    program: str
    says: str
    files: tuple[str, ...] = ()
    seconds: float = 300
    lines: int = 40


def readme() -> str:
    """The first program of the README."""
    found = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert found
    return found[1]


ARM = """
import jax, jax.numpy as jnp
import diffsim
from diffsim import optimize, viewer, viz

spec = diffsim.mjcf.read("ur_description/urdf/ur5_robot.urdf")
spec.option.timestep = 0.01
for joint in ("shoulder_pan", "shoulder_lift", "elbow", "wrist_1", "wrist_2", "wrist_3"):
    spec.actuator.add("motor", joint=joint + "_joint", gear=[100], ctrlrange=[-1, 1], ctrllimited="true")
model = diffsim.compile(spec)
goal = jnp.array([0.5, -1.0, 1.0, -0.5, 0.3, 0.2])
off = lambda state, data: 10 * jnp.concatenate([state.qpos - goal, 0.3 * state.qvel])
task = optimize.make_task(model, lambda state, data, ctrl: 0.05 * ctrl, off, contacts=False)
plan = optimize.ilqr(task, diffsim.make_state(model), jnp.zeros((40, model.nu)))
print(plan.advice, "off by", float(jnp.max(jnp.abs(plan.states.qpos[-1] - goal))))
viz.save("arm.png", viz.render(model, jax.tree.map(lambda leaf: leaf[-1], plan.states)))
viewer.to_html(model, plan.states, "arm.html")
"""

PLAYGROUND = """
import diffsim.mjx
diffsim.mjx.install()
import jax
import jax.numpy as jnp
from mujoco_playground import registry

env = registry.load("CartpoleBalance")
state, step = jax.jit(env.reset)(jax.random.PRNGKey(0)), jax.jit(env.step)
for _ in range(20):
    state = step(state, jnp.zeros(env.action_size))
print("reward", float(state.reward))
"""

PPO = """
import functools
import diffsim
from brax.training.agents.ppo import networks, train as ppo
from diffsim import envs
from diffsim.envs import brax

brax.prepare()
curve = []
make_policy, params, _ = ppo.train(
    environment=envs.make("cartpole"), wrap_env_fn=envs.wrap,
    num_timesteps=100_000, num_envs=64, episode_length=200, unroll_length=10, batch_size=64, num_minibatches=4,
    num_updates_per_batch=2, discounting=0.97, learning_rate=1e-3, entropy_cost=1e-3, normalize_observations=True,
    num_eval_envs=16, num_evals=4,
    network_factory=functools.partial(networks.make_ppo_networks, policy_hidden_layer_sizes=(32, 32)),
    progress_fn=lambda step, metrics: curve.append((step, round(float(metrics["eval/episode_reward"]), 1))),
)
print(curve)
assert curve[-1][1] > 3 * curve[0][1], "nothing was learned"
import matplotlib.pyplot as plt
plt.plot(*zip(*curve))
plt.savefig("curve.png")
"""

RANDOM = """
def randomization(model, rng):
    fields = {"geom_friction": diffsim.Scale(0.5, 1.5), "body_mass": diffsim.Scale(0.8, 1.2)}
    return diffsim.randomize(model, rng[0], fields, len(rng))
"""

VECTOR = """
from diffsim import envs
from diffsim.envs.vector import VectorEnv

worlds = VectorEnv(envs.make("cartpole"), num_envs=1024, episode_length=200)
obs, info = worlds.reset(seed=0)
for _ in range(50):
    obs, reward, terminated, truncated, info = worlds.step(worlds.action_space.sample())
print(obs.shape, reward.mean())
"""

FILM = """
import jax
import jax.numpy as jnp
import diffsim
from diffsim import viz

model = diffsim.load("quadruped")
state, inputs = diffsim.make_state(model, "stand"), diffsim.make_inputs(model, "stand")
ctrl = inputs.ctrl + 0.2 * jnp.sin(jnp.linspace(0, 30, 500))[:, None]
final, states = jax.jit(lambda s: diffsim.rollout(model, s, ctrl))(state)
print(viz.video(model, states, "walk.mp4", viz.View(follow="torso", distance=2)), "frames")
"""

CHECKPOINT = """
import jax
import jax.numpy as jnp
import numpy as np
import diffsim

model = diffsim.load("hopper")
run = jax.jit(lambda state: diffsim.rollout(model, state, jnp.zeros((20, model.nu)))[0])
middle = run(diffsim.make_state(model, "stand"))
model.save("hopper.diffsim"), middle.save("middle.npz")
model, begun = diffsim.load("hopper.diffsim"), diffsim.State.load("middle.npz")
print(all(map(np.array_equal, jax.tree.leaves(run(middle)), jax.tree.leaves(run(begun)))))
"""


def two() -> str:
    """The program of docs/recipes/devices.md, on this machine alone."""
    found = re.search(r"```text\n(# worlds.py.*?)```", (ROOT / "docs/recipes/devices.md").read_text(), re.DOTALL)
    assert found
    return found[1].replace("first-machine", "localhost")


def tasks() -> dict[str, Hour]:
    """All tasks by name."""
    head, rest = PPO.split("brax.prepare()\n")
    random = head + RANDOM + "\nbrax.prepare()\n" + rest.replace("wrap,", "wrap, randomization_fn=randomization,", 1)
    listed = {
        "readme": Hour(readme(), r"\d\.\d", seconds=60),
        "arm": Hour(ARM, r"off by 0\.0", ("arm.png", "arm.html"), lines=15),
        "playground": Hour(PLAYGROUND, r"reward 0\.\d|reward 1\.0"),
        "ppo": Hour(PPO, r"\[\(0, ", ("curve.png",)),
        "randomization": Hour(random, r"\[\(0, ", ("curve.png",)),
        "vector": Hour(VECTOR, r"\(1024, 5\)"),
        "film": Hour(FILM, r"\d+ frames", ("walk.mp4",)),
        "checkpoint": Hour(CHECKPOINT, "True"),
        "two": Hour(two(), r"0 \(1024, 2\) \(512, 2\)"),
    }
    return listed if ROBOTS.exists() else {name: task for name, task in listed.items() if name != "arm"}


def install() -> None:
    """The environment of a user."""
    python, wheels = HOUR / "bin/python", FOLDER / "wheel"
    shutil.rmtree(FOLDER / "source", ignore_errors=True)
    shutil.rmtree(wheels, ignore_errors=True)
    (FOLDER / "source").mkdir(parents=True)
    subprocess.run(f"git archive HEAD | tar x -C {FOLDER / 'source'}", shell=True, check=True, cwd=ROOT)
    if not python.exists():
        subprocess.run([os.environ.get("PYTHON", sys.executable), "-m", "venv", HOUR], check=True)
    pip = [python, "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "-q", "--no-deps", "-w", wheels, FOLDER / "source"], check=True)
    (wheel,) = wheels.glob("*.whl")
    subprocess.run([*pip, "install", "-q", f"{wheel}[viz,gym,playground]", *NEEDS], check=True)
    subprocess.run([*pip, "install", "-q", "--no-deps", "--force-reinstall", wheel], check=True)


def run(name: str, task: Hour) -> dict[str, Any]:
    """A task, measured."""
    folder = FOLDER / "tasks" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "program.py").write_text(task.program)
    if name == "arm":
        (folder / "ur_description").symlink_to(ROBOTS / "ur_description")
    free = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "JAX_COMPILATION_CACHE_DIR")}
    free["DIFFSIM_CACHE"] = "0"
    commands = [[HOUR / "bin/python", "program.py"]]
    if name == "two":
        commands = [[*commands[0], str(process)] for process in range(2)]
    begin, used = time.monotonic(), os.times()
    programs = [
        subprocess.Popen(
            command, cwd=folder, env=free, text=True, stdout=subprocess.PIPE, stderr=(folder / "errors").open("w")
        )
        for command in commands
    ]
    said = "".join(program.communicate(timeout=10 * task.seconds)[0] for program in programs)
    took, cpu = time.monotonic() - begin, os.times()
    lines = sum(1 for line in task.program.splitlines() if line.strip() and not line.strip().startswith("#"))
    wrong = [f"no file {file}" for file in task.files if not (folder / file).exists()]
    wrong += [] if re.search(task.says, said) else [f"said {said[-200:]!r}"]
    if any(program.returncode for program in programs):
        wrong += (folder / "errors").read_text().strip().splitlines()[-1:]
    wrong += [f"over {task.seconds:.0f} s"] if took > task.seconds else []
    wrong += [f"over {task.lines} lines"] if lines > task.lines else []
    seconds = round(cpu.children_user + cpu.children_system - used.children_user - used.children_system, 1)
    return {
        "task": name,
        "seconds": round(took, 1),
        "cpu": seconds,
        "lines": lines,
        "wrong": wrong,
        "said": said[-200:],
    }


def main() -> None:
    """Measures the named tasks, or all, and prints what is known of all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--install", action="store_true")
    asked, listed = parser.parse_args(), tasks()
    if asked.install or not (HOUR / "bin/python").exists():
        install()
    log = FOLDER / "hour.json"
    known = json.loads(log.read_text()) if log.exists() else {}
    for name in asked.names or ([] if asked.install else listed):
        known[name] = run(name, listed[name])
        log.write_text(json.dumps(known))
        print(name, known[name]["said"].strip()[-150:], file=sys.stderr, flush=True)
    for name in listed:
        line = known.get(name)
        words = ", ".join(line["wrong"]) or "done" if line else "not run"
        numbers = f"{line['seconds']} s ({line['cpu']} CPU s), {line['lines']} lines" if line else ""
        print(f"{name}: {words} {numbers}")


if __name__ == "__main__":
    main()

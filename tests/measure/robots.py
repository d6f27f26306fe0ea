"""Robots with meshes beside C: seconds to load and to compile a step, microseconds of one step of one world.

python -m tests.measure.robots --folder PATH [--files unitree_g1/scene.xml ...] [--batch 16]

The folder is a copy of MuJoCo Menagerie, such as Playground downloads. Each robot runs in a process of its own, from
its first keyframe with small velocities, in float32 on the cores that the process may use; all times are CPU times.
Lines that exist are kept, so that it goes on where it stopped.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from measure.resumed import resumed

FILES = [
    "unitree_go1/scene.xml",
    "boston_dynamics_spot/scene.xml",
    "unitree_h1/scene.xml",
    "unitree_g1/scene.xml",
    "robotis_op3/scene.xml",
    "apptronik_apollo/scene.xml",
    "booster_t1/scene.xml",
    "franka_emika_panda/scene.xml",
    "leap_hand/scene_right.xml",
]
SECONDS = 2.0


def main() -> None:
    """A line for each robot."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--files", nargs="*", default=FILES)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--log", type=pathlib.Path, default=pathlib.Path("out/robots.jsonl"))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measured(arguments.one, arguments.batch)))
        return

    def alone(file: str) -> dict[str, Any]:
        command = [sys.executable, "-m", "tests.measure.robots", "--folder", ".", "--batch", str(arguments.batch)]
        run = subprocess.run(
            [*command, "--one", str(arguments.folder / file)], capture_output=True, text=True, env={**os.environ}
        )
        return json.loads(run.stdout.splitlines()[-1]) if run.returncode == 0 else {"error": run.stderr[-200:]}

    for line in resumed(arguments.log, arguments.files, alone):
        print(" ".join(f"{name} {value}" for name, value in line.items()))


def measured(file: str, batch: int) -> dict[str, Any]:
    """Load, compile and step of one robot."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from oracle import mujoco

    import diffsim

    def clocked(make: Callable[[], Any]) -> tuple[float, Any]:
        start = time.process_time()
        result = make()
        return time.process_time() - start, result

    load, model = clocked(lambda: diffsim.load(file))
    load_c, mjmodel = clocked(lambda: mujoco.MjModel.from_xml_path(file))
    mjdata, dtype = mujoco.MjData(mjmodel), jnp.float32
    if mjmodel.nkey:
        mujoco.mj_resetDataKeyframe(mjmodel, mjdata, 0)
    inputs = diffsim.make_inputs(model).replace(ctrl=jnp.asarray(mjdata.ctrl, dtype))
    state = diffsim.make_state(model).replace(qpos=jnp.asarray(mjdata.qpos, dtype))
    states = jax.tree.map(lambda x: jnp.broadcast_to(x, (batch, *x.shape)), state)
    velocity = 0.01 * np.random.default_rng(0).normal(size=(batch, mjmodel.nv))
    states = states.replace(qvel=jnp.asarray(velocity, dtype))
    program = jax.jit(jax.vmap(lambda x: diffsim.step(model, x, inputs)), compiler_options=diffsim.compiler_options())
    compiling, step = clocked(lambda: program.lower(states).compile())

    def microseconds(advance: Callable[[], Any]) -> float:
        advance()
        start, count = time.process_time(), 0
        while time.process_time() - start < SECONDS:
            advance()
            count += 1
        return (time.process_time() - start) / count * 1e6

    last = [states]

    def ours() -> None:
        last[0] = jax.block_until_ready(step(last[0]))

    us, us_c = microseconds(ours) / batch, microseconds(lambda: mujoco.mj_step(mjmodel, mjdata))
    return {
        "load_s": round(load, 1),
        "load_c_s": round(load_c, 1),
        "compile_s": round(compiling, 1),
        "us": round(us),
        "c_us": round(us_c),
        "times": round(us / us_c, 1),
        "finite": bool(jnp.all(jnp.isfinite(last[0].qpos))),
    }


if __name__ == "__main__":
    main()

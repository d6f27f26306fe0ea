"""Soft bodies come to rest beside MuJoCo: `make measure WHAT=flex_rest`, one line a scene and precision.

Each scene falls and settles for some steps, here and in MuJoCo. Of vertices the mean height is compared, relative to
the size of the scene, and how fast they still move. SCENES=cloth,jelly chooses scenes, BITS=32 or 64 the precision.
"""

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import jax
import numpy as np
import oracle

import diffsim

HEAD = '<mujoco><option timestep="{}" integrator="implicitfast" iterations="50"/><size memory="200M"/><worldbody>{}'
TAIL = "</worldbody></mujoco>"
PLANE = '<geom type="plane" size="3 3 .1"/>'
CONTACT = '<contact selfcollide="none" internal="false" solref=".01"/>'
CLOTH = '<flexcomp name="c" type="grid" count="{0} {0} 1" spacing="{1} {1} .05" pos="0 0 {2}" dim="2" mass="1" '
CLOTH += 'radius=".005">'
CLOTH += CONTACT + '<edge equality="true" damping=".01"/></flexcomp>'
JELLY = (
    '<flexcomp name="c" type="grid" dim="3" count="4 4 4" spacing=".08 .08 .08" pos="0 0 .3" mass="1" radius=".01" {}>'
)
JELLY += '<elasticity young="{}" poisson=".2" damping=".01"/>' + CONTACT + "</flexcomp>"
# MJCF, steps, size of the scene (m)
SCENES = {
    "cloth": (HEAD.format(0.002, PLANE + '<geom size=".3" pos="0 0 .4"/>') + CLOTH.format(30, 0.033, 0.75), 500, 1.0),
    "towel": (
        HEAD.format(0.002, '<geom type="capsule" size=".05 1" pos="0 0 .7" euler="90 0 0"/>')
        + CLOTH.format(12, 0.06, 0.8),
        400,
        0.8,
    ),
    "jelly": (HEAD.format(0.002, PLANE) + JELLY.format("", 2e4), 500, 0.3),
    "trilinear": (HEAD.format(0.004, PLANE) + JELLY.format('dof="trilinear"', 1e4), 400, 0.3),
    "shell": (
        HEAD.format(0.001, PLANE)
        + JELLY.format('dof="trilinear"', 1e5)
        .replace("grid", "box")
        .replace("/>", ' thickness=".01" elastic2d="both"/>', 1),
        600,
        0.3,
    ),
}


def main() -> None:
    """Prints a line for each scene."""
    jax.config.update("jax_enable_x64", os.environ.get("BITS", "64") == "64")
    for name in os.environ.get("SCENES", ",".join(SCENES)).split(","):
        text, steps, size = SCENES[name]
        mjmodel = oracle.mujoco.MjModel.from_xml_string(text + TAIL)
        model, data = diffsim.load(text + TAIL), oracle.mujoco.MjData(mjmodel)
        run = diffsim.jit(
            lambda model, state, n=steps: jax.lax.fori_loop(0, n, lambda _, s: diffsim.step(model, s), state)
        )
        begin = time.process_time()
        state = jax.block_until_ready(run(model, diffsim.make_state(model)))
        ours, begin = time.process_time() - begin, time.process_time()
        for _ in range(steps):
            oracle.mujoco.mj_step(mjmodel, data)
        theirs = time.process_time() - begin
        oracle.mujoco.mj_forward(mjmodel, data)
        height = np.asarray(jax.jit(diffsim.forward)(model, state).flexvert_xpos)[:, 2]
        apart = abs(float(height.mean()) - data.flexvert_xpos[:, 2].mean()) / size
        speed, other = (float(np.sqrt(np.mean(np.square(v)))) for v in (state.qvel, data.qvel))
        print(
            f"{name}, {state.qpos.dtype}: mean height {height.mean():.5f}, {apart:.1e} of the size from MuJoCo's; "
            f"speeds {speed:.1e} and {other:.1e} m/s; {1e3 * ours / steps:.2f} ms a step with compilation, MuJoCo "
            f"{1e3 * theirs / steps:.2f}; finite {bool(np.isfinite(height).all())}",
            flush=True,
        )


if __name__ == "__main__":
    main()

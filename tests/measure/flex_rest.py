"""Soft bodies come to rest beside MuJoCo: `make measure WHAT=flex_rest`, one line a scene and precision.

Each scene falls and settles for 2,000 steps, here and in MuJoCo. The mean height of all vertices is compared, relative
to the size of the scene, and the energy, relative to m g times that size; and how fast both still move. MuJoCo runs a
second time by its other solver, Newton or CG, from a start that is moved by a micrometre: what that changes nobody can
predict. Where elements touch at an edge that they share, rounding already chooses which of more than 50 contacts stay.

SCENES=cloth,jelly chooses scenes, BITS=32 or 64 the precision, STEPS how many; what is done is kept in
out/flex_rest.jsonl and left out the next time. MODELS names a folder with MuJoCo's model/ tree, for the gripper and the
cable.
"""

import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import jax
import numpy as np
import oracle

import diffsim
from diffsim import mjcf
from diffsim.xla.compiled import compiler_options
from tests.measure.resumed import resumed

STEPS = int(os.environ.get("STEPS", "2000"))
HEAD = '<mujoco><option timestep="{}" integrator="implicitfast" iterations="50"><flag energy="enable"/></option>'
HEAD += '<size memory="200M"/><worldbody>{}'
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
BALL = HEAD.format(0.002, PLANE + '<geom size=".3" pos="0 0 .4"/>') + CLOTH.format(30, 0.033, 0.75)
BAR = HEAD.format(0.002, '<geom type="capsule" size=".05 1" pos="0 0 .7" euler="90 0 0"/>') + CLOTH.format(
    12, 0.06, 0.8
)
# so viscous (Pa s) that a cloth which hangs comes to rest; in air it swings, and where to nobody can predict
VISCOUS = '<option viscosity=".2" '
# MJCF or a file of MuJoCo's, and the size of the scene (m)
SCENES = {
    "cloth": (BALL.replace("<option ", VISCOUS), 1.0),
    "towel": (BAR.replace("<option ", VISCOUS), 0.8),
    "jelly": (HEAD.format(0.002, PLANE) + JELLY.format("", 2e3), 0.3),
    "trilinear": (HEAD.format(0.004, PLANE) + JELLY.format('dof="trilinear"', 1e4), 0.3),
    "gripper": (Path("model/flex/gripper_trilinear.xml"), 0.5),
    "cable": (Path("model/plugin/elasticity/cable.xml"), 1.0),
    "shell": (
        HEAD.format(0.001, PLANE)
        + JELLY.format('dof="trilinear"', 1e5)
        .replace("grid", "box")
        .replace("/>", ' thickness=".01" elastic2d="both"/>', 1),
        0.3,
    ),
}
# controls: the gripper closes and lifts, the cable is twisted until it makes a loop
CONTROLS = {"gripper": (0.15, 0.15), "cable": (0.03,)}


def measure(name: str) -> dict[str, Any]:
    """What a scene comes to, "name bits"."""
    scene, bits = name.split()
    jax.config.update("jax_enable_x64", bits == "64")
    text, size = SCENES[scene]
    if isinstance(text, Path):
        if "MODELS" not in os.environ:
            return {"size": size, "skipped": "MODELS is not set"}
        path = Path(os.environ["MODELS"]) / text
        mjmodel, model = (
            oracle.mujoco.MjModel.from_xml_path(str(path)),
            diffsim.compile(mjcf.read(path, allow_outside=True)),
        )
        mjmodel.opt.enableflags |= oracle.mujoco.mjtEnableBit.mjENBL_ENERGY
        model = model.replace(opt=model.opt.replace(enableflags=int(mjmodel.opt.enableflags)))
    else:
        mjmodel, model = oracle.mujoco.MjModel.from_xml_string(text + TAIL), diffsim.load(text + TAIL)
    ctrl = np.array(CONTROLS.get(scene, ()), float)
    inputs = diffsim.make_inputs(model).replace(ctrl=jax.numpy.asarray(ctrl)) if len(ctrl) else None
    run = jax.jit(
        lambda model, state, inputs: jax.lax.fori_loop(0, STEPS, lambda _, s: diffsim.step(model, s, inputs), state)
    )
    begin = time.process_time()
    compiled = run.lower(model, diffsim.make_state(model), inputs).compile(compiler_options=compiler_options())
    compilation, begin = time.process_time() - begin, time.process_time()
    state = jax.block_until_ready(compiled(model, diffsim.make_state(model), inputs))
    ours = time.process_time() - begin
    theirs, spread, seconds = {}, {}, 0.0
    newton, cg = (int(oracle.mujoco.mjtSolver(n)) for n in (2, 1))
    first = int(mjmodel.opt.solver)
    for shift, solver, into in ((1e-6, cg if first == newton else newton, spread), (0.0, first, theirs)):
        data, mjmodel.opt.solver = oracle.mujoco.MjData(mjmodel), solver
        data.ctrl[:] = ctrl
        data.qpos[: min(3, mjmodel.nq)] += shift
        begin = time.process_time()
        for _ in range(STEPS):
            oracle.mujoco.mj_step(mjmodel, data)
        seconds = time.process_time() - begin
        oracle.mujoco.mj_forward(mjmodel, data)
        into |= {"height": _heights(data).mean(), "energy": data.energy.sum()}
        into |= {"speed": float(np.sqrt(np.mean(np.square(data.qvel))))}
    now = jax.jit(diffsim.forward)(model, state, inputs)
    mine = {"height": float(_heights(now).mean()), "energy": float(np.sum(now.energy))}
    weight = mjmodel.body_subtreemass[0] * 9.81 * size
    return {
        "size": size,
        "height": mine["height"],
        "speed": float(np.sqrt(np.mean(np.square(state.qvel)))),
        "speed of MuJoCo": theirs["speed"],
        "apart": abs(mine["height"] - theirs["height"]) / size,
        "energy apart": abs(mine["energy"] - theirs["energy"]) / weight,
        "chance": abs(spread["height"] - theirs["height"]) / size,
        "energy by chance": abs(spread["energy"] - theirs["energy"]) / weight,
        "ms": 1e3 * ours / STEPS,
        "ms of MuJoCo": 1e3 * seconds / STEPS,
        "compilation": compilation,
        "finite": bool(np.isfinite(mine["height"])),
    }


def _heights(data: Any) -> np.ndarray:
    """Heights of vertices, or of bodies where there are none."""
    at = np.asarray(data.flexvert_xpos)
    return at[:, 2] if len(at) else np.asarray(data.xpos)[1:, 2]


def main() -> None:
    """Prints a line for each scene."""
    scenes, bits = os.environ.get("SCENES", ",".join(SCENES)).split(","), os.environ.get("BITS", "64,32").split(",")
    names = [f"{scene} {b}" for scene in scenes for b in bits]
    log = Path(os.environ.get("RESULTS", "out/flex_rest.jsonl"))
    seconds = float(os.environ.get("SECONDS_MOST", "inf"))
    for line in resumed(log, names, measure, seconds):
        if "skipped" in line:
            print(line["path"], line["skipped"])
            continue
        print(
            f"{line['path']}: height {line['height']:.5f} m, {line['apart']:.1e} of the size from MuJoCo's (chance "
            f"{line['chance']:.1e}); energy {line['energy apart']:.1e} of m g size (chance "
            f"{line['energy by chance']:.1e}); speeds {line['speed']:.1e} and {line['speed of MuJoCo']:.1e}; "
            f"{line['ms']:.2f} ms a step, MuJoCo {line['ms of MuJoCo']:.2f}; compilation "
            f"{line['compilation']:.1f} CPU s; finite {line['finite']}",
            flush=True,
        )


if __name__ == "__main__":
    main()

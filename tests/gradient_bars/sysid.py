"""The arm's fit by `mujoco.sysid`, beside ours: the same unknowns, windows, start and encoders without noise.

python -m tests.gradient_bars.sysid    (needs what `pip install 'mujoco[sysid]==3.8.1'` brings)

First states are known to both, for `mujoco.sysid` has no unknowns for them. Its numbers are those of the model, scaled
by their first values; it takes differences with C MuJoCo, on all cores.
"""

import copy
import time

import jax
import numpy as np

import diffsim
from diffsim import optimize
from diffsim.optimize.windows import Problem, windows_of
from tests.gradient_bars.arm import BODIES, ENCODER, WINDOW, arm, clean, guess, scene, unknowns
from tests.oracle import mujoco


def theirs(start: np.ndarray) -> tuple[np.ndarray, float]:
    """What `mujoco.sysid` finds from theta (logarithms), and seconds."""
    # imported here: an extra
    from mujoco import sysid

    base = mujoco.MjModel.from_xml_string(scene())
    fields = optimize.Unknowns(arm(), unknowns()).places

    def build(params: sysid.ParameterDict, spec: mujoco.MjSpec) -> mujoco.MjModel:
        model = copy.copy(base)
        for place, value in zip(fields, start_values * params.as_vector(), strict=True):
            getattr(model, place.field).reshape(-1)[list(place.index)] = value
        factor = model.body_mass / np.where(base.body_mass == 0, 1, base.body_mass)
        last = base.body(BODIES[-1]).id
        others = np.arange(base.nbody) != last
        model.body_inertia[others] = (base.body_inertia * factor[:, None])[others]
        mujoco.mj_setConst(model, mujoco.MjData(model))
        return model

    start_values = np.exp(start)
    recording, data = clean(), mujoco.MjData(base)
    windows = windows_of([recording], WINDOW)
    h, states, controls = base.opt.timestep, [], []
    for qpos, qvel, ctrl in zip(windows.qpos, windows.qvel, windows.ctrl, strict=True):
        data.qpos, data.qvel = qpos[0], qvel[0]
        full = np.zeros(mujoco.mj_stateSize(base, mujoco.mjtState.mjSTATE_FULLPHYSICS))
        mujoco.mj_getState(base, data, full, mujoco.mjtState.mjSTATE_FULLPHYSICS)
        states.append(full)
        controls.append(sysid.TimeSeries.from_control_names(h * np.arange(WINDOW), np.asarray(ctrl), base))
    seen = [sysid.sysid_rollout(base, data, control, state)[0] for control, state in zip(controls, states, strict=True)]
    names = [f"window {i}" for i in range(len(states))]
    spec = mujoco.MjSpec.from_string(scene())
    sequences = sysid.ModelSequences("arm", spec, names, states, controls, [each.sensordata for each in seen])
    params = sysid.ParameterDict()
    for i in range(start.size):
        params.add(sysid.Parameter(str(i), 1.0, 0.2, 5.0))
    residual = sysid.build_residual_fn(models_sequences=[sequences], build_model=build)
    begin = time.perf_counter()
    found, _ = sysid.optimize(params, residual, optimizer="mujoco", verbose=False)
    return start_values * found.as_vector(), time.perf_counter() - begin


def ours(space: optimize.Unknowns) -> tuple[np.ndarray, float]:
    """The same by `optimize.fit`'s problem, after compilation."""
    settings, windows = optimize.Fit(window=WINDOW, known_start=True), windows_of([clean()], WINDOW)

    def seen(window: optimize.Recording) -> jax.Array:
        state = diffsim.make_state(arm()).replace(qpos=window.qpos[0], qvel=window.qvel[0])
        return diffsim.rollout(arm(), state, window.ctrl, lambda state, data: data.sensordata).readouts

    windows = windows.replace(sensordata=jax.jit(jax.vmap(seen))(windows))
    problem = Problem(space, windows, np.full(len(BODIES), ENCODER), settings)
    problem.solve(space.start, True)
    begin = time.perf_counter()
    found = problem.solve(space.start, True)
    return space.values(found.x), time.perf_counter() - begin


def main() -> None:
    """Prints errors and times of both."""
    jax.config.update("jax_enable_x64", True)
    space, true = optimize.Unknowns(guess(), unknowns()), optimize.Unknowns(arm(), unknowns())
    values = true.values(true.start)
    for name, (found, seconds) in (("diffsim", ours(space)), ("mujoco.sysid", theirs(space.start))):
        errors = np.abs(found / values - 1)
        print(f"{name:<14} {seconds:.2f} s, relative error: median {np.median(errors):.2g}, worst {errors.max():.2g}")


if __name__ == "__main__":
    main()

"""Four faults of MuJoCo 3.8.1, which diffsim repeats by default, and the same models with the semantics of 4.0.

Two thin plates that nearly touch; a free body whose inertia is in a part that is fixed to it; a box that falls on a
thin plate; a force sensor where a tendon is attached. Each runs twice, `load(..., mujoco="3.8.1")` and
`load(..., mujoco="4.0")`. Prints the largest speed, the gain of energy, the height and the force, and draws them.
"""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from common import arguments, result

import diffsim

# mujoco#3476: two plates, which overlap at a corner
PLATES = """<mujoco><option timestep="0.002"/><worldbody><geom type="box" size="0.1 0.1 0.001" margin="0.01"/>
<body pos="-0.18907476 0.17792403 0.00193354" quat="0.19910445 -0.00004768 0.00092287 0.97997784"><freejoint/>
<geom type="box" size="0.1 0.1 0.001" margin="0.01"/></body></worldbody></mujoco>"""
# mujoco#3553: the inertia of a free body is in its child
NESTED = """<mujoco><option integrator="implicitfast" timestep="0.01" gravity="0 0 0"/><worldbody>
<body><freejoint/><inertial pos="0 0 0" mass="1e-3" diaginertia="1e-6 1e-6 1e-6"/>
<body><inertial pos="0 0 0" mass="1" diaginertia="0.01 0.02 0.029"/></body></body></worldbody></mujoco>"""
# mujoco#1800: a box on a thin plate
FALLING = """<mujoco><option timestep="0.002"/><worldbody><geom type="box" size="1 1 0.002"/>
<body pos="0 0 0.3"><freejoint/><geom type="box" size="0.05 0.05 0.05"/></body></worldbody></mujoco>"""
# mujoco#832: a weight of 1 kg hangs from a light hook, whose sensor measures the force of its parent
HANGING = """<mujoco><option timestep="0.002"/><worldbody><body name="hook" pos="0 0 1"><geom size="0.01" mass="0.001"/>
<site name="hook"/></body><body><joint type="slide" axis="0 0 1" damping="2"/><geom size="0.05" mass="1"/>
<site name="weight"/></body></worldbody>
<tendon><spatial stiffness="200" springlength="1"><site site="hook"/><site site="weight"/></spatial></tendon>
<sensor><force site="hook"/></sensor></mujoco>"""
VERSIONS = ("3.8.1", "4.0")
COLOURS = ("#f27326", "#2a75b5")


def run(xml: str, version: str, qvel: list[float] | None, steps: int) -> tuple[diffsim.Model, diffsim.State]:
    """The model of a version, and its states over some steps."""
    model = diffsim.load(xml, mujoco=version)
    state = diffsim.make_state(model)
    state = state if qvel is None else state.replace(qvel=jnp.array(qvel))
    return model, diffsim.rollout(model, state, np.zeros((steps, model.nu))).readouts


def main() -> None:
    """Runs the four models with both versions, and draws them."""
    options = arguments(__doc__, steps=300)
    jax.config.update("jax_enable_x64", True)
    figure, panels = plt.subplots(1, 4, figsize=(15, 3.4), constrained_layout=True)
    for version, colour in zip(VERSIONS, COLOURS, strict=True):
        name = f"v{version[0]}"
        model, plates = run(PLATES, version, None, options.steps // 6)
        speed = np.linalg.norm(np.asarray(plates.qvel)[:, :3], axis=1)
        panels[0].plot(1e3 * np.asarray(plates.time), speed, color=colour, label=version)

        model, nested = run(NESTED, version, [0, 0, 0, 10, 10, 10], options.steps)
        mass = np.asarray(diffsim.support.full_m(model, diffsim.forward(model, diffsim.make_state(model))))
        spin = np.asarray(nested.qvel)
        energy = 0.5 * np.einsum("ti,ij,tj->t", spin, mass, spin)
        panels[1].semilogy(nested.time, energy / energy[0], color=colour, label=version)

        model, falling = run(FALLING, version, [0, 0, -2, 0, 0, 0], options.steps)
        height = np.asarray(falling.qpos)[:, 2]
        panels[2].plot(falling.time, height, color=colour, label=version)

        model, hanging = run(HANGING, version, None, 6 * options.steps)
        states = jax.tree.map(lambda leaf: leaf[::20], hanging)
        force = jax.vmap(lambda state, model=model: diffsim.forward(model, state).sensordata[2])(states)
        panels[3].plot(states.time, np.abs(np.asarray(force)), color=colour, label=version)
        result(**{f"{name}_speed": float(speed.max()), f"{name}_energy": float(energy[-1] / energy[0])})
        result(**{f"{name}_height": float(height[-1]), f"{name}_force": float(np.abs(force[-1]))})
    labels = (
        ("two thin plates that nearly touch", "time (ms)", "speed of the upper one (m/s)"),
        ("a free body of two parts", "time (s)", "kinetic energy / initial"),
        ("a box falls on a thin plate", "time (s)", "height (m)"),
        ("a weight of 1 kg hangs from a hook", "time (s)", "force that the hook's sensor reads (N)"),
    )
    for panel, (title, horizontal, vertical) in zip(panels, labels, strict=True):
        panel.set(xlabel=horizontal, ylabel=vertical)
        panel.set_title(title, fontsize=9)
        panel.legend(fontsize=8)
    figure.savefig(options.out / "two_versions.png", dpi=110)


if __name__ == "__main__":
    main()

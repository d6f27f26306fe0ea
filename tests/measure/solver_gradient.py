"""Derivatives by default: beside differences of the same step at the model's iterations, and what they cost.

    make measure WHAT=solver_gradient
    python -m tests.measure.solver_gradient price | errors [convex ...]

`price`: the gradient of 10 steps of 256 worlds by its iterations ("auto") over that by the optimum ("implicit"), in
turn, at 1, 4 and 8 iterations: run time, and compile time of both. `errors`: each model of MJX's tests that has
contacts, at the iterations that its file says, 4 states after some steps, in float64, beside differences over three
lengths, of which the nearest counts; what was measured stands in /tmp/diffsim_measure/solver_gradient.jsonl.
"""

import importlib.resources
import pathlib
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import diffsim
from tests.measure.resumed import Line, resumed

MODELS = ("humanoid/humanoid.xml", "shadow_hand/scene_right.xml", "constraints.xml", "convex.xml", "pendula.xml")
STEPS, WORLDS = 10, 256


def loaded(name: str, **options: Any) -> diffsim.Model:
    """A model of MJX's tests."""
    model = diffsim.load(importlib.resources.files("mujoco") / "mjx" / "test_data" / name)
    return model.replace(opt=model.opt.replace(**options)) if options else model


def price() -> None:
    """Prints the price of derivatives of the iterations."""
    for iterations in (1, 4, 8):
        programs, compiled = {}, {}
        for way in ("auto", "implicit"):
            model = loaded(MODELS[0], iterations=iterations, ls_iterations=4, solver_gradient=way)
            state = diffsim.make_state(model)

            def loss(ctrl: jax.Array, model: diffsim.Model = model, state: diffsim.State = state) -> jax.Array:
                return jnp.sum(diffsim.rollout(model, state, ctrl).final.qvel ** 2)

            ctrl = 0.3 * jax.random.normal(jax.random.key(0), (WORLDS, STEPS, model.nu))
            began = time.process_time()
            programs[way] = jax.jit(jax.vmap(jax.grad(loss))).lower(ctrl).compile()
            compiled[way] = time.process_time() - began
        spent = {way: [] for way in programs}
        for _ in range(5):
            for way, program in programs.items():
                began = time.process_time()
                jax.block_until_ready(program(ctrl))
                spent[way].append(1e6 * (time.process_time() - began) / STEPS / WORLDS)
        auto, implicit = (min(spent[way]) for way in ("auto", "implicit"))
        both = f"{auto:.1f} / {implicit:.1f} CPU us a step and world"
        print(
            f"humanoid, {iterations} iterations: auto / implicit {auto / implicit:.2f} ({both}), "
            f"compile {compiled['auto']:.1f} / {compiled['implicit']:.1f} CPU s",
            flush=True,
        )


def error(name: str) -> Line:
    """Of a model: relative errors of the derivative of a step along a direction, beside differences, at 4 states."""
    model, rng, worst = loaded(name), np.random.default_rng(0), []
    step, state = jax.jit(diffsim.step), diffsim.make_state(model)

    def along(x: jax.Array, state: diffsim.State) -> jax.Array:
        moved = state.replace(qvel=state.qvel + x[: model.nv])
        later = diffsim.step(model, moved, diffsim.make_inputs(model).replace(ctrl=x[model.nv :]))
        return jnp.concatenate([later.qpos, later.qvel])

    value = jax.jit(along)
    slope = jax.jit(lambda x, way, state: jax.jvp(lambda y: along(y, state), (x,), (way,))[1])
    for _ in range(4):
        for _ in range(8):
            state = step(model, state, diffsim.make_inputs(model).replace(ctrl=0.3 * rng.normal(size=model.nu)))
        x, way = 0.1 * rng.normal(size=(2, model.nv + model.nu))
        derivative, off = np.asarray(slope(x, way, state)), []
        # rounding spoils short differences of stiff steps, kinks spoil long ones
        for eps in (1e-6, 1e-5, 1e-4):
            ahead = [value(x + h * way, state) - value(x - h * way, state) for h in (eps, 2 * eps)]
            near, far = (np.asarray(change) / (2 * h) for change, h in zip(ahead, (eps, 2 * eps), strict=True))
            expected = (4 * near - far) / 3
            off.append(float(np.max(np.abs(derivative - expected)) / np.max(np.abs(expected))))
        worst.append(min(off))
    opt = model.opt
    print(f"{name}: {opt.solver.name} {opt.iterations} iterations, {max(worst):.1e}", flush=True)
    return {"errors": worst}


def main() -> None:
    """Both, or one of them; of the errors those of all models, or of those that are named."""
    words = sys.argv[1:]
    if "errors" not in words:
        price()
    if "price" not in words:
        jax.config.update("jax_enable_x64", True)
        names = [name for name in MODELS if any(word in name for word in words)] or MODELS
        lines = resumed(pathlib.Path("/tmp/diffsim_measure/solver_gradient.jsonl"), names, error)
        worst = [error for line in lines for error in line["errors"]]
        print(
            f"solver_gradient: {sum(error < 1e-6 for error in worst)} of {len(worst)} states within 1e-6 of differences"
        )


if __name__ == "__main__":
    main()

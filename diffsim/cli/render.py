"""`diffsim render MODEL --out FILE`: a picture, or a film of a simulation, by the ending of the file.

`diffsim view MODEL`: a live simulation in a browser.
"""

import argparse
import pathlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from diffsim import viewer, viz
from diffsim.base.errors import ArgumentError
from diffsim.cli.models import Command, declare_floor, declare_model, load_on_floor
from diffsim.simulate.step import rollout
from diffsim.types import Model, State
from diffsim.types.state import Inputs, make_inputs, make_state

FILMS = (".gif", ".mp4", ".mov")
PICTURES = (".png", ".jpg", ".jpeg", ".webp")


def _declare(parser: argparse.ArgumentParser) -> None:
    view = viz.View()
    declare_model(parser)
    declare_floor(parser)
    parser.add_argument("--out", type=pathlib.Path, required=True, help=".png or .jpg; .gif, .mp4 or .html simulate")
    parser.add_argument("--keyframe", help="name or number; default: qpos0")
    parser.add_argument("--seconds", type=float, default=2.0, help="simulated, with the controls of the keyframe")
    parser.add_argument("--fps", type=float, default=30.0)
    parser.add_argument("--size", type=int, nargs=2, metavar=("WIDTH", "HEIGHT"), default=(640, 360))
    parser.add_argument("--samples", type=int, help="along each edge of a pixel; default: 2, of films 1")
    parser.add_argument("--camera", help="a camera of the model, by name or number; default: a free one")
    parser.add_argument("--follow", metavar="BODY", help="the free camera keeps this body in the middle")
    parser.add_argument("--azimuth", type=float, default=view.azimuth, help="degrees")
    parser.add_argument("--elevation", type=float, default=view.elevation, help="degrees, negative from above")
    parser.add_argument("--distance", type=float, help="metres")
    hide = list(viz.HIDDEN_GROUPS)
    parser.add_argument("--hide", type=int, nargs="*", metavar="GROUP", default=hide, help="groups that are not drawn")


def _run(options: argparse.Namespace) -> None:
    ending = options.out.suffix.lower()
    if ending not in (*PICTURES, *FILMS, ".html"):
        known = ", ".join((*PICTURES, *FILMS, ".html"))
        raise ArgumentError(f"--out {options.out}: the ending is to be one of {known}")
    model = load_on_floor(options)
    free = viz.View(None, options.distance, options.azimuth, options.elevation, follow=options.follow)
    camera = free if options.camera is None else looked_up("camera", options.camera, model.camera).id
    looked_up("follow", options.follow or "world", model.body)
    state, inputs = start(model, options)
    samples = options.samples or (1 if ending in FILMS else 2)
    look = {"size": tuple(options.size), "samples": samples, "hidden_groups": tuple(options.hide)}
    if ending in PICTURES:
        viz.save(options.out, viz.render(model, state, camera, **look))
    elif ending == ".html":
        viewer.to_html(model, _simulate(model, state, inputs, options), options.out, free)
    else:
        viz.video(model, _simulate(model, state, inputs, options), options.out, camera, options.fps, **look)
    print(options.out)


def start(model: Model, options: argparse.Namespace) -> tuple[State, Inputs]:
    """State and controls of the keyframe that the option says."""
    return looked_up("keyframe", options.keyframe, lambda key: (make_state(model, key), make_inputs(model, key)))


def _simulate(model: Model, state: State, inputs: Inputs, options: argparse.Namespace) -> State:
    """States (T, ...) of some seconds."""
    steps = max(1, round(options.seconds / float(model.opt.timestep)))
    ctrl = jnp.broadcast_to(inputs.ctrl, (steps, model.nu))
    return jax.jit(lambda state: rollout(model, state, ctrl, inputs=inputs).readouts)(state)


def looked_up(option: str, text: str | None, look_up: Callable[[str | int | None], Any]) -> Any:
    """What a name or number of the command line means; an unknown one is an error of the user."""
    try:
        return look_up(int(text) if text is not None and text.lstrip("-").isdigit() else text)
    except (KeyError, IndexError) as error:
        raise ArgumentError(f"--{option} {text}: {error.args[0]}") from None


COMMAND = Command("a picture (.png), a film (.gif, .mp4) or a page to turn and scrub (.html)", _declare, _run)


def _declare_view(parser: argparse.ArgumentParser) -> None:
    declare_model(parser)
    declare_floor(parser)
    parser.add_argument("--keyframe", help="name or number; default: qpos0")
    parser.add_argument("--worlds", type=int, default=1, help="side by side, with velocities drawn at random")
    parser.add_argument("--port", type=int, default=0, help="of the page, on this machine; default: any")
    parser.add_argument("--no-browser", action="store_true", help="only print the address")


def _run_view(options: argparse.Namespace) -> None:
    model = load_on_floor(options)
    state, inputs = start(model, options)
    if options.worlds > 1:
        state = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (options.worlds, *jnp.shape(leaf))), state)
        noise = 0.2 * jax.random.normal(jax.random.key(0), state.qvel.shape, state.qvel.dtype)
        state = state.replace(qvel=state.qvel + noise)
    viewer.launch(model, state, inputs, viz.View(), options.port, not options.no_browser)


VIEW = Command("simulates, in a browser: pause, step, drag bodies, set controls", _declare_view, _run_view)

"""`diffsim render MODEL --out FILE`: a picture or a film of a simulation, depending on the extension of the file.

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

# extensions of files for which the model is simulated
FILMS = (".gif", ".mp4", ".mov")
# extensions of files that show the initial state
PICTURES = (".png", ".jpg", ".jpeg", ".webp")


def _declare(parser: argparse.ArgumentParser) -> None:
    """The arguments of `diffsim render`."""
    view = viz.View()
    declare_model(parser)
    declare_floor(parser)
    parser.add_argument(
        "--out", type=pathlib.Path, required=True, help="a picture (.png, .jpg), a film (.gif, .mp4) or a page (.html)"
    )
    parser.add_argument("--keyframe", help="name or number; default: qpos0")
    parser.add_argument(
        "--seconds", type=float, default=2.0, help="simulated time of a film, with the controls of the keyframe"
    )
    parser.add_argument("--fps", type=float, default=30.0)
    parser.add_argument("--size", type=int, nargs=2, metavar=("WIDTH", "HEIGHT"), default=(640, 360))
    parser.add_argument("--samples", type=int, help="samples along each edge of a pixel; default: 2, for films 1")
    parser.add_argument("--camera", help="a camera of the model, by name or number; default: a free camera")
    parser.add_argument("--follow", metavar="BODY", help="the free camera keeps this body in the middle")
    parser.add_argument("--azimuth", type=float, default=view.azimuth, help="degrees")
    parser.add_argument("--elevation", type=float, default=view.elevation, help="degrees; negative looks down")
    parser.add_argument("--distance", type=float, help="metres; default: to see the whole model")
    hide = list(viz.HIDDEN_GROUPS)
    parser.add_argument("--hide", type=int, nargs="*", metavar="GROUP", default=hide, help="groups that are not drawn")


def _run(options: argparse.Namespace) -> None:
    """Runs `diffsim render`."""
    extension = options.out.suffix.lower()
    if extension not in (*PICTURES, *FILMS, ".html"):
        known = ", ".join((*PICTURES, *FILMS, ".html"))
        raise ArgumentError(f"--out {options.out}: the extension must be one of {known}")
    model = load_on_floor(options)
    free = viz.View(
        distance=options.distance,
        azimuth=options.azimuth,
        elevation=options.elevation,
        follow=options.follow,
    )
    camera = free if options.camera is None else looked_up("camera", options.camera, model.camera).id
    # only checks that there is such a body
    looked_up("follow", options.follow or "world", model.body)
    state, inputs = start(model, options)
    samples = options.samples or (1 if extension in FILMS else 2)
    look = {"size": tuple(options.size), "samples": samples, "hidden_groups": tuple(options.hide)}
    if extension in PICTURES:
        viz.save(options.out, viz.render(model, state, camera, **look))
    elif extension == ".html":
        viewer.to_html(model, _simulate(model, state, inputs, options), options.out, free)
    else:
        viz.video(model, _simulate(model, state, inputs, options), options.out, camera, options.fps, **look)
    print(options.out)


def start(model: Model, options: argparse.Namespace) -> tuple[State, Inputs]:
    """The initial state and inputs: from the keyframe in the options, or at qpos0."""
    return looked_up("keyframe", options.keyframe, lambda key: (make_state(model, key), make_inputs(model, key)))


def _simulate(model: Model, state: State, inputs: Inputs, options: argparse.Namespace) -> State:
    """The states (T, ...) of a simulation for the seconds in the options."""
    steps = max(1, round(options.seconds / float(model.opt.timestep)))
    ctrl = jnp.broadcast_to(inputs.ctrl, (steps, model.nu))
    return jax.jit(lambda state: rollout(model, state, ctrl, inputs=inputs).readouts)(state)


def looked_up(option: str, text: str | None, look_up: Callable[[str | int | None], Any]) -> Any:
    """Looks up a name or number from the command line; raises ArgumentError if it is unknown."""
    try:
        return look_up(int(text) if text is not None and text.lstrip("-").isdigit() else text)
    except (KeyError, IndexError) as error:
        raise ArgumentError(f"--{option} {text}: {error.args[0]}") from None


COMMAND = Command("makes a picture (.png), a film (.gif, .mp4) or a page with a player (.html)", _declare, _run)


def _declare_view(parser: argparse.ArgumentParser) -> None:
    """The arguments of `diffsim view`."""
    declare_model(parser)
    declare_floor(parser)
    parser.add_argument("--keyframe", help="name or number; default: qpos0")
    parser.add_argument("--worlds", type=int, default=1, help="number of worlds side by side, with random velocities")
    parser.add_argument(
        "--port", type=int, default=0, help="TCP port of the page on this machine; default: any free port"
    )
    parser.add_argument("--no-browser", action="store_true", help="only print the address")


def _run_view(options: argparse.Namespace) -> None:
    """Runs `diffsim view`."""
    model = load_on_floor(options)
    state, inputs = start(model, options)
    if options.worlds > 1:
        state = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (options.worlds, *jnp.shape(leaf))), state)
        # 0.2 m/s or rad/s, so that the worlds move visibly apart
        noise = 0.2 * jax.random.normal(jax.random.key(0), state.qvel.shape, state.qvel.dtype)
        state = state.replace(qvel=state.qvel + noise)
    viewer.launch(model, state, inputs, viz.View(), options.port, not options.no_browser)


VIEW = Command("simulates in a browser: pause, step, drag bodies, set controls", _declare_view, _run_view)

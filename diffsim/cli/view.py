"""`diffsim view MODEL`: a live simulation in a browser."""

import argparse

import jax
import jax.numpy as jnp

from diffsim import viewer, viz
from diffsim.cli.models import Command, declare_floor, declare_model, load_on_floor
from diffsim.cli.render import found
from diffsim.types.state import make_inputs, make_state


def _declare(parser: argparse.ArgumentParser) -> None:
    declare_model(parser)
    declare_floor(parser)
    parser.add_argument("--keyframe", help="name or number; default: qpos0")
    parser.add_argument("--worlds", type=int, default=1, help="side by side, with velocities drawn at random")
    parser.add_argument("--port", type=int, default=0, help="of the page, on this machine; default: any")
    parser.add_argument("--no-browser", action="store_true", help="only print the address")


def _run(options: argparse.Namespace) -> None:
    model = load_on_floor(options)
    state = found("keyframe", options.keyframe, lambda key: make_state(model, key))
    inputs = found("keyframe", options.keyframe, lambda key: make_inputs(model, key))
    if options.worlds > 1:
        state = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (options.worlds, *jnp.shape(leaf))), state)
        noise = 0.2 * jax.random.normal(jax.random.key(0), state.qvel.shape, state.qvel.dtype)
        state = state.replace(qvel=state.qvel + noise)
    viewer.launch(model, state, inputs, viz.View(), options.port, not options.no_browser)


COMMAND = Command("simulates, in a browser: pause, step, drag bodies, set controls", _declare, _run)

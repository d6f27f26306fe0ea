"""Calls of the public functions with arguments of every wrong kind; seeded. Steps are traced, not compiled."""

import functools
import inspect
import pathlib
import random
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import diffsim
from diffsim import optimize, support
from hostile.judge import Case

XML = """<mujoco><option timestep=".004"/><worldbody><geom name="floor" type="plane" size="1 1 1"/>
<body name="a"><joint name="j" axis="0 1 0"/><geom name="g" size=".1"/><site name="s"/><camera name="c"/>
<body name="b" pos="0 0 1"><joint name="k" type="slide"/><geom name="h" size=".1"/></body></body></worldbody>
<actuator><motor name="m" joint="j"/></actuator><sensor><jointpos name="p" joint="j"/></sensor>
<keyframe><key name="home" qpos="1 2"/></keyframe></mujoco>"""
OTHER = '<mujoco><worldbody><body><freejoint/><geom size=".1"/></body></worldbody></mujoco>'

FUNCTIONS = (
    *(
        "load",
        "compile",
        "make_state",
        "make_inputs",
        "forward",
        "inverse",
        "step",
        "step_data",
        "integrate",
        "rollout",
    ),
    *("set_const", "randomize", "model_axes", "check", "is_bad", "ray", "multi_ray", "sensor", "from_mujoco"),
    *("mjcf.read", "mjcf.write"),
)
METHODS = ("id", "name", "replace", "save", "body", "geom", "joint", "set_qpos", "set_qvel", "set_ctrl", "key")


@functools.cache
def values() -> dict[str, Any]:
    """What may be given for anything, the right kinds among it."""
    model, other = diffsim.load(XML), diffsim.load(OTHER)
    state, inputs = diffsim.make_state(model), diffsim.make_inputs(model)
    batch = jax.tree.map(lambda x: jnp.stack([x, x]), state)
    plain = [None, True, -1, 0, 1, 2.5, float("nan"), float("inf"), 2**70, 1j, "", "a", "j", "home", "body", b"x", XML]
    things = [
        object(),
        [],
        [1, 2],
        (),
        {},
        {"j": 0.5},
        {"j": "a"},
        {"nobody": 1},
        {1: [2, 3]},
        print,
        lambda *a: None,
        int,
    ]
    arrays = [np.zeros(0), np.zeros(1), np.zeros(2), np.zeros(3), np.zeros((4, 3)), np.ones(2, complex), np.array("a")]
    ours = [
        model,
        model,
        model,
        other,
        state,
        state,
        state,
        batch,
        inputs,
        inputs,
        diffsim.make_state(other),
        model.opt,
    ]
    more = [
        diffsim.mjcf.read(XML),
        jax.random.key(0),
        jax.random.PRNGKey(0),
        pathlib.Path("."),
        pathlib.Path("/no/such"),
    ]
    bodies = [model.body("a"), jax.ShapeDtypeStruct((2,), jnp.float32), diffsim.Uniform(0, 1), diffsim.Scale(0.5, 2)]
    return dict(enumerate([*plain, *things, *arrays, *ours, *more, *bodies]))


def _public(module: Any) -> list[Callable[..., Any]]:
    """Functions that a module gives."""
    found = [getattr(module, name) for name in sorted(dir(module)) if not name.startswith("_")]
    return [f for f in found if inspect.isfunction(f) and f.__module__.startswith("diffsim")]


# what runs on arrays alone is traced, not compiled
TRACED = ("forward", "inverse", "step", "step_data", "integrate", "rollout", "ray", "multi_ray", "sensor")


@functools.cache
def targets() -> list[Callable[..., Any]]:
    """What is called."""
    named = [functools.reduce(getattr, name.split("."), diffsim) for name in FUNCTIONS]
    model = next(value for value in values().values() if isinstance(value, diffsim.Model))
    methods = [getattr(model, name) for name in METHODS]
    records = [model.opt.replace, diffsim.make_state(model).replace, diffsim.make_inputs(model).replace]
    return [*named, *methods, *records, *_public(support), *_public(optimize)]


def case(seed: int) -> Case:
    """A call with arguments that may be wrong in number, kind, name and shape."""
    rng = random.Random(seed)
    function = rng.choice(targets())
    pool = list(values().values())
    names = [*inspect.signature(function).parameters] or ["a"]
    fields = ["qpos", "ctrl", "dof_damping", "body_mass", "solver", "integrator", "iterations", "cone", "nothing"]
    positional = [rng.choice(pool) for _ in range(rng.randint(0, len(names)))]
    keywords = {
        rng.choice([*names, *fields] if "fields" in names else [*names[len(positional) :], "nothing"]): rng.choice(pool)
        for _ in range(rng.choice((0, 0, 0, 1, 2)))
    }
    if "fields" in names:
        positional = []
    arrays_alone = (
        function.__name__ in TRACED or ".optimize" in function.__module__ or "_queries" in function.__module__
    )
    if not arrays_alone:
        return lambda: function(*positional, **keywords)
    return lambda: jax.eval_shape(lambda: _done(function(*positional, **keywords)))


def _done(result: object) -> int:
    """Results may be no arrays."""
    del result
    return 0

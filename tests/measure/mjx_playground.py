"""MuJoCo Playground's environments, unmodified, by MJX and by diffsim: run by a Python that has the package.

    python tests/measure/mjx_playground.py record CartpoleBalance /tmp/play     # by MJX
    python tests/measure/mjx_playground.py compare CartpoleBalance /tmp/play    # by diffsim, a line of JSON
    python tests/measure/mjx_playground.py record CartpoleBalance /tmp/play 100 # with 100 iterations
    python tests/measure/mjx_playground.py speed CartpoleBalance mjx|diffsim    # a line of JSON
    python tests/measure/mjx_playground.py train CartpoleBalance mjx|diffsim    # a line of JSON

What is recorded: the observation after reset, and the whole state of the environment before each of 20 steps with
random actions. Diffsim takes each step from MJX's state; what is compared are observations, and positions and
velocities (`motion`), by |difference| / (1 + |value|). It also goes the 20 steps by itself, and all must be finite.
Models that allow the solver few iterations stop at another place in one engine than in the other: of steps in
which these differ by more than 1e-4, it is told how far positions and velocities of both are from those of C MuJoCo
with 100 iterations (`off`, medians and in how many steps diffsim is nearer), from the same state with the same
controls. With a fourth argument both have that many iterations, so that only physics differs.

`train` is Brax's PPO with Playground's settings for the environment, of which there are a 32nd of the worlds and of a
batch, a smaller network of the value and fewer steps, so that a core of a CPU does it in minutes.
"""

import functools
import gc
import json
import pathlib
import pickle
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

STEPS, GRADIENT_STEPS = 20, 5
# tracing makes millions of objects that live on
gc.set_threshold(100_000, 20, 50)


def environment(name: str, iterations: int = 0) -> Any:
    """An environment, on the implementation of MJX that is written in JAX; its solver with other iterations if any."""
    from mujoco import mjx
    from mujoco_playground import registry

    from diffsim.envs import brax

    # two environments call what jax 0.12 has no more
    brax.prepare()
    config = registry.get_default_config(name)
    env = registry.load(name, config=config, config_overrides={"impl": "jax"} if "impl" in config else {})
    if iterations:
        env.mj_model.opt.iterations, env.mj_model.opt.ls_iterations = iterations, 50
        env._mjx_model = mjx.put_model(env.mj_model, impl="jax")
    return env


def flat(value: Any) -> np.ndarray:
    """All numbers of an observation in a row."""
    return np.concatenate([np.ravel(np.asarray(leaf, float)) for leaf in jax.tree.leaves(value)])


def actions(env: Any) -> np.ndarray:
    """The actions of all steps."""
    return 0.5 * np.random.default_rng(0).uniform(-1, 1, (STEPS, env.action_size)).astype(np.float32)


def fields(data: Any) -> dict[str, np.ndarray]:
    """The arrays of an `mjx.Data` by name, those of its implementation too."""
    held = {**vars(data), **vars(data._impl)}
    return {name: np.asarray(value) for name, value in held.items() if isinstance(value, jax.Array)}


def record(name: str, folder: pathlib.Path, iterations: int) -> None:
    """Writes what MJX does."""
    env = environment(name, iterations)
    reset, step = jax.jit(env.reset), jax.jit(env.step)
    state, before, after = reset(jax.random.PRNGKey(0)), [], []
    first = flat(state.obs)
    for action in actions(env):
        others = jax.tree.map(np.asarray, (state.obs, state.reward, state.done, state.metrics, state.info))
        before.append((fields(state.data), others))
        state = step(state, jnp.asarray(action))
        after.append(flat(state.obs))
    recorded(name, folder, iterations).write_bytes(pickle.dumps((first, before, after)))


def recorded(name: str, folder: pathlib.Path, iterations: int) -> pathlib.Path:
    """The file of what MJX does."""
    return folder / (f"{name}.{iterations}.pkl" if iterations else f"{name}.pkl")


def converged(env: Any, before: dict[str, np.ndarray], ctrl: np.ndarray) -> np.ndarray:
    """Positions and velocities after one step of an environment, by C MuJoCo with a solver that may go on."""
    import copy

    import mujoco

    model = copy.deepcopy(env.mj_model)
    model.opt.iterations, model.opt.ls_iterations = 100, 50
    data = mujoco.MjData(model)
    for field in ("qpos", "qvel", "act", "time", "qacc_warmstart", "mocap_pos", "mocap_quat", "xfrc_applied"):
        if np.size(before[field]):
            setattr(data, field, before[field])
    data.ctrl = ctrl
    mujoco.mj_step(model, data, env.n_substeps)
    return np.concatenate([data.qpos, data.qvel])


def compare(name: str, folder: pathlib.Path, iterations: int) -> None:
    """Prints how far diffsim's observations are from MJX's, and how long things took."""
    import diffsim.mjx

    diffsim.mjx.install()
    start = time.time()
    env = environment(name, iterations)
    reset, step = jax.jit(env.reset), jax.jit(env.step)
    begin = reset(jax.random.PRNGKey(0))
    state, finite = begin, True
    for action in actions(env):
        state = step(state, jnp.asarray(action))
        finite &= bool(np.isfinite(flat(state.obs)).all())
    report = {"env": name, "finite": finite, "seconds": round(time.time() - start, 1)}
    file = recorded(name, folder, iterations)
    if file.exists():
        first, before, after = pickle.loads(file.read_bytes())
        errors, motion, off = [], [], []
        for index, ((held, others), action, want) in enumerate(zip(before, actions(env), after, strict=True)):
            data = begin.data
            same = {key for key in held if np.shape(getattr(data, key, None)) == held[key].shape}
            known = {field.name for field in data.fields()} | {"eq_active"}
            data = data.replace(**{key: jnp.asarray(held[key]) for key in same & known})
            obs, reward, done, metrics, info = jax.tree.map(jnp.asarray, others)
            # seen in time, as they are made
            changed = begin.replace(data=data, obs=obs, reward=reward, done=done, metrics=metrics, info=info)
            later = step(changed, jnp.asarray(action))
            got = flat(later.obs)
            errors.append(float(np.max(np.abs(got - want) / (1 + np.abs(want)))))
            if index + 1 == len(before):
                continue
            theirs, ours = (
                np.concatenate([part["qpos"], part["qvel"]]) for part in (before[index + 1][0], fields(later.data))
            )
            motion.append(float(np.max(np.abs(ours - theirs) / (1 + np.abs(theirs)))))
            if max(errors[-1], motion[-1]) > 1e-4:
                aim = converged(env, held, before[index + 1][0]["ctrl"])
                off.append([float(np.max(np.abs(place - aim))) for place in (theirs, ours)])
        error = np.abs(flat(begin.obs) - first) / (1 + np.abs(first))
        report |= {"reset": float(error.max()), "median": float(np.median(errors)), "worst": max(errors)}
        # some observations are delayed, and say little of one step
        report["motion"] = max(motion)
        if off:
            theirs, ours = np.transpose(off)
            report["off"] = {
                "steps": len(off),
                "nearer": int(np.sum(ours < theirs)),
                "mjx": float(np.median(theirs)),
                "diffsim": float(np.median(ours)),
            }
    print(json.dumps(report), flush=True)


def speed(name: str, engine: str, batch: int = 256) -> None:
    """Prints environment steps per second of a batch and of its gradient by actions, and how long compiling takes."""
    if engine == "diffsim":
        import diffsim.mjx

        diffsim.mjx.install()
    env = environment(name)
    step = jax.vmap(env.step)
    state = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.PRNGKey(0), batch))
    chosen = 0.5 * jax.random.uniform(jax.random.PRNGKey(1), (STEPS, batch, env.action_size), minval=-1)

    def run(state: Any, actions: jax.Array) -> jax.Array:
        def once(state: Any, action: jax.Array) -> Any:
            state = step(state, action)
            return state, jnp.mean(state.reward)

        return jnp.sum(jax.lax.scan(once, state, actions)[1])

    report: dict[str, Any] = {"env": name, "engine": engine}
    programs = {"forward": (run, chosen), "gradient": (jax.grad(run, argnums=1), chosen[:GRADIENT_STEPS])}
    for label, (function, actions) in programs.items():
        start = time.time()
        try:
            program = jax.jit(function).lower(state, actions).compile()
        except (ValueError, NotImplementedError) as error:
            report[label] = str(error).split(". ")[0][:80]
            continue
        report[f"{label}, compile s"], times = round(time.time() - start, 1), []
        for _ in range(4):
            start = time.time()
            jax.block_until_ready(program(state, actions))
            times.append(time.time() - start)
        report[label] = round(batch * len(actions) / min(times))
    print(json.dumps(report), flush=True)


def train(name: str, engine: str, steps: int = 900_000, evals: int = 7) -> None:
    """Prints the reward of an episode of 1,000 steps as PPO goes on, from one seed."""
    if engine == "diffsim":
        import diffsim.mjx

        diffsim.mjx.install()
    from brax.training.agents.ppo import networks
    from brax.training.agents.ppo import train as ppo
    from mujoco_playground import wrapper
    from mujoco_playground.config import dm_control_suite_params as suite

    curve = []

    def progress(step: int, metrics: dict[str, Any]) -> None:
        curve.append([step, round(float(metrics["eval/episode_reward"]))])
        print(name, engine, *curve[-1], f"CPU s {time.process_time():.0f}", file=sys.stderr, flush=True)

    settings = dict(suite.brax_ppo_config(name))
    settings |= {key: settings[key] // 32 for key in ("num_envs", "batch_size")}
    settings |= {"num_timesteps": steps, "num_evals": evals, "num_resets_per_eval": 1, "num_eval_envs": 32, "seed": 1}
    ppo.train(
        environment=environment(name),
        wrap_env_fn=wrapper.wrap_for_brax_training,
        network_factory=functools.partial(networks.make_ppo_networks, value_hidden_layer_sizes=(64,) * 3),
        progress_fn=progress,
        **settings,
    )
    print(json.dumps({"env": name, "engine": engine, "PPO": curve, "CPU s": round(time.process_time())}), flush=True)


if __name__ == "__main__":
    what, env_name, last, *more = sys.argv[1:]
    if what == "names":
        from mujoco_playground import registry

        print(json.dumps({"names": list(registry.ALL_ENVS)}))
    elif what in ("speed", "train"):
        (speed if what == "speed" else train)(env_name, last)
    else:
        (record if what == "record" else compare)(env_name, pathlib.Path(last), *map(int, more or ["0"]))

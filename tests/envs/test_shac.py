"""SHAC: its objective where episodes end within a horizon, targets of the critic, and a policy that learns."""

import dataclasses
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from diffsim import envs
from diffsim.base.errors import ArgumentError
from diffsim.envs import EnvState
from diffsim.envs.shac import Learning, Steps, network

LENGTH = 5


@dataclasses.dataclass(frozen=True)
class Cart:
    """Without physics: x moves by a tenth of the action and shall be 0; an episode fails beyond 1.5."""

    action_size: int = 1
    dt: float = 0.1

    def reset(self, key: jax.Array) -> EnvState:
        x: Any = jax.random.uniform(key, (1,), minval=-1.4, maxval=1.4)
        zero, nothing = jnp.zeros(()), dict[str, Any]()
        return EnvState(x, x, {"x": x, "more": 0.5 * x}, zero, zero, nothing, nothing)

    def step(self, state: EnvState, action: jax.Array) -> EnvState:
        before: Any = state.physics
        x = before + 0.1 * action
        done = (jnp.abs(x[0]) > 1.5).astype(x.dtype)
        return state.replace(physics=x, obs={"x": x, "more": 0.5 * x}, reward=-(x[0] ** 2), done=done)


def begun(settings: envs.Shac) -> tuple[Learning, tuple]:
    learning = Learning(envs.wrap(Cart(), LENGTH), LENGTH, settings, 10)  # type: ignore[arg-type]
    learner, state = learning.begin(jax.random.key(3))
    # a policy that moves far enough for some worlds to fail
    layers = jax.tree.map(lambda x: x + 0.3 * jax.random.normal(jax.random.key(5), x.shape), learner.policy.layers)
    return learning, (learner._replace(policy=learner.policy.replace(layers=layers)), state)


def by_hand(learning: Learning, learner: Any, state: Any, key: jax.Array, weights: tuple) -> tuple[float, list]:
    """J, world by world and step by step, without a scan or derivatives; how episodes ended."""
    settings, gamma = learning.settings, learning.settings.discount
    policy = learner.policy.replace(layers=weights[0], log_deviation=weights[1])
    noise = [jax.random.normal(k, (settings.worlds, 1)) for k in jax.random.split(key, settings.horizon)]

    def value(x: np.ndarray) -> float:
        obs = jnp.stack([0.5 * x[0], x[0]])
        return float(network(learner.lagging, (obs - policy.mean) / policy.scale)[0]) / (1 - gamma)

    total, ends = 0.0, []
    for world in range(settings.worlds):
        x, age, factor = np.array(state.physics[world]), int(state.info["steps"][world]), 1.0
        begin = np.array(state.info["first"].physics[world])
        if state.done[world]:
            age = 0
        for t in range(settings.horizon):
            x = x + 0.1 * np.asarray(policy({"x": jnp.asarray(x), "more": jnp.asarray(0.5 * x)}, noise[t][world]))
            age += 1
            total += factor * -(x[0] ** 2)
            if abs(x[0]) > 1.5:
                x, age, factor = begin, 0, 1.0
                ends.append("failed")
            elif age >= LENGTH:
                total += factor * gamma * value(x)
                x, age, factor = begin, 0, 1.0
                ends.append("over")
            else:
                factor *= gamma
        total += factor * value(x)
    return total / settings.worlds / settings.horizon, ends


def test_the_gradient_is_that_of_the_return_of_a_horizon() -> None:
    with jax.enable_x64(True):
        settings = envs.Shac(worlds=6, horizon=7, hidden=(8,), discount=0.9, deviation=1.0)
        learning, (learner, state) = begun(settings)
        key, weights = jax.random.key(7), (learner.policy.layers, learner.policy.log_deviation)
        loss = jax.jit(lambda w: learning._loss(w, learner, state, key)[0])
        expected, ends = by_hand(learning, learner, state, key, weights)
        assert {"failed", "over"} == set(ends)
        assert float(loss(weights)) == pytest.approx(-expected, rel=1e-9)
        flat, form = ravel_pytree(weights)
        way = np.random.default_rng(0).normal(size=flat.size)
        slope = ravel_pytree(jax.grad(loss)(weights))[0] @ way
        change = (loss(form(flat + 1e-6 * way)) - loss(form(flat - 1e-6 * way))) / 2e-6
        assert float(slope) == pytest.approx(float(change), rel=1e-6)


def test_targets_of_the_critic_are_mixed_returns() -> None:
    rng = np.random.default_rng(0)
    reward, beyond = rng.normal(size=(2, 6))
    done, gamma, trace = np.array([0, 0, 1, 0, 0, 0]), 0.9, 0.8
    nothing = jnp.zeros(6)
    targets = Steps(nothing, jnp.asarray(reward), nothing, jnp.asarray(done), nothing).targets(beyond, gamma, trace)
    for t in range(6):
        last = 2 if t <= 2 else 5
        returns = [
            sum(gamma**k * reward[t + k] for k in range(n)) + gamma**n * beyond[t + n - 1]
            for n in range(1, last - t + 2)
        ]
        shares = [(1 - trace) * trace**k for k in range(len(returns))]
        shares[-1] = trace ** (len(returns) - 1)
        assert float(targets[t]) == pytest.approx(np.dot(shares, returns), abs=1e-6)


def test_a_policy_learns_to_come_to_rest(tmp_path: pathlib.Path) -> None:
    heard = []
    settings = envs.Shac(worlds=16, horizon=8, hidden=(16,), rate=1e-2)
    learned = envs.shac(
        Cart(),  # type: ignore[arg-type]
        16 * 8 * 60,
        episode_length=40,
        settings=settings,
        watch=lambda steps, policy, mean: heard.append((steps, mean)),
    )
    assert [steps for steps, _ in heard] == learned.steps.tolist() == [128 * k for k in range(1, 61)]
    learned.policy.save(tmp_path / "policy.npz")
    policy = envs.Policy.load(tmp_path / "policy.npz")
    x = np.linspace(-1.4, 1.4, 8)
    for _ in range(25):
        x = x + 0.1 * np.asarray(policy({"x": jnp.asarray(x)[:, None], "more": jnp.asarray(0.5 * x)[:, None]}))[:, 0]
    assert np.abs(x).max() < 0.1
    assert np.isfinite(learned.critic_loss).all() and np.isfinite(learned.gradient).all()
    assert np.nanmean(learned.returns[-10:]) > np.nanmean(learned.returns[:10])


def test_too_few_steps_are_refused() -> None:
    with pytest.raises(ArgumentError, match="256 or more"):
        envs.shac(Cart(), 100)  # type: ignore[arg-type]

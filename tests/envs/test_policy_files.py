"""Policies in files: ONNX gives our actions and returns, and perceptrons of other programs are read."""

import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import diffsim
from diffsim import envs
from diffsim.base.errors import ArgumentError
from diffsim.envs.policy import ACTIVATIONS, random_layers

RNG = np.random.default_rng(0)


def policy(sizes: tuple[int, ...] = (5, 16, 8, 1), **fields: Any) -> envs.Policy:
    """A policy with random weights, whose normalization matters and whose clip acts."""
    layers = jax.tree.map(lambda x: x + 0.3 * RNG.normal(size=x.shape), random_layers(jax.random.key(1), sizes))
    fields = {"clip": 1.5} | fields
    mean, scale = 0.1 * RNG.normal(size=sizes[0]), RNG.uniform(0.5, 2, sizes[0])
    deviation = jnp.linspace(-1, 0, sizes[-1])
    return envs.Policy(
        layers=layers, log_deviation=deviation, mean=jnp.asarray(mean), scale=jnp.asarray(scale), **fields
    )


def runtime(path: pathlib.Path) -> Any:
    """What a robot runs: obs (n, size) -> action (n, nu); with the metadata."""
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

    def act(obs: Any) -> np.ndarray:
        return session.run(["action"], {"obs": np.atleast_2d(np.asarray(obs, np.float32))})[0]

    return act, session.get_modelmeta().custom_metadata_map


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_onnx_gives_our_actions_and_comes_back(activation: str, tmp_path: pathlib.Path) -> None:
    ours = policy(activation=activation, output="identity" if activation == "tanh" else "tanh")
    ours.to_onnx(tmp_path / "policy.onnx")
    act, metadata = runtime(tmp_path / "policy.onnx")
    obs = 2 * RNG.normal(size=(30, 5))
    np.testing.assert_allclose(act(obs), ours(jnp.asarray(obs)), atol=1e-6 * max(1, np.abs(ours(obs)).max()))
    assert metadata["observation_names"] == "obs" and metadata["observation_sizes"] == "5"
    back = envs.Policy.load(tmp_path / "policy.onnx")
    assert (back.activation, back.output, back.clip) == (ours.activation, ours.output, ours.clip)
    np.testing.assert_allclose(back(jnp.asarray(obs), 0.3), ours(jnp.asarray(obs), 0.3), rtol=1e-4, atol=1e-6)
    back.save(tmp_path / "policy.npz")
    again = envs.Policy.load(tmp_path / "policy.npz")
    np.testing.assert_array_equal(again(jnp.asarray(obs)), back(jnp.asarray(obs)))


def test_onnx_drives_the_environment_to_the_same_return(tmp_path: pathlib.Path) -> None:
    env, ours = envs.make("cartpole"), policy()
    ours.to_onnx(tmp_path / "policy.onnx", env, {"place": (1, "m"), "angle": (2, ""), "rates": (2, "m/s; rad/s")})
    act, metadata = runtime(tmp_path / "policy.onnx")
    step, start = jax.jit(env.step), jax.jit(env.reset)(jax.random.key(2))
    totals = []
    for choose in (lambda obs: np.asarray(ours(obs)), lambda obs: act(obs)[0]):
        state, total = start, 0.0
        for _ in range(40):
            state = step(state, choose(state.obs))
            total += float(state.reward)
        totals.append(total)
    assert totals[1] == pytest.approx(totals[0], rel=1e-3)
    # the policy acts: no action gives another return
    assert abs(float(ours(start.obs)[0])) > 0.01
    assert metadata["observation_names"] == "place,angle,rates"
    assert metadata["observation_units"] == "m,,m/s; rad/s"
    assert metadata["joint_names"] == "slider,hinge"
    assert float(metadata["step"]) == pytest.approx(env.dt)
    assert [float(each) for each in metadata["observation_mean"].split(",")] == pytest.approx(ours.mean.tolist())


@pytest.mark.parametrize("name", ["quadruped", "hopper"])
def test_the_metadata_say_how_actions_become_controls(name: str, tmp_path: pathlib.Path) -> None:
    env = envs.make(name)
    size = env.observation_size
    policy((size, 4, env.action_size)).to_onnx(tmp_path / "policy.onnx", envs.wrap(env))
    metadata = runtime(tmp_path / "policy.onnx")[1]
    center, scale, low, high = (
        np.array(metadata[key].split(","), float) for key in ("default_ctrl", "action_scale", "ctrl_low", "ctrl_high")
    )
    action = RNG.uniform(-1.2, 1.2, env.action_size)
    expected = env.task.control(env.model, jnp.asarray(action))
    np.testing.assert_allclose(np.clip(center + scale * np.clip(action, -1, 1), low, high), expected, atol=1e-6)
    assert metadata["actuator_names"].split(",")[0] == env.model.name("actuator", 0)


def test_controls_that_mix_actions_are_left_out(tmp_path: pathlib.Path) -> None:
    env = envs.make("walker")
    task = env.task._replace(
        control=lambda model, action: jnp.tanh(action + jnp.roll(action, 1)),
        observe=lambda now: {"rates": now.state.qvel, "joints": now.state.qpos[3:]},
    )
    policy((15, 4, env.action_size)).to_onnx(tmp_path / "policy.onnx", env.replace(task=task))
    metadata = runtime(tmp_path / "policy.onnx")[1]
    assert "ctrl_low" in metadata and "action_scale" not in metadata
    # the order in which `flat` concatenates
    assert (metadata["observation_names"], metadata["observation_sizes"]) == ("joints,rates", "6,9")


def test_wrong_observations_are_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ArgumentError, match="observations have 4 numbers, and the policy takes 5"):
        policy().to_onnx(tmp_path / "policy.onnx", observations={"a": (4, "m")})
    with pytest.raises(ArgumentError, match="'a, b' has a comma"):
        policy().to_onnx(tmp_path / "policy.onnx", observations={"a, b": (5, "m")})


def graph(path: pathlib.Path, nodes: list[tuple], weights: dict[str, Any]) -> pathlib.Path:
    """An ONNX file of nodes (operator, inputs, output, attributes), from x to y, of other programs."""
    onnx = pytest.importorskip("onnx")
    nodes = [onnx.helper.make_node(kind, ins, [out], **more) for kind, ins, out, more in nodes]
    edges = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", None]) for name in "xy"]
    constants = [onnx.numpy_helper.from_array(np.asarray(value, np.float32), name) for name, value in weights.items()]
    content = onnx.helper.make_graph(nodes, "g", edges[:1], edges[1:], constants)
    onnx.save(onnx.helper.make_model(content, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path)
    return path


WEIGHTS = {
    "mean": [[0.1, -0.2, 0.3]],
    "scale": [2.0, 0.5, 1.0],
    "one": RNG.normal(size=(6, 3)),
    "bias": RNG.normal(size=6),
    "two": RNG.normal(size=(6, 2)),
    "more": RNG.normal(size=2),
    "gain": [0.5],
}


def test_networks_of_other_programs_are_read(tmp_path: pathlib.Path) -> None:
    """Transposed matrices, MatMul and Add apart, a swish in two operators, a gain after the last layer."""
    path = graph(
        tmp_path / "other.onnx",
        [
            ("Sub", ["x", "mean"], "a", {}),
            ("Mul", ["scale", "a"], "b", {}),
            ("Gemm", ["b", "one", "bias"], "c", {"transB": 1}),
            ("Sigmoid", ["c"], "d", {}),
            ("Mul", ["d", "c"], "e", {}),
            ("MatMul", ["e", "two"], "f", {}),
            ("Add", ["more", "f"], "g", {}),
            ("Mul", ["g", "gain"], "y", {}),
        ],
        WEIGHTS,
    )
    read = envs.Policy.load(path, deviation=0.2)
    session = pytest.importorskip("onnxruntime").InferenceSession(path, providers=["CPUExecutionProvider"])
    obs = RNG.normal(size=(7, 3)).astype(np.float32)
    np.testing.assert_allclose(read(jnp.asarray(obs, float)), session.run(None, {"x": obs})[0], rtol=1e-5, atol=1e-6)
    assert (read.activation, read.output) == ("swish", "identity")
    np.testing.assert_allclose(jnp.exp(read.log_deviation), 0.2)


@pytest.mark.parametrize(
    "nodes, reason",
    [
        ([("Sin", ["x"], "y", {})], "Sin"),
        ([("MatMul", ["x", "three"], "a", {}), ("Add", ["a", "x"], "y", {})], "Add takes 2 values"),
        ([("Gemm", ["x", "one"], "a", {"transB": 1}), ("Elu", ["a"], "y", {"alpha": 0.5})], "Elu with alpha=0.5"),
        ([("Relu", ["x"], "y", {})], "before a matrix"),
    ],
)
def test_other_networks_are_refused(nodes: list[tuple], reason: str, tmp_path: pathlib.Path) -> None:
    path = graph(tmp_path / "other.onnx", nodes, WEIGHTS | {"three": np.eye(3)})
    with pytest.raises(diffsim.UnsupportedError, match=f"other.onnx.*{reason}"):
        envs.Policy.load(path)


def test_networks_of_pytorch_are_read(tmp_path: pathlib.Path) -> None:
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(torch.nn.Linear(3, 6), torch.nn.SiLU(), torch.nn.Linear(6, 2), torch.nn.Tanh()).double()
    obs = RNG.normal(size=(7, 3))
    expected = net(torch.tensor(obs)).detach().numpy()
    read = envs.Policy.from_torch(net)
    assert (read.activation, read.output) == ("swish", "tanh")
    np.testing.assert_allclose(read(jnp.asarray(obs)), expected, atol=1e-12)
    # a checkpoint that holds other networks too
    state = {f"actor.{name}": value for name, value in net.state_dict().items()}
    state |= {"critic.0.weight": torch.zeros((6, 3)), "std": torch.ones(2)}
    torch.save({"model_state_dict": state, "iter": 3}, tmp_path / "model.pt")
    with pytest.raises(ArgumentError, match=r"critic.0.weight \[6, 3\].*prefix="):
        envs.Policy.load(tmp_path / "model.pt")
    again = envs.Policy.load(tmp_path / "model.pt", prefix="actor.", activation="swish", output="tanh")
    np.testing.assert_allclose(again(jnp.asarray(obs)), expected, atol=1e-12)
    # as rsl_rl 5 writes: the normalization is a row, which is no matrix of the network
    state = {f"mlp.{name}": value for name, value in net.state_dict().items()}
    state |= {"obs_normalizer._mean": torch.full((1, 3), 0.5), "obs_normalizer._std": torch.full((1, 3), 1.99)}
    torch.save({"actor_state_dict": state, "critic_state_dict": {}, "iter": 3}, tmp_path / "model_3.pt")
    again = envs.Policy.load(tmp_path / "model_3.pt", activation="swish", output="tanh")
    np.testing.assert_allclose(again(jnp.asarray(0.5 + 2 * obs)), expected, atol=1e-6)
    with pytest.raises(ArgumentError, match="GELU"):
        envs.Policy.from_torch(torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.GELU()))


def test_learning_goes_on_from_a_policy() -> None:
    from tests.envs.test_shac import Cart

    settings = envs.Shac(worlds=4, horizon=8, hidden=(8,), rate=1e-3)
    mean, scale = jnp.array([0.1, 0.2]), jnp.array([1.0, 0.5])
    start = policy((2, 8, 1)).replace(mean=mean, scale=scale)
    learned = envs.shac(Cart(), 64, episode_length=20, settings=settings, policy=start)  # type: ignore[arg-type]
    np.testing.assert_array_equal(learned.policy.mean, mean)
    change = jax.tree.map(lambda new, old: float(jnp.abs(new - old).max()), learned.policy.layers, start.layers)
    # two steps of Adam, each at most as long as the rate
    assert 0 < max(jax.tree.leaves(change)) < 3e-3
    with pytest.raises(ArgumentError, match="5 observations and 1 actions, the environment 2 and 1"):
        envs.shac(Cart(), 64, settings=settings, policy=policy())  # type: ignore[arg-type]

"""Policy: a multilayer perceptron from observations to actions, and its files: diffsim's own, ONNX and PyTorch.

policy = envs.shac(env, 300_000).policy
policy.to_onnx("policy.onnx", env, {"angles": (3, "rad"), "rates": (3, "rad/s")})
policy = envs.Policy.load("policy.onnx")
"""

import itertools
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from diffsim.base.errors import ArgumentError
from diffsim.envs.networks import Perceptron, read_onnx, write_onnx
from diffsim.envs.torch_weights import from_torch, torch_weights
from diffsim.envs.wrappers import Environment
from diffsim.math import safe
from diffsim.types.record import Record, child, leaf, one_word, record, static
from diffsim.types.saved import restore
from diffsim.types.state import Saved
from diffsim.version import VERSION

# weights of a network, by name: "matrix 0", "bias 0", "matrix 1", ...
Layers = dict[str, Array]

# bound of normalized observations, in standard deviations: a rare outlier must not saturate the networks
FAR = 10.0

# activations by name
ACTIVATIONS = {
    "elu": jax.nn.elu,
    "relu": jax.nn.relu,
    "selu": jax.nn.selu,
    "sigmoid": jax.nn.sigmoid,
    "softplus": jax.nn.softplus,
    "swish": jax.nn.swish,
    "tanh": jnp.tanh,
    "identity": lambda x: x,
}


@record
class Policy(Saved, Record):
    """A policy: a function of an observation or a batch. Use `save(path)` and `Policy.load(path)` to keep it.

    Attributes:
      layers: weights of the network: "matrix 0" (observations, hidden), "bias 0" (hidden,), "matrix 1", ...
      log_deviation: (nu,) log of the standard deviation of the noise on actions.
      mean, scale: mean and standard deviation of observations, which normalize the input.
      clip: bound of the normalized observations.
      activation: the activation between the layers: elu, relu, selu, sigmoid, softplus, swish, tanh or identity.
      output: the activation after the last layer and the noise: tanh, or another of these.
    """

    layers: Layers = child()
    log_deviation: Array = leaf("nu")
    mean: Array = leaf("observations")
    scale: Array = leaf("observations")
    clip: float = static(default=FAR)
    activation: str = static(one_word(ACTIVATIONS), default="elu")
    output: str = static(one_word(ACTIVATIONS), default="tanh")

    def __call__(self, obs: Any, noise: Array | float = 0.0) -> Array:
        """Actions (..., nu): output(network(obs) + deviation * noise); in [-1, 1] with the output tanh."""
        mean = network(self.layers, self.normalized(flat(obs)), self.activation)
        return ACTIVATIONS[self.output](mean + jnp.broadcast_to(jnp.exp(self.log_deviation), mean.shape) * noise)

    def normalized(self, obs: Array) -> Array:
        """Observations (..., size) with mean 0 and standard deviation 1, clipped."""
        mean, scale = (jnp.broadcast_to(x, obs.shape) for x in (self.mean, self.scale))
        normalized = (obs - mean) / scale
        return safe.clip(normalized, -self.clip, self.clip) if math.isfinite(self.clip) else normalized

    def to_onnx(
        self,
        path: str | Path,
        env: Environment | None = None,
        observations: Mapping[str, tuple[int, str]] | None = None,
    ) -> None:
        """Writes the policy without noise to an ONNX file, with metadata that a robot needs.

        The file maps `obs` (n, observations) to `action` (n, nu), both float32, and contains the normalization. The
        metadata are texts, and lists are separated by commas:

        - observation_names, observation_sizes, observation_units, in the order of `obs`; observation_mean,
          observation_std and observation_clip: the normalization, for information;
        - with an environment, step (s between actions), joint_names in the order of qpos, actuator_names,
          ctrl_low and ctrl_high, and, if the controls are clip(default_ctrl + action_scale * clip(action, -1, 1),
          ctrl_low, ctrl_high), default_ctrl and action_scale. If the last controls stand for default_ctrl,
          action_relative is true.

        Args:
          path: of the file.
          env: the environment of the policy; None leaves out the metadata that come from it.
          observations: name -> (size, unit) for each part of an observation, in order. None takes the parts if the
            environment's observation is a dict, else one part "obs".

        Raises:
          ArgumentError: the sizes do not sum up to the number of observations, or a name or unit has a comma.
          ImportError: the package onnx is not installed (extra `onnx`).
        """
        size = self.mean.shape[-1]
        parts = dict(observations) if observations is not None else _parts(env, size)
        total = sum(number for number, _ in parts.values())
        if total != size:
            raise ArgumentError(f"to_onnx: the observations have {total} numbers, and the policy takes {size}")
        metadata = {
            "observation_names": _listed(parts),
            "observation_sizes": _listed(number for number, _ in parts.values()),
            "observation_units": _listed(unit for _, unit in parts.values()),
            "observation_mean": _listed(self.mean),
            "observation_std": _listed(self.scale),
            "observation_clip": str(self.clip),
            "action_log_std": _listed(self.log_deviation),
            "producer": f"diffsim {VERSION}",
        }
        count = len(self.layers) // 2
        pairs = [(np.asarray(self.layers[f"matrix {i}"]), np.asarray(self.layers[f"bias {i}"])) for i in range(count)]
        net = Perceptron(
            layers=pairs,
            mean=np.asarray(self.mean),
            scale=np.asarray(self.scale),
            clip=self.clip,
            activation=self.activation,
            output=self.output,
        )
        write_onnx(path, net, metadata | (_of_environment(env) if env is not None else {}))

    @classmethod
    def load(cls, path: str | Path, deviation: float = 0.4, **torch_settings: Any) -> Self:
        """Reads a policy from a file: from `save` (npz), ONNX, or PyTorch (.pt, .pth: a state dict).

        An ONNX file must contain a multilayer perceptron, whichever program wrote it. Training can continue from the
        policy: `envs.shac(env, steps, policy=policy)`.

        Args:
          path: of the file.
          deviation: standard deviation of the noise on actions, if the file has none.
          torch_settings: of `from_torch`, for files of PyTorch.

        Raises:
          MjcfError: the file is damaged, or of another version or record.
          UnsupportedError: the network of an ONNX file is not a multilayer perceptron.
          ImportError: the package onnx or torch, which reads the file, is not installed.
        """
        suffix = Path(path).suffix
        if suffix in (".pt", ".pth"):
            return cls.from_torch(torch_weights(path), deviation, **torch_settings)
        if suffix != ".onnx":
            return restore(cls, path)
        net, metadata = read_onnx(path)
        known = metadata.get("action_log_std")
        return cls._of(net, jnp.array([float(each) for each in known.split(",")]) if known else math.log(deviation))

    @classmethod
    def from_torch(
        cls,
        network: Any,
        deviation: float = 0.4,
        activation: str | None = None,
        output: str | None = None,
        prefix: str = "",
    ) -> Self:
        """A policy with the weights of a PyTorch network, which it copies.

        Args:
          network: a `torch.nn.Sequential` of `Linear` and activations, or a state dict, such as the one of rsl_rl's
            checkpoints.
          deviation: standard deviation of the noise on actions.
          activation, output: names of the activations between the layers and after the last. None: the activations of
            a `Sequential`; "elu" and "identity" for a state dict.
          prefix: only weights whose names begin with it are taken, such as "actor.".

        Raises:
          ArgumentError: the sizes of successive matrices do not match, or the activations differ between layers.
        """
        return cls._of(from_torch(network, activation, output, prefix), math.log(deviation))

    @classmethod
    def _of(cls, net: Perceptron, log_deviation: Any) -> Self:
        """The policy of a perceptron."""
        layers = {}
        for i, (matrix, bias) in enumerate(net.layers):
            layers |= {f"matrix {i}": jnp.asarray(matrix, float), f"bias {i}": jnp.asarray(bias, float)}
        return cls(
            layers=layers,
            log_deviation=jnp.broadcast_to(jnp.asarray(log_deviation, float), net.layers[-1][1].shape),
            mean=jnp.asarray(net.mean, float),
            scale=jnp.asarray(net.scale, float),
            clip=net.clip,
            activation=net.activation,
            output=net.output,
        )


def _listed(values: Iterable[Any]) -> str:
    """Values as a text, separated by commas."""
    texts = [str(value if isinstance(value, str | int) else float(value)) for value in values]
    wrong = [text for text in texts if "," in text]
    if wrong:
        raise ArgumentError(f"to_onnx: {wrong[0]!r} has a comma, which separates names in the metadata")
    return ",".join(texts)


def _parts(env: Environment | None, size: int) -> dict[str, tuple[int, str]]:
    """Names and sizes of the parts of an observation, in the order of `flat`, without units."""
    shapes = env.observation_size if env is not None else None
    if not isinstance(shapes, dict):
        return {"obs": (size, "")}
    parts = jax.tree.flatten_with_path(shapes, is_leaf=lambda shape: isinstance(shape, tuple))[0]
    return {jax.tree_util.keystr(path, simple=True, separator="/"): (shape[-1], "") for path, shape in parts}


def _of_environment(env: Environment) -> dict[str, str]:
    """Metadata about timing, joints and controls."""
    model = env.model
    control = env.unwrapped.task.control
    low, high = np.asarray(model.actuator_ctrlrange, float).T
    limited = np.asarray(model.topology.actuator_ctrllimited, bool)
    low = np.where(limited, low, -np.inf)
    high = np.where(limited, high, np.inf)
    metadata = {
        "step": str(float(env.dt)),
        "joint_names": _listed(model.name("joint", i) for i in range(model.njnt)),
        "actuator_names": _listed(model.name("actuator", i) for i in range(model.nu)),
        "ctrl_low": _listed(low),
        "ctrl_high": _listed(high),
    }
    middle = jnp.zeros(model.nu)
    center = np.asarray(control(model, middle))
    slopes = np.asarray(jax.jacfwd(lambda a: control(model, a))(middle))
    scale = np.diag(slopes)
    # tests at random actions, some of them out of range, whether `control` is only this scale, offset and clipping
    tried = np.random.default_rng(0).uniform(-1.5, 1.5, (50, model.nu))
    results = jax.vmap(lambda action: control(model, action))(jnp.asarray(tried, center.dtype))
    linear = center + scale * np.clip(tried, -1, 1)
    if env.unwrapped.task.relative:
        if np.allclose(results, linear, rtol=1e-4, atol=1e-5) and not center.any():
            metadata |= {"action_scale": _listed(scale), "action_relative": "true"}
    elif np.allclose(results, np.clip(linear, low, high), rtol=1e-4, atol=1e-5):
        metadata |= {"default_ctrl": _listed(center), "action_scale": _listed(scale)}
    return metadata


def flat(obs: Any) -> Array:
    """Concatenates the arrays of an observation to (..., size)."""
    parts = jax.tree.leaves(obs)
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=-1)


def network(layers: Layers, x: Array, activation: str = "elu") -> Array:
    """A multilayer perceptron with an activation between the layers."""
    for i in range(len(layers) // 2):
        x = (x if i == 0 else ACTIVATIONS[activation](x)) @ layers[f"matrix {i}"]
        x = x + jnp.broadcast_to(layers[f"bias {i}"], x.shape)
    return x


def random_layers(key: Array, sizes: tuple[int, ...]) -> Layers:
    """Random weights with variance 1 / inputs; the last layer is 100 times smaller, so that outputs start near 0."""
    keys = jax.random.split(key, len(sizes) - 1)
    layers = {}
    for i, (rows, columns) in enumerate(itertools.pairwise(sizes)):
        small = 0.01 if i == len(sizes) - 2 else 1.0
        layers[f"matrix {i}"] = small / rows**0.5 * jax.random.normal(keys[i], (rows, columns))
        layers[f"bias {i}"] = jnp.zeros(columns)
    return layers

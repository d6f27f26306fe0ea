"""Multilayer perceptrons from weights of PyTorch, and back."""

import importlib
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from diffsim.base.errors import ArgumentError
from diffsim.envs.networks import NAMES, PASSED, Perceptron

# names of activations by their class in PyTorch
TORCH = NAMES | {"ELU": "elu", "ReLU": "relu", "SELU": "selu", "SiLU": "swish"}
# what rsl_rl adds to the standard deviation of observations (its EmpiricalNormalization), in units of an observation
RSL_RL_EPS = 0.01


def from_torch(weights: Any, activation: str | None, output: str | None, prefix: str) -> Perceptron:
    """A perceptron with the weights of a PyTorch network.

    Args:
      weights: a `torch.nn.Sequential` of `Linear` and activations, another module, its state dict, or a checkpoint that
        holds one under "model_state_dict" or "actor_state_dict". The normalization of rsl_rl's policies is read, too.
      activation, output: names of the activations between the layers and after the last. None: the activations
        of a `Sequential`, otherwise "elu" and "identity".
      prefix: only weights whose names begin with it are taken, such as "actor.".

    Raises:
      ArgumentError: the sizes of successive matrices do not match, or the activations differ.
    """
    module = weights if hasattr(weights, "state_dict") else None
    state: Mapping[str, Any] = weights.state_dict() if module is not None else weights
    state = state.get("model_state_dict", state.get("actor_state_dict", state))
    weights = {name: value for name, value in state.items() if name.startswith(prefix) and name.endswith("weight")}
    matrices = {name: _numpy(value) for name, value in weights.items() if value.ndim == 2}
    layers = []
    for name, matrix in matrices.items():
        bias = state.get(name.removesuffix("weight") + "bias")
        layers.append((matrix.T, np.zeros(len(matrix)) if bias is None else _numpy(bias)))
    sizes = [matrix.shape for matrix, _ in layers]
    if not sizes or any(one[1] != other[0] for one, other in itertools.pairwise(sizes)):
        found = ", ".join(f"{name} {list(matrix.shape)}" for name, matrix in matrices.items()) or "none"
        raise ArgumentError(
            f"the sizes of successive matrices do not match: {found}; "
            'give the prefix of the names that belong to the policy, such as prefix="actor."'
        )
    inner, last = _activations(module) if not prefix else (None, None)
    # rsl_rl 5 has "obs_normalizer._mean" inside the actor, versions 3 and 4 have "actor_obs_normalizer._mean" outside
    # it
    moments = {
        name.rpartition("_")[2]: _numpy(value)
        for name, value in state.items()
        if "obs_normalizer._" in name and not name.startswith("critic")
    }
    mean = np.broadcast_to(moments.get("mean", 0.0), (1, sizes[0][0]))[0]
    scale = np.broadcast_to(moments["std"] + RSL_RL_EPS if moments else 1.0, (1, sizes[0][0]))[0]
    return Perceptron(
        layers=layers,
        mean=mean,
        scale=scale,
        activation=activation or inner or "elu",
        output=output or last or "identity",
    )


def torch_weights(path: str | Path) -> Any:
    """What `torch.save` wrote, if it consists of tensors.

    Raises:
      ImportError: PyTorch is not installed.
    """
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError as problem:
        raise ImportError("files of PyTorch need PyTorch: pip install 'diffsim-jax[torch]'") from problem
    return torch.load(path, map_location="cpu", weights_only=True)


def _activations(module: Any) -> tuple[str | None, str | None]:
    """The activations between the layers and after the last of a `torch.nn.Sequential`; None where it does not say."""
    parts = list(module) if type(module).__name__ == "Sequential" else []
    kinds = [type(part).__name__ for part in parts]
    unknown = [kind for kind in kinds if kind not in TORCH and kind not in ("Linear", *PASSED)]
    if unknown:
        raise ArgumentError(f"the network has a {unknown[0]}; expected Linear and {', '.join(TORCH)}")
    linear = [place for place, kind in enumerate(kinds) if kind == "Linear"]
    # alpha of ELU and beta of Softplus are 1 here
    odd = [part for part in parts if getattr(part, "alpha", 1.0) != 1.0 or getattr(part, "beta", 1.0) != 1.0]
    inner = {kinds[place + 1] for place in linear[:-1]}
    if odd or len(inner) > 1:
        raise ArgumentError(
            f"the network has {odd[0] if odd else ' and '.join(sorted(inner))}; expected one activation"
        )
    last = kinds[linear[-1] + 1 :] if linear else []
    return TORCH.get(inner.pop(), "identity") if inner else None, TORCH.get(last[0]) if last else None


def _numpy(tensor: Any) -> np.ndarray:
    """A tensor of PyTorch as a float64 array."""
    return tensor.detach().cpu().double().numpy()

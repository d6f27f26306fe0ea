"""Multilayer perceptrons in ONNX files.

    x = clip((obs - mean) / scale, -c, c);   x = activation(x @ matrix + bias), layer by layer;   output(x) at the end

`write_onnx` and `read_onnx` need the extra `onnx`.
"""

import importlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from diffsim.base.errors import UnsupportedError

# ONNX operators by the name of the activation; a swish is written as x * sigmoid(x), because ONNX has the operator only
# since opset 24
OPERATORS = {
    "elu": "Elu",
    "relu": "Relu",
    "selu": "Selu",
    "sigmoid": "Sigmoid",
    "softplus": "Softplus",
    "swish": "Swish",
    "tanh": "Tanh",
    "identity": "Identity",
}
# names of activations by their ONNX operator
NAMES = {operator: name for name, operator in OPERATORS.items()}

# operator set of the files that are written, of 2021: runtimes on robots are old
OPSET = 15
# version of the file format (ir_version) that goes with it, of 2021
FORMAT = 8

# by operator, the attributes that are checked and the only value that each may have
ATTRIBUTES = {
    "Elu": {"alpha": 1.0},
    "Gemm": {"alpha": 1.0, "beta": 1.0, "transA": 0},
    "Selu": {"alpha": 1.6732632, "gamma": 1.0507010},
    "Swish": {"alpha": 1.0},
}

# operators that do not change the numbers of a batch of vectors
PASSED = ("Identity", "Cast", "Flatten", "Dropout")
# operators that form an affine function with a constant
ARITHMETIC = ("Add", "Sub", "Mul", "Div")


class Perceptron(NamedTuple):
    """A multilayer perceptron.

    Attributes:
      layers: a matrix (inputs, outputs) and a bias (outputs,) for each layer.
      mean, scale: (inputs,) mean and standard deviation that normalize the input.
      clip: bound of the normalized input, infinite for none.
      activation: the activation between the layers, a key of OPERATORS.
      output: the activation after the last layer, a key of OPERATORS.
    """

    layers: list[tuple[np.ndarray, np.ndarray]]
    mean: np.ndarray
    scale: np.ndarray
    clip: float = math.inf
    activation: str = "elu"
    output: str = "identity"


class Operation(NamedTuple):
    """An operator that is applied to the value so far.

    Attributes:
      kind: the name of the operator.
      constants: its other inputs, in order.
      reverse: whether the first constant comes before the value, as in 1 - x.
      attributes: by name.
    """

    kind: str
    constants: list[np.ndarray]
    reverse: bool
    attributes: dict[str, Any]


def write_onnx(path: str | Path, net: Perceptron, metadata: Mapping[str, str]) -> None:
    """Writes a float32 ONNX file with the input `obs` (n, inputs) and the output `action` (n, outputs).

    Args:
      path: of the file.
      net: the perceptron.
      metadata: texts by key, stored in the file.

    Raises:
      ImportError: the package onnx is not installed.
    """
    onnx = _onnx()
    nodes: list[Any] = []
    constants: dict[str, np.ndarray] = {}

    def add(kind: str, *inputs: str, output: str = "") -> str:
        """Adds an operator; returns the name of its output."""
        output = output or f"value {len(nodes)}"
        nodes.append(onnx.helper.make_node(kind, inputs, [output]))
        return output

    def constant(name: str, value: Any) -> str:
        """Adds a constant; returns its name."""
        constants[name] = np.asarray(value, np.float32)
        return name

    def activated(name: str, x: str, output: str = "") -> str:
        """Adds an activation; returns the name of its output."""
        if name == "swish":
            return add("Mul", x, add("Sigmoid", x), output=output)
        return add(OPERATORS[name], x, output=output)

    x = add("Div", add("Sub", "obs", constant("mean", net.mean)), constant("scale", net.scale))
    if math.isfinite(net.clip):
        x = add("Clip", x, constant("lowest", -net.clip), constant("highest", net.clip))
    for i, (matrix, bias) in enumerate(net.layers):
        x = activated(net.activation, x) if i > 0 else x
        x = add("Gemm", x, constant(f"matrix {i}", matrix), constant(f"bias {i}", bias))
    activated(net.output, x, output="action")

    def edge(name: str, size: int) -> Any:
        return onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", size])

    weights = [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()]
    ends = [edge("obs", len(net.mean))], [edge("action", len(net.layers[-1][1]))]
    graph = onnx.helper.make_graph(nodes, "policy", *ends, weights)
    opsets = [onnx.helper.make_opsetid("", OPSET)]
    content = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=FORMAT, producer_name="diffsim")
    onnx.helper.set_model_props(content, dict(metadata))
    onnx.checker.check_model(content)
    onnx.save(content, str(path))


def read_onnx(path: str | Path) -> tuple[Perceptron, dict[str, str]]:
    """Reads the perceptron and the metadata of an ONNX file, whichever program wrote it.

    Sums and products with constants before the first matrix are the normalization. After a matrix they are multiplied
    into it.

    Raises:
      UnsupportedError: the file has an operator that is not in a perceptron.
      ImportError: the package onnx is not installed.
    """
    content = _onnx().load(str(path))
    try:
        net = _perceptron(_chain(content.graph))
    except UnsupportedError as problem:
        reason = f"{problem.problems[0].message}, and only multilayer perceptrons with one input are read"
        raise UnsupportedError.of(str(path), reason, problem.problems[0].hint) from None
    return net, {each.key: each.value for each in content.metadata_props}


def _chain(graph: Any) -> list[Operation]:
    """The operators from the input of a graph to its output, which must be a chain."""
    onnx = _onnx()
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    makers: dict[str, tuple[str, list[str], dict[str, Any]]] = {}
    for node in graph.node:
        kind = node.op_type
        inputs = [name for name in node.input if name]
        output = node.output[0]
        attributes = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
        if kind == "Constant" and "value" in attributes:
            constants[output] = onnx.numpy_helper.to_array(attributes["value"])
        elif kind in ("Identity", "Cast", "Transpose") and inputs[0] in constants:
            constants[output] = constants[inputs[0]].T if kind == "Transpose" else constants[inputs[0]]
        else:
            makers[output] = kind, inputs, attributes
    starts = {each.name for each in graph.input} - set(constants)
    place = graph.output[0].name
    operations = []
    while place not in starts:
        kind, inputs, attributes = makers[place]
        values = [name for name in inputs if name not in constants]
        gates = [name for name in values if makers.get(name, ("",))[0] == "Sigmoid"]
        # the pattern x * sigmoid(x)
        if kind == "Mul" and len(values) == 2 and gates and makers[gates[0]][1][0] in values:
            kind = "Swish"
            values = makers[gates[0]][1]
        if len(values) != 1:
            raise UnsupportedError.of("", f"{kind} takes {len(values)} values that depend on the input")
        numbers = [constants[name] for name in inputs if name in constants]
        operations.append(Operation(kind, numbers, inputs[0] != values[0], attributes))
        place = values[0]
    return operations[::-1]


def _perceptron(operations: Sequence[Operation]) -> Perceptron:
    """The perceptron that a chain of operators forms. Raises UnsupportedError if it is something else."""
    layers: list[tuple[Any, Any]] = []
    activations: list[str] = []
    # the normalization so far: factor x + shift
    factor = np.ones(())
    shift = np.zeros(())
    clip = math.inf
    for operation in operations:
        kind = operation.kind
        constants = operation.constants
        _check_attributes(operation)
        # no activation has followed the last matrix yet, so sums and products belong to it
        open_layer = len(layers) > len(activations)
        if kind in PASSED:
            continue
        if kind in ARITHMETIC and (open_layer or (not layers and math.isinf(clip))):
            times, plus = _affine(operation)
            if open_layer:
                layers[-1] = layers[-1][0] * times, layers[-1][1] * times + plus
            else:
                factor = factor * times
                shift = shift * times + plus
        elif kind == "Clip" and not layers and len(constants) == 2 and constants[0] == -constants[1]:
            clip = float(constants[1])
        elif kind in ("Gemm", "MatMul") and constants and not operation.reverse:
            matrix = constants[0].T if operation.attributes.get("transB") else constants[0]
            activations += ["identity"] * open_layer
            layers.append((matrix, constants[1] if len(constants) > 1 else np.zeros(matrix.shape[1])))
        elif kind in NAMES and open_layer:
            activations.append(NAMES[kind])
        else:
            raise UnsupportedError.of("", f"it has a {kind} {'after an activation' if layers else 'before a matrix'}")
    inner = set(activations[: len(layers) - 1])
    if not layers or len(inner) > 1:
        raise UnsupportedError.of(
            "", f"its activations are {', '.join(sorted(inner))}" if inner else "it has no matrix"
        )
    size = layers[0][0].shape[0]
    factor, shift = (np.broadcast_to(np.asarray(each, float), (size,)) for each in (factor, shift))
    return Perceptron(
        layers=[(np.asarray(matrix, float), np.asarray(bias, float)) for matrix, bias in layers],
        mean=-shift / factor,
        scale=1 / factor,
        clip=clip,
        activation=inner.pop() if inner else "elu",
        output=activations[-1] if len(activations) == len(layers) else "identity",
    )


def _affine(operation: Operation) -> tuple[Any, Any]:
    """(a, b) of the operation a x + b."""
    kind = operation.kind
    (constant,) = operation.constants
    constant = constant.reshape(constant.shape[-1:])
    if kind == "Sub" and operation.reverse:
        return -1.0, constant
    if kind == "Div" and operation.reverse:
        raise UnsupportedError.of("", "it divides by a value")
    if kind in ("Add", "Sub"):
        return 1.0, constant if kind == "Add" else -constant
    return (constant if kind == "Mul" else 1 / constant), 0.0


def _check_attributes(operation: Operation) -> None:
    """Raises UnsupportedError if an attribute does not have the value in ATTRIBUTES."""
    for name, usual in ATTRIBUTES.get(operation.kind, {}).items():
        value = operation.attributes.get(name, usual)
        if not math.isclose(value, usual, rel_tol=1e-6):
            raise UnsupportedError.of("", f"it has {operation.kind} with {name}={value}")


def _onnx() -> Any:
    """The package onnx.

    Raises:
      ImportError: it is not installed.
    """
    try:
        return importlib.import_module("onnx")
    except ImportError as problem:
        raise ImportError("ONNX files need the package onnx: pip install 'diffsim-jax[onnx]'") from problem

"""Draft: a model during compilation. The passes read elements and write rows under mjModel's names.

A `Node` is one object of the model: its element with all attributes filled, its index, its body, the pose of the
`<frame>`s around it, and the row of mjModel fields that passes have found so far. Finally `columns` converts the rows
of each kind to arrays.
"""

import functools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from diffsim.base.errors import Problems, absent
from diffsim.mjcf.attributes import Tristate
from diffsim.mjcf.elements.settings import Compiler, LengthRange
from diffsim.mjcf.files.surface import Surface
from diffsim.mjcf.orientation import IDENTITY
from diffsim.mjcf.resources import AssetError, ResourceError
from diffsim.mjcf.schema import Element
from diffsim.mjcf.spec import Spec
from diffsim.types.hooks import Hooks
from diffsim.types.kinds import KINDS

Array = np.ndarray
Fields = dict[str, Any]
Pose = tuple[Array, Array]


def origin() -> Pose:
    """The identity pose."""
    return np.zeros(3), np.array(IDENTITY)


@dataclass(eq=False)
class Node:
    """One object of the model.

    Attributes:
      e: its element with all attributes filled.
      source: its element as in the file.
      id: its index among the objects of its kind.
      body: the body to which it belongs.
      frame: the pose of the frames around it, in the frame of its body.
      row: its fields so far, under mjModel's names.
      parent: of a body, the parent body.
      under: of a body, the objects that belong to it, and its child bodies, by kind.
    """

    e: Any
    source: Element
    id: int
    body: "Node | None" = None
    frame: Pose = field(default_factory=origin)
    row: Fields = field(default_factory=dict)
    parent: "Node | None" = None
    under: dict[str, list["Node"]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The object's name, empty if it has none."""
        return getattr(self.e, "known_as", None) or getattr(self.e, "name", None) or ""


NO_HOOKS = Hooks()


class Draft:
    """The model so far: objects by kind, complete fields, and errors."""

    def __init__(self, spec: Spec, hooks: Hooks = NO_HOOKS) -> None:
        self.spec = spec
        # the user's plugins, by name
        self.plugins = dict(hooks.plugins or ())
        self.problems = Problems()
        self.nodes: dict[str, list[Node]] = {kind: [] for kind in KINDS}
        self.fields: Fields = {}
        # actuators whose length range must be found by simulation
        self.unmeasured: set[int] = set()
        # surfaces of mesh files, by contents and media type
        self.surfaces: dict[tuple[bytes, str], Surface] = {}
        # the plugin instance that an element uses, by id() of the element
        self.instance_of: dict[int, int] = {}
        self._index: dict[str, dict[str, Node]] = {}

    @functools.cached_property
    def lengthrange(self) -> LengthRange:
        """The settings `<lengthrange>` with all attributes filled."""
        return (self.spec.compiler.first(LengthRange) or LengthRange()).filled()

    def settings(self, node: "Node") -> Compiler:
        """The compiler settings for an object; for an object of an attached model, the settings of that model."""
        return self.spec.compiler_of(node.source)

    def add(self, kind: str, node: Node) -> Node:
        """Appends an object to the list of its kind, and returns it."""
        self.nodes[kind].append(node)
        return node

    def find(self, place: Element, kind: str, name: str | None) -> Node | None:
        """The object of a kind with a name; notes an error and returns None if there is none."""
        index = self._names(kind)
        if name and name not in index:
            self.problems.add(place, *absent(kind, name, (node.name for node in self.nodes[kind])))
        return index.get(name or "")

    def optional(self, node: Node, kind: str, name: str | None) -> int:
        """The index of the object that an attribute names; -1 if the attribute is not given."""
        target = self.find(node.source, kind, name) if name else None
        return target.id if target else -1

    def _names(self, kind: str) -> dict[str, Node]:
        """The objects of a kind by name; objects without a name have keys that no name can be."""
        nodes = self.nodes[kind]
        index = self._index.get(kind)
        if index is None or len(index) != len(nodes):
            index = self._index[kind] = {node.name or f"\0{node.id}": node for node in nodes}
        return index

    def contents(self, node: Node, attribute: str = "file_") -> bytes:
        """The contents of the file that an asset names. Raises AssetError if it cannot be read or is empty."""
        try:
            data = self.spec.read_file(node.source, attribute)
        except ResourceError as error:
            raise AssetError(str(error), error.hint) from error
        if not data:
            raise AssetError(f"file '{getattr(node.source, attribute)}' is empty")
        return data

    def refuse(self, node: Node, error: AssetError) -> None:
        """Notes why an asset cannot be used, with the name of its file."""
        file = getattr(node.source, "file_", None)
        message = str(error)
        named = f"file '{file}': {message}" if file and f"'{file}'" not in message else message
        self.problems.add(node.source, named, error.hint)

    def columns(self, kind: str) -> None:
        """Converts the rows of all objects of a kind to arrays in `fields`."""
        self.fields.update(columns(node.row for node in self.nodes[kind]))


def columns(rows: Iterable[Fields]) -> Fields:
    """Converts rows with equal keys to one array for each key, bools to 0 and 1. Without rows there are no keys."""
    rows = list(rows)
    if not rows:
        return {}
    arrays = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return {name: array.astype(np.int32) if array.dtype == bool else array for name, array in arrays.items()}


def is_limited(limited: Tristate, limits: Array) -> bool:
    """Whether limits apply: `limited` is true, or it is auto and the range is not empty."""
    return limited == Tristate.TRUE or (limited == Tristate.AUTO and bool(limits[0] < limits[1]))


def check_limits(draft: Draft, node: Node, word: str, limited: Tristate, limits: Array) -> bool:
    """`is_limited` for the attributes `word`range and `word`limited; notes errors in them."""
    name = word + "range"
    flag = word + "limited"
    check_flag(draft, node, name, flag, limited, limits)
    active = is_limited(limited, limits)
    if active and limits[0] >= limits[1]:
        hint = "" if np.any(limits) else f"give attribute '{name}'"
        draft.problems.add(
            node.source, f"attribute '{name}': must be increasing, not {limits[0]:g} {limits[1]:g}", hint
        )
    return active


def check_flag(draft: Draft, node: Node, name: str, flag: str, limited: Tristate, limits: Array) -> None:
    """Notes a range without its flag `limited` while the setting autolimits is false."""
    if limited == Tristate.AUTO and not draft.settings(node).autolimits and np.any(limits):
        message = f"attribute '{name}' needs attribute '{flag}', because the compiler setting autolimits is false"
        draft.problems.add(node.source, message, f"set {flag}, or autolimits to true")


def addresses(counts: Array) -> Array:
    """The first index of each of consecutive blocks with these lengths."""
    return np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int32) if len(counts) else np.zeros(0, np.int32)


def or_minus_one(address: Array, count: Array) -> Array:
    """The address of each block; -1 if the block is empty."""
    return np.where(count > 0, address, -1).astype(np.int32)

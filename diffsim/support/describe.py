"""Readable dumps: every field of a model, a state or Data with its shape, and each row with its object's name."""

import dataclasses
import sys
from collections.abc import Iterator
from enum import Enum
from typing import TextIO

import numpy as np
from jax import Array

from diffsim.base.checked import checked
from diffsim.types import Data, Inputs, Model, State
from diffsim.types.kinds import KINDS
from diffsim.types.record import Record
from diffsim.types.topology import Topology, per_topology
from diffsim.types.views import fields_of

Labels = dict[str, tuple[str, ...]]


@checked
def print_model(model: Model, file: TextIO | None = None, rows: int = 100) -> None:
    """Prints a model: sizes, options, and every field that has elements (mj_printModel).

    Args:
      model: the model, of one world.
      file: where to write; None for the standard output.
      rows: how many rows of a long array are printed.
    """
    topology = model.topology
    sizes = {f.name: getattr(topology, f.name) for f in dataclasses.fields(Topology) if f.type is int}
    lines = ["MODEL", *(f"  {name} {size}" for name, size in sizes.items() if size)]
    for title, record in (("OPTION", model.opt), ("STATISTIC", model.stat)):
        shown = {f.name: getattr(record, f.name) for f in dataclasses.fields(record)}
        lines += ["", title, *(f"  {name} {_row(value)}" for name, value in shown.items())]
    for kind, row in KINDS.items():
        fields = [f for f in dict.fromkeys(fields_of(kind).values()) if f.owner is Topology and f.block is None]
        for field in fields if getattr(topology, row.size) else ():
            labels = _labels(topology)[row.size]
            lines += ["", *_table(f"{field.name} ({row.size})", getattr(topology, field.name), labels, rows)]
    lines += _record_lines(topology, model, rows)
    print("\n".join(lines), file=file or sys.stdout)


@checked
def print_data(model: Model, record: Data | State | Inputs, file: TextIO | None = None, rows: int = 100) -> None:
    """Prints Data, a State, Inputs or the result of a stage: every field that has elements (mj_printData).

    Args:
      model: the model to which the record belongs.
      record: of one world.
      file: where to write; None for the standard output.
      rows: how many rows of a long array are printed.
    """
    lines = [type(record).__name__.upper(), *_record_lines(model.topology, record, rows)]
    contact = getattr(record, "contact", None)
    if contact is not None:
        lines += _record_lines(model.topology, contact, rows, "contact.")
    print("\n".join(lines), file=file or sys.stdout)


def _record_lines(topology: Topology, record: Record, rows: int, prefix: str = "") -> Iterator[str]:
    """A table for each array of a record that has elements, each after an empty line."""
    for field in dataclasses.fields(record):  # type: ignore[arg-type]
        value = getattr(record, field.name)
        if "shape" not in field.metadata or value is None or not np.size(value):
            continue
        shape = field.metadata["shape"]
        title = f"{prefix}{field.name} ({', '.join(map(str, shape))})" if shape else f"{prefix}{field.name}"
        yield ""
        yield from _table(title, np.asarray(value), _labels(topology).get(shape[0], ()) if shape else (), rows)


def _table(title: str, values: np.ndarray, labels: tuple[str, ...], rows: int) -> Iterator[str]:
    """A title, then one line for each row with its number and label."""
    if not values.ndim:
        yield f"{title} {_row(values)}"
        return
    yield title
    width = max((len(label) for label in labels), default=0)
    for index, row in enumerate(values[:rows]):
        label = labels[index] if index < len(labels) else ""
        yield f"  {index:4d} {label:{width}} {_row(row)}"
    if len(values) > rows:
        yield f"  ... {len(values)} rows"


def _row(value: object) -> str:
    """Numbers with six digits, separated by blanks; anything else as `str` prints it."""
    if isinstance(value, Array | np.ndarray | np.generic):
        return " ".join(f"{number:.6g}" for number in np.ravel(np.asarray(value)))
    return value.name.lower() if isinstance(value, Enum) else str(value)


@per_topology
def _labels(topology: Topology) -> Labels:
    """Names of rows by their size, such as "nbody". A part of an object, such as a vertex, has the object's name."""
    labels: Labels = {}
    for kind, row in KINDS.items():
        names = topology.names[kind]
        labels[row.size] = names
        for block in row.blocks:
            if block.number is not None:
                number = block.counts(topology)
                labels[block.size] = tuple(
                    name for name, count in zip(names, number, strict=True) for _ in range(count)
                )
    return labels

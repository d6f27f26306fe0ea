"""How many contacts and pairs a model is packed for: what the caller gives, else what its custom numerics ask for.

MJX's custom numerics cut contacts that MuJoCo would keep; where they do, the user is told as the model loads. The rule
for models that ask for nothing is in `diffsim.collision`.
"""

import dataclasses
import warnings
from numbers import Integral

from diffsim.base.errors import ArgumentError, CapacityWarning
from diffsim.collision import capacities_of_numerics, contact_layout
from diffsim.compiler.draft import Draft
from diffsim.types.model import Model

MOST = 10_000_000


def check_capacities(max_contacts: object, max_pairs: object) -> None:
    """Raises ArgumentError unless both are None or a number of contacts or pairs."""
    for name, number in {"max_contacts": max_contacts, "max_pairs": max_pairs}.items():
        legal = isinstance(number, Integral) and not isinstance(number, bool) and 0 <= int(number) <= MOST
        if number is not None and not legal:
            raise ArgumentError(f"{name}: an integer from 0 to {MOST}, or None, is expected, {number!r} was given")


def asked_capacities(draft: Draft) -> dict[str, int]:
    """What the custom numerics of a model ask for, by the name of the argument of `load`; MOST at the most."""
    names = tuple(node.name for node in draft.nodes["numeric"])
    first = draft.fields["numeric_data"][draft.fields["numeric_adr"]]
    return capacities_of_numerics(names, first.clip(max=MOST))


def warn_of_cuts(model: Model) -> None:
    """Warn where the capacities that a model asks for keep fewer contacts than the default rule."""
    topology = model.topology
    if topology.max_contacts is None and topology.max_pairs is None:
        return
    free = dataclasses.replace(topology, max_contacts=None, max_pairs=None)
    asked = (model.opt.disableflags, None, model.opt.sdf_initpoints)
    kept, usual = contact_layout(topology, *asked).ncon, contact_layout(free, *asked).ncon
    if kept < usual:
        warnings.warn(
            f"the model's custom numerics (max_contact_points, max_geom_pairs) keep at most {kept} contacts, where "
            f"{usual} would be kept without them; give max_contacts and max_pairs to choose",
            CapacityWarning,
            stacklevel=2,
        )

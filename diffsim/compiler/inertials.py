"""save_inertials: every body of a Spec says its mass and inertia, as compiling finds them.

What MuJoCo's compiler setting `saveinertial` does when it saves a model. Here saving and compiling are apart: call it
before `mjcf.write`.
"""

import numpy as np

from diffsim.base.checked import checked
from diffsim.compiler.draft import Draft, Node
from diffsim.compiler.elements.bodies import MINIMUM, inertial_row
from diffsim.compiler.passes import passes_before_inertias
from diffsim.mjcf.elements.body import Inertial, standing_in
from diffsim.mjcf.reader import check
from diffsim.mjcf.spec import Spec


@checked
def save_inertials(spec: Spec) -> None:
    """Gives every body of a Spec that has mass an `<inertial>`, in place, also where one says the same already.

    A model that is compiled from it is the same, unless `inertiafromgeom="auto"` and geoms change afterwards: bodies
    then keep what was saved.

    Raises:
      MjcfError: the model is wrong.
    """
    check(spec)
    draft = Draft(spec)
    passes_before_inertias(draft)
    rows = [(node, inertial_row(draft, node)) for node in draft.nodes["body"][1:]]
    draft.problems.raise_if_any()
    for node, row in rows:
        if row["body_mass"] >= MINIMUM:
            _say(node, row)


def _say(node: Node, row: dict[str, np.ndarray]) -> None:
    """One `<inertial>`, in place of those that are there, also inside of frames."""
    for old in [child for child in standing_in(node.source) if isinstance(child, Inertial)]:
        assert old.parent is not None
        old.parent.children.remove(old)
    values = {"mass": row["body_mass"], "diaginertia": row["body_inertia"]}
    node.source.add("inertial", pos=row["body_ipos"], quat=row["body_iquat"], **values)

"""Random families beside C MuJoCo in float64; one line of counts each, and 1 if any is over its bound.

python -m tests.measure.families --only hulls --seed 0

`hulls`: 200 random hulls on a plane, in random poses and on their sides: contacts, and accelerations to 1e-6. Boxes
and prisms that lie exactly flat are not among them: rounding decides which of their corners is the lowest.
`quaternions`: 400 states whose quaternions have lengths from 1e-300 to 1e8, and 0, half of them near 1e-15, below which
MuJoCo takes them for the identity: two steps.
"""

import argparse
import sys
from collections.abc import Callable

import jax
from geometry import plane_hulls
from simulate import quaternions

# relative error of accelerations that counts as equal
SAME = 1e-6
# absolute error of two steps, m, rad and their rates: rounding, times the stiffness of contacts and welds
ROUNDING = 1e-10


def hulls(seed: int) -> bool:
    """Prints how hulls on planes differ."""
    found = plane_hulls.compare(200, 6, seed)
    print(
        f"FAMILY hulls={found.hulls} seed={seed} states={found.states} contacts={found.contacts}"
        f" other_contacts={found.other} qacc_error={found.qacc:.1e}",
        flush=True,
    )
    return found.other == 0 and found.qacc < SAME


def turns(seed: int) -> bool:
    """Prints how steps from quaternions of any length differ."""
    found = quaternions.compare(400, seed)
    print(
        f"FAMILY quaternions={4 * found.states} seed={seed} states={found.states} qpos_error={found.qpos:.1e}"
        f" qvel_error={found.qvel:.1e} sensor_error={found.sensors:.1e}",
        flush=True,
    )
    return max(found.qpos, found.qvel, found.sensors) < ROUNDING


FAMILIES: dict[str, Callable[[int], bool]] = {"hulls": hulls, "quaternions": turns}


def main() -> int:
    """Compares the families."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=list(FAMILIES), choices=list(FAMILIES))
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    equal = [FAMILIES[name](options.seed) for name in options.only]
    return int(not all(equal))


if __name__ == "__main__":
    sys.exit(main())

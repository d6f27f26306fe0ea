"""Random families beside C MuJoCo in float64; one line of counts each, and 1 if any is over its bound.

python -m tests.measure.families --only hulls --seed 0 [--chains 300]

`hulls`: 200 random hulls on a plane, in random poses and on their sides: contacts, and accelerations to 1e-6. Boxes
and prisms that lie exactly flat are not among them: rounding decides which of their corners is the lowest.
`quaternions`: 400 states whose quaternions have lengths from 1e-300 to 1e8, and 0, half of them near 1e-15, below which
MuJoCo takes them for the identity: two steps.
`chains`: 300 chains of light links that carry a heavy one, with a condition of M from 1e2 to 1e9, in float32: no motion
of ten steps ends in NaN without a bit of the status, and none whose acceleration is off by over 1% from float64.
"""

import argparse
import sys
import warnings
from collections.abc import Callable

import jax
from geometry import plane_hulls
from simulate import chains, quaternions

import diffsim

# relative error of accelerations that counts as equal
SAME = 1e-6
# absolute error of two steps, m, rad and their rates: rounding, times the stiffness of contacts and welds
ROUNDING = 1e-10
# chains that one run compares, about 15 minutes on a core
CHAINS = 300


def hulls(seed: int, _: int) -> bool:
    """Prints how hulls on planes differ."""
    found = plane_hulls.compare(200, 6, seed)
    print(
        f"FAMILY hulls={found.hulls} seed={seed} states={found.states} contacts={found.contacts}"
        f" other_contacts={found.other} qacc_error={found.qacc:.1e}",
        flush=True,
    )
    return found.other == 0 and found.qacc < SAME


def turns(seed: int, _: int) -> bool:
    """Prints how steps from quaternions of any length differ."""
    found = quaternions.compare(400, seed)
    print(
        f"FAMILY quaternions={4 * found.states} seed={seed} states={found.states} qpos_error={found.qpos:.1e}"
        f" qvel_error={found.qvel:.1e} sensor_error={found.sensors:.1e}",
        flush=True,
    )
    return max(found.qpos, found.qvel, found.sensors) < ROUNDING


def links(seed: int, count: int) -> bool:
    """Prints what float32 makes of chains whose inertia matrix is ill-conditioned."""
    with warnings.catch_warnings(action="ignore", category=diffsim.PrecisionWarning):
        found = chains.compare(count, seed)
    print(
        f"FAMILY chains={found.chains} seed={seed} off={found.off} unflagged={found.unflagged} nan={found.nan}"
        f" silent_nan={found.silent} flagged_but_right={found.flagged_right}",
        flush=True,
    )
    return found.unflagged == found.silent == 0


FAMILIES: dict[str, Callable[[int, int], bool]] = {"hulls": hulls, "quaternions": turns, "chains": links}


def main() -> int:
    """Compares the families."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--chains", type=int, default=CHAINS, help="fewer make a slice: give each slice its own seed")
    parser.add_argument("--only", nargs="*", default=list(FAMILIES), choices=list(FAMILIES))
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    equal = [FAMILIES[name](options.seed, options.chains) for name in options.only]
    return int(not all(equal))


if __name__ == "__main__":
    sys.exit(main())

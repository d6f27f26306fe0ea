"""`make gradients`: what issue 15 promises of gradients and the tools on top, measured; one line a bar.

python -m tests.gradient_bars [--only TEXT]

Float64, default XLA flags. With JAX_NUM_CPU_DEVICES=2 two cores are devices, and the 256 swing-ups are shared out over
them. 1 if a bar is missed.
"""

import argparse
import sys

import jax

from tests.gradient_bars.degenerate import degenerate
from tests.gradient_bars.fits import fit_times, fits
from tests.gradient_bars.impacts import balls, toss
from tests.gradient_bars.memory import memory
from tests.gradient_bars.motions import motions
from tests.gradient_bars.policy import policy
from tests.gradient_bars.slopes import slopes
from tests.gradient_bars.swing import cartpole
from tests.gradient_bars.table import billiard
from tests.gradient_bars.unrolled import unroll

GROUPS = (unroll, cartpole, balls, toss, billiard, slopes, memory, fits, fit_times, motions, policy, degenerate)


def main() -> int:
    """Prints each bar; 1 if one is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="groups whose name contains this")
    jax.config.update("jax_enable_x64", True)
    only, missed = parser.parse_args().only, 0
    for group in GROUPS:
        for bar in group() if only in group.__name__ else []:
            good = bar.value <= bar.limit
            missed += not good
            print(f"{'ok  ' if good else 'MISS'} {bar.name} {bar.value:.3g} (at most {bar.limit:g})", flush=True)
    return min(missed, 1)


if __name__ == "__main__":
    sys.exit(main())

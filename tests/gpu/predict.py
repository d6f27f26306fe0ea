"""How long a program would take on an H100: a model of time, fitted to what 830 kernels took on one.

They were those of six of our programs (`tests/gpu/device.py --trace`, jax 0.11.2, 26 November 2026). A kernel takes 1.2
us and as long as its bytes at half of the memory's speed; half of the kernels take between 0.7 and 1.2 times as
long, and whole programs are right to a sixth. Kernels in PTX take as long as their instructions: all warps together
carried out 500,000 to 630,000 in a us, in three kernels with 8192 matrices of 27 rows; loops in such kernels have not
run on a device yet. A launch costs 0.4 us in a CUDA graph and 3 us outside. A loop outside of a graph waits for the
host once per trip. Library calls by what others measured for such batches.
"""

import math
import re

from tests.gpu.program import Graphs, Kernel, Program

# bytes per us, of 3.35 TB/s
BANDWIDTH = 3.35e6 * 0.5
# instructions of all warps per us
INSTRUCTIONS = 6e5
SHORTEST, IN_GRAPH, OUTSIDE, HOST = 1.2, 0.4, 3.0, 10.0
FACTOR, TRIANGULAR = 204.0, 69.0


def time_of(program: Program, graphs: Graphs) -> float:
    """Microseconds of one run."""
    total = 0.0
    for kernel in program.kernels:
        launched = IN_GRAPH if _launch_name(kernel) in graphs.inside or not graphs.outside else OUTSIDE
        total += kernel.times * (busy(kernel) + launched)
    waits = sum(loop.trips + 1 for loop in program.loops if loop.is_dynamic) if graphs.host_loops else 0.0
    return total + HOST * waits


def _launch_name(kernel: Kernel) -> str:
    return re.sub(r"[.\-]", "_", kernel.name)


def busy(kernel: Kernel) -> float:
    """Microseconds on the device."""
    if kernel.is_library and ("potrf" in kernel.kind or "trsm" in kernel.kind):
        return FACTOR if "potrf" in kernel.kind else TRIANGULAR
    if kernel.instructions:
        return SHORTEST + kernel.instructions / INSTRUCTIONS
    moving = kernel.bytes / BANDWIDTH
    return SHORTEST + (moving if math.isfinite(moving) else 0.0)

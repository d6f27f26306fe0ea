"""How long a program would take on an H200: a model of time, not a measurement, good to a factor of two.

A kernel takes as long as its bytes, at 60% of the memory's speed (which delivers 32 bytes at a time, asked for or
not), and never less than 1.5 us; a launch costs 0.8 us in a CUDA graph and 3 us outside. A loop outside of a graph
waits for the host once per trip. Library calls by what others measured for such batches; Pallas kernels by their
instructions, at 8192 worlds of 27 dofs, and in proportion to their bytes: 8 for each entry of a square matrix, which is
a matrix read and a factor written. Those that keep triangles move fewer for as many instructions.
"""

import math
import re

from tests.gpu.program import WARP, Graphs, Kernel, Program

# bytes per us
BANDWIDTH = 4.8e6 * 0.6
SHORTEST, IN_GRAPH, OUTSIDE, HOST = 1.5, 0.8, 3.0, 10.0
FACTOR, TRIANGULAR = 204.0, 69.0
PALLAS_TIME, PALLAS_SIZE = 25.0, 8192 * 27 * 27
# of kernels that are not named here: 8
PALLAS_BYTES = {"solve_sum": 6.0, "solve_packed": 4.0}


def time_of(program: Program, graphs: Graphs) -> float:
    """Microseconds of one run."""
    total = 0.0
    for kernel in program.kernels:
        launched = IN_GRAPH if _launch_name(kernel) in graphs.inside or not graphs.outside else OUTSIDE
        total += kernel.times * (_busy(kernel) + launched)
    waits = sum(loop.trips + 1 for loop in program.loops if loop.is_dynamic) if graphs.host_loops else 0.0
    return total + HOST * waits


def _launch_name(kernel: Kernel) -> str:
    return re.sub(r"[.\-]", "_", kernel.name)


def _busy(kernel: Kernel) -> float:
    """Microseconds on the device."""
    moving = max(kernel.bytes / BANDWIDTH, SHORTEST)
    if kernel.kind == WARP:
        return max(moving, PALLAS_TIME * kernel.bytes / (PALLAS_BYTES.get(kernel.function, 8.0) * PALLAS_SIZE))
    if kernel.is_library:
        return FACTOR if "potrf" in kernel.kind else TRIANGULAR
    return moving if math.isfinite(moving) else SHORTEST

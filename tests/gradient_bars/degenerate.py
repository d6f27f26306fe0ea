"""No NaN: steps and their gradients over random and singular states of the sweep's models, in float64."""

from collections.abc import Iterator

from diffsim.base.enums import Cone
from tests.gradient_bars.bar import Bar


def degenerate() -> Iterator[Bar]:
    """Both cones; `make sweep` has more states and float32."""
    # a script that wants tests/ on the path
    from tests.sweep import BATCH, MODELS, count_nonfinite

    for path in MODELS:
        counts = [count_nonfinite(path, cone, BATCH, 0) for cone in Cone]
        forward, backward = (sum(each) for each in zip(*counts, strict=True))
        name = f"{path.rsplit('/', 1)[-1]}, {2 * BATCH} states"
        yield Bar(f"{name}: steps that are not finite", forward, 0)
        yield Bar(f"{name}: gradients that are not finite", backward, 0)

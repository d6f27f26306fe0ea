"""The muscle: activation dynamics and force-length-velocity curves packed into the general actuator's parameters.

Source: MuJoCo XML reference, "muscle"; mjs_setToMuscle of user_api.cc (3.8.1).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from diffsim.base.enums import BiasType, DynType, GainType
from diffsim.base.errors import Problems
from diffsim.mjcf.attributes import Real, Reals, Vector
from diffsim.mjcf.elements.actuator import (
    MOTOR_OMITS,
    TARGET_FIELDS,
    Actuator,
    own_or,
    with_entries,
)

# general default value that means "not set", and the muscle's own default: dynprm[0:2], gainprm[0:9]
_MUSCLE_DYNAMICS = ((1.0, 0.01), (0.0, 0.04))
_MUSCLE_GAIN = (
    (1.0, 0.75),  # range[0]
    (0.0, 1.05),  # range[1]
    (0.0, -1.0),  # force
    (0.0, 200.0),  # scale
    (0.0, 0.5),  # lmin
    (0.0, 1.6),  # lmax
    (0.0, 1.5),  # vmax
    (0.0, 1.3),  # fpmax
    (0.0, 1.2),  # fvmax
)


def _muscle_values(inherited: Vector, unset: tuple[tuple[float, float], ...], own: Sequence[float | None]) -> Vector:
    """Inherited values with the muscle's defaults where they are not set, and the element's own where not negative."""
    entries: dict[int, float] = {}
    for index, ((nothing, usual), value) in enumerate(zip(unset, own, strict=True)):
        before = usual if inherited[index] == nothing else float(inherited[index])
        entries[index] = value if value is not None and value >= 0 else before
    return with_entries(inherited, entries)


@dataclass(eq=False)
class Muscle(Actuator):
    """A muscle with activation dynamics and force-length-velocity curves; negative numbers mean the default."""

    omits = MOTOR_OMITS | {"site", "refsite"}
    default_omits = TARGET_FIELDS | {"tausmooth"}

    timeconst: Vector | None = Reals(2)
    tausmooth: float | None = Real(least=0)
    range: Vector | None = Reals(2)
    force: float | None = Real()
    scale: float | None = Real()
    lmin: float | None = Real()
    lmax: float | None = Real()
    vmax: float | None = Real()
    fpmax: float | None = Real()
    fvmax: float | None = Real()

    def law(self, base: Actuator, problems: Problems) -> dict[str, Any]:
        timeconst = [None, None] if self.timeconst is None else self.timeconst.tolist()
        reach = [None, None] if self.range is None else self.range.tolist()
        own = [*reach, self.force, self.scale, self.lmin, self.lmax, self.vmax, self.fpmax, self.fvmax]
        gain = _muscle_values(base.gainprm, _MUSCLE_GAIN, own)
        dynamics = _muscle_values(base.dynprm, _MUSCLE_DYNAMICS, timeconst)
        return {
            "dyntype": DynType.MUSCLE,
            "gaintype": GainType.MUSCLE,
            "biastype": BiasType.MUSCLE,
            "dynprm": with_entries(dynamics, {2: own_or(self.tausmooth, base.dynprm[2])}),
            "gainprm": gain,
            "biasprm": with_entries(base.biasprm, dict(enumerate(gain[:9].tolist()))),
        }

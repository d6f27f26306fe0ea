"""The judge of hostile input: what became of each case, how long it took and how much memory it held."""

import pathlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field

Case = Callable[[], object]

# CPU seconds, and MiB above what was held before, that one case may take
LONGEST = 5.0
LARGEST = 1024.0


@dataclass
class Counts:
    """What became of the cases, and the seeds of those that should not have ended as they did."""

    loaded: int = 0
    refused: int = 0
    crashed: list[tuple[int, str]] = field(default_factory=list)
    slow: list[tuple[int, float]] = field(default_factory=list)
    large: list[tuple[int, float]] = field(default_factory=list)

    @property
    def findings(self) -> int:
        """How many cases crashed, were slow or large."""
        return len(self.crashed) + len(self.slow) + len(self.large)


def judge(make: Callable[[int], Case], seeds: range, allowed: tuple[type[Exception], ...]) -> Counts:
    """What becomes of the cases of some seeds."""
    counts = Counts()
    for seed in seeds:
        case = make(seed)
        held = _restart_peak()
        start = time.process_time()
        try:
            case()
            counts.loaded += 1
        except allowed as error:
            counts.refused += 1
            if not str(error).strip():
                counts.crashed.append((seed, f"{type(error).__name__} without a word"))
        except Exception as error:
            counts.crashed.append((seed, f"{type(error).__name__}: {str(error)[:200]}"))
        spent, grown = time.process_time() - start, _memory("VmHWM") - held
        if spent > LONGEST:
            counts.slow.append((seed, round(spent, 1)))
        if grown > LARGEST:
            counts.large.append((seed, round(grown)))
    return counts


def _restart_peak() -> float:
    """Forgets the peak of this process's memory (proc(5), clear_refs); MiB held now."""
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    return _memory("VmRSS")


def _memory(entry: str) -> float:
    """An entry of /proc/self/status, MiB."""
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(entry):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"/proc/self/status has no {entry}")

"""Strict numerics for the whole suite: float64, no silent broadcasting, warnings are errors."""

import gc
import os
import pathlib

import jaxlib.version
import pytest

# compiling is what the suite spends its time on, and these more than halve it; tests/simulate/side_by_side.py and
# tests/api/test_default_flags.py run with the defaults, as users do. The last flag ends the process with jaxlib 0.12
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0"
    " --xla_llvm_disable_expensive_passes=true"
    " --xla_disable_hlo_passes=while-loop-invariant-code-motion"
    + (" --xla_cpu_use_fusion_emitters=false" if jaxlib.version.__version_info__ < (0, 10) else ""),
)

import jax

# tracing makes millions of objects that live on; looking through all of them again and again takes a fifth of its time
gc.set_threshold(100_000, 20, 50)

jax.config.update("jax_enable_x64", os.environ.get("DIFFSIM_TEST_X64", "1") == "1")
jax.config.update("jax_numpy_rank_promotion", "raise")
cache = pathlib.Path(__file__).parents[1] / ".jax_cache"
jax.config.update("jax_compilation_cache_dir", os.environ.get("DIFFSIM_JAX_CACHE", str(cache)))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)

# folders whose tests compile for minutes a model, slowest first
SPLIT = ("gradients", "examples", "parity")


def group(item: pytest.Item) -> str:
    """What one worker runs in one go: a file, in SPLIT folders the tests of one model."""
    folder, callspec = item.path.parent.name, getattr(item, "callspec", None)
    model = (callspec.params.get("path") or callspec.params.get("case")) if callspec else None
    return f"{folder}:{model}" if folder in SPLIT and model else str(item.path)


# first: xdist's own hook reads the groups
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """How `--dist loadgroup` shares out work, the slow folders first."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group(group(item)))
    items.sort(key=lambda item: SPLIT.index(item.path.parent.name) if item.path.parent.name in SPLIT else len(SPLIT))


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Lets go of the programs of a group that is done; kept, they fill the memory."""
    if nextitem is None or group(nextitem) != group(item):
        jax.clear_caches()

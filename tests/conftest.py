"""Strict numerics for the whole suite: float64, no silent broadcasting, warnings are errors."""

import os
import pathlib

# compiling is what the suite spends its time on, and these halve it; the examples run with the defaults
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=1")

import jax
import pytest

jax.config.update("jax_enable_x64", os.environ.get("DIFFSIM_TEST_X64", "1") == "1")
jax.config.update("jax_numpy_rank_promotion", "raise")
cache = pathlib.Path(__file__).parents[1] / ".jax_cache"
jax.config.update("jax_compilation_cache_dir", os.environ.get("DIFFSIM_JAX_CACHE", str(cache)))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)

# folders whose tests compile for minutes a model, slowest first
SPLIT = ("gradients", "examples", "parity")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """How `--dist loadgroup` shares out work: by file, in SPLIT folders by model; the slow ones first."""
    for item in items:
        folder = item.path.parent.name
        model = getattr(item, "callspec", None) and item.callspec.params.get("path")
        group = f"{folder}:{model}" if folder in SPLIT and model else str(item.path)
        item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: SPLIT.index(item.path.parent.name) if item.path.parent.name in SPLIT else len(SPLIT))

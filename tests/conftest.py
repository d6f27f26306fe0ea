"""Strict numerics for the whole suite: float64, no silent broadcasting, warnings are errors."""

import os
import pathlib

import jax

jax.config.update("jax_enable_x64", os.environ.get("DIFFSIM_TEST_X64", "1") == "1")
jax.config.update("jax_numpy_rank_promotion", "raise")
cache = pathlib.Path(__file__).parents[1] / ".jax_cache"
jax.config.update("jax_compilation_cache_dir", os.environ.get("DIFFSIM_JAX_CACHE", str(cache)))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)

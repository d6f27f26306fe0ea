"""What XLA is told about when to compute: once instead of in every use, and not again in reverse mode."""

import jax

# `barrier(values)` are the same values, computed once: XLA would otherwise fuse cheap operations into each consumer,
# and compute them again for each of its elements
barrier = jax.lax.optimization_barrier

# the name (`jax.ad_checkpoint.checkpoint_name`) of what a search found: `jax.checkpoint` keeps it and does not search
# again in reverse mode
SEARCH_RESULT = "diffsim_search_result"

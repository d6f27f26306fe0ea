"""diffsim: differentiable, batched rigid-body simulation on JAX, with MuJoCo's semantics."""

"""Benchmarks: compile time and throughput, forward and gradient, ours beside MJX and C MuJoCo in one run.

`python -m diffsim bench MODEL --batch 512 4096 --against mjx c`. MJX is compiled as it documents, by `jax.jit` alone;
as `mjx-tuned` with the options that our programs are compiled with. All engines get the same model, solver settings,
starting states and random controls; warm-up steps bring contacts about before the clock starts. The same command
runs on any JAX backend.
"""

"""Benchmarks: compile time and throughput of steps and gradients, compared with MJX and C MuJoCo in one run.

`python -m diffsim bench MODEL --batch 512 4096 --against mjx c`. `mjx` is compiled as MJX documents, by `jax.jit`
alone; `mjx-tuned` is compiled with diffsim's compiler options. All engines get the same model, solver settings, initial
states and random controls. Warm-up steps bring bodies into contact before the clock starts. The command runs on any JAX
backend.
"""

"""Cholesky factors of and solves with many small symmetric positive definite matrices, in the fastest way per backend.

The operations are functions of arrays that can be jitted, vmapped and differentiated like any others. In float32 on
CUDA each is one kernel. On a CPU it is an implementation for small matrices, and elsewhere JAX's own operations. With
the environment variable DIFFSIM_KERNELS=0, which is read when a program is traced, it is JAX's own everywhere.
"""

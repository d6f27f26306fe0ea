"""Cholesky factors of many small symmetric positive definite matrices, and solves, in the fastest way for each backend.

The operations are functions of arrays that can be jitted, vmapped and differentiated like any others. In float32 on
CUDA each is one kernel. On a CPU there is an implementation for small matrices, and elsewhere JAX's own operations are
used. With the environment variable DIFFSIM_KERNELS=0, which is read when a program is traced, these are used
everywhere.
"""

"""Factors and solves of many small symmetric positive definite matrices, as each backend does them fastest.

An operation here is a function of arrays that is jitted, vmapped and differentiated like any other. Where a program is
compiled for CUDA in float32 it is one kernel, elsewhere its plain definition or what suits a CPU. With the environment
variable DIFFSIM_KERNELS=0, read when a program is traced, it is the plain definition everywhere.
"""

"""A compiler from jaxprs to CUDA kernels in which each warp works on one world.

It consists of the instructions of a warp (machine.py), their meaning in numpy (machine.py) and in PTX (ptx.py), the
translation of jaxprs into instructions (translate.py), and while loops as kernels (loop.py).
"""

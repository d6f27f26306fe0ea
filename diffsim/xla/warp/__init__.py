"""A compiler from jaxprs to warps of a GPU: the machine, in numpy and as PTX, the translation, loops as kernels."""

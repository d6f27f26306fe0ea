"""JAX functions run in numpy on the host, without compiling them."""

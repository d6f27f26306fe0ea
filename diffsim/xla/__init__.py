"""How functions are compiled by XLA, and operations that compile well: barriers, gathers, choices, loops, kernels."""

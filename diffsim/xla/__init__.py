"""What is told to XLA, and operations written for it: barriers, gathers, choices, batched loops, kernels."""

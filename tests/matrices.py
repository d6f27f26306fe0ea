"""Positive definite matrices, each kind hard in a way of its own: (generator, count, n) -> (count, n, n)."""

import numpy as np


def wide(rng: np.random.Generator, count: int, n: int) -> np.ndarray:
    root = rng.normal(size=(count, n, n + 3))
    return root @ root.swapaxes(1, 2) / n


def ill_conditioned(rng: np.random.Generator, count: int, n: int) -> np.ndarray:
    """Eigenvalues from 1e-4 to 1, and rows in units that differ by 1e6."""
    turn = np.linalg.qr(rng.normal(size=(count, n, n)))[0]
    unit = np.logspace(-3, 3, n)
    return unit[:, None] * (turn * np.logspace(-4, 0, n)) @ turn.swapaxes(1, 2) * unit


def chain(rng: np.random.Generator, count: int, n: int) -> np.ndarray:
    """As the inertia of a chain with two branches: entries only between a dof and its ancestors."""
    parent = np.maximum(np.arange(n) - rng.integers(1, 3, n), -1)
    root = np.zeros((count, n, n))
    for i in range(n):
        j = i
        while j >= 0:
            root[:, i, j] = 1 + rng.uniform(size=count) if i == j else 0.3 * rng.normal(size=count)
            j = parent[j]
    return root.swapaxes(1, 2) @ root


MATRICES = {"wide": wide, "ill_conditioned": ill_conditioned, "chain": chain}

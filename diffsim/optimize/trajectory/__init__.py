"""Motions that cost little: shooting, iLQR, receding horizons, linear-quadratic regulators."""

"""Coordinates for optimizers: bounds, quaternions, inertias."""

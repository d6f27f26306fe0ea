"""Estimators of gradients, and whether a gradient can be trusted."""

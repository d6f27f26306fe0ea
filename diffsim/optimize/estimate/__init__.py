"""Estimators of gradients, and tests of whether a gradient can be trusted."""

"""Integrators: how a state moves over one timestep."""

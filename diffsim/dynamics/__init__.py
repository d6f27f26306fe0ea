"""Inertia and smooth forces: bias, passive forces, fluid, energy, forces between bodies."""

"""The smooth part of the pipeline: poses, inertias, velocities, passive, bias and actuator forces."""

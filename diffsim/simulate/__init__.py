"""What users call on a compiled model: forward, inverse, step, rollout, derived constants, queries."""

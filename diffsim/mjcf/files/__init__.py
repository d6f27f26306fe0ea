"""Readers of mesh files: bytes to arrays."""

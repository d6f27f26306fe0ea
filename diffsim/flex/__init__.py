"""Soft bodies: where the vertices of flexes are, how their edges stretch, and what forces that makes."""

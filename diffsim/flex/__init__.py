"""Soft bodies: positions of flex vertices, lengths of their edges, and the elastic and damping forces."""

"""Pairs of convex hulls: separating axes, GJK, EPA, and the overlap of flat sides."""

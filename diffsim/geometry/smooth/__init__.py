"""Pairs of smooth convex bodies: Newton's method for the direction of greatest separation."""

"""Pairs of spheres, capsules, cylinders, boxes and planes in closed form."""

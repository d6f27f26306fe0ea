"""Macros, which are replaced by other elements: replicate, attach, flexcomp, composite."""

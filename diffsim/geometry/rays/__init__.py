"""Rays: what each one meets first."""

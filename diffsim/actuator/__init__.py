"""Actuators: transmission, activation and force laws."""

"""Signed distance fields: functions, octrees, and where they touch."""

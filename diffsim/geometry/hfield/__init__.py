"""Height fields as prisms, against every convex body."""

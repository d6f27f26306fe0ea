"""Pure geometry: shapes, the table of contact pairs, rays; no model."""

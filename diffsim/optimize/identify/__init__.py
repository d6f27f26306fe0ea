"""System identification: least squares over recordings."""

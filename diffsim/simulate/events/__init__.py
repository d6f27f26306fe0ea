"""Steps that are split where contacts begin or end."""

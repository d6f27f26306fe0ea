"""Assets: meshes, height fields, textures and distance fields."""

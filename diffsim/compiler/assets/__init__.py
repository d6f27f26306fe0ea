"""Files and generated assets: meshes, height fields, images."""

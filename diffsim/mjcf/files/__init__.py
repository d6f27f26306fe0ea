"""Files that models name: meshes as bytes to arrays, and how much of them is taken."""

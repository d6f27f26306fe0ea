"""Ray casting: the first surface that each ray hits."""

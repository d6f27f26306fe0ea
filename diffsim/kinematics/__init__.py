"""Where everything is and how it moves: poses, axes of motion, velocities, Jacobians, tendons."""

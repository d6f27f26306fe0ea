"""Forward kinematics: poses, motion axes, velocities, Jacobians and tendons."""

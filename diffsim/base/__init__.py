"""What every room shares: errors and their texts, enums, facts of joints and motors, checked arguments."""

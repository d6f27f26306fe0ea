"""Shared by all modules: errors and their texts, MuJoCo's enums, facts about joints and motors, checked arguments."""

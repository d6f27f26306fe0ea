"""hopper: one leg hops forward, as fast as it can without falling."""

from diffsim.envs.env import Task
from diffsim.envs.starts import near
from diffsim.envs.tasks.planar import leaves, observe_planar, reward_planar

TASK = Task(
    start=lambda model, key: near(model, key, 0.01, "stand"),
    observe=observe_planar,
    reward=reward_planar,
    failed=lambda now: leaves(now, lowest=0.8, pitch=0.6),
    steps=4,
)

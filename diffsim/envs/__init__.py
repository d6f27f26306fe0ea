"""Environments for reinforcement learning and optimal control: eight tasks, and `Env` and `Task` to define your own.

    env = envs.wrap(envs.make("hopper"), episode_length=500)
    state = jax.jit(env.reset)(jax.random.split(jax.random.key(0), 1024))
    state = jax.jit(env.step)(state, actions)

The Gymnasium interface, `VectorEnv`, is in `diffsim.envs.vector` (extra `gym`).
"""

from diffsim.envs.env import Env as Env
from diffsim.envs.env import EnvState as EnvState
from diffsim.envs.env import Moment as Moment
from diffsim.envs.env import Task as Task
from diffsim.envs.env import around_keyframe as around_keyframe
from diffsim.envs.env import near as near
from diffsim.envs.env import over_range as over_range
from diffsim.envs.policy import Policy as Policy
from diffsim.envs.shac import Learned as Learned
from diffsim.envs.shac import Shac as Shac
from diffsim.envs.shac import shac as shac
from diffsim.envs.tasks import MODELS as MODELS
from diffsim.envs.tasks import TASKS as TASKS
from diffsim.envs.tasks import make as make
from diffsim.envs.tasks.pick import ARMS as ARMS
from diffsim.envs.tasks.pick import Arm as Arm
from diffsim.envs.tasks.pick import PickCube as PickCube
from diffsim.envs.tasks.robots import ROBOTS as ROBOTS
from diffsim.envs.tasks.robots import Motor as Motor
from diffsim.envs.tasks.robots import Robot as Robot
from diffsim.envs.tasks.terrain import Terrain as Terrain
from diffsim.envs.tasks.terrain import set_levels as set_levels
from diffsim.envs.tasks.velocity import Velocity as Velocity
from diffsim.envs.wrappers import AutoResetWrapper as AutoResetWrapper
from diffsim.envs.wrappers import EpisodeWrapper as EpisodeWrapper
from diffsim.envs.wrappers import RandomizedVmapWrapper as RandomizedVmapWrapper
from diffsim.envs.wrappers import VmapWrapper as VmapWrapper
from diffsim.envs.wrappers import Wrapper as Wrapper
from diffsim.envs.wrappers import wrap as wrap

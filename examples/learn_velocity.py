"""A legged robot learns to follow velocity commands by rsl_rl's PPO (PyTorch), and its policy goes to an ONNX file.

`pip install 'diffsim-jax[gym,torch,onnx]' rsl-rl-lib`. For a Go2 or a G1: `--robot go2 --folder PATH`, the folder with
MuJoCo Menagerie. Prints the size of the observation, minutes, and the largest difference of the ONNX file's actions.
"""

import pathlib
import time

import jax
import numpy as np
from common import arguments, result

from diffsim import envs


def main() -> None:
    """Trains, exports and compares."""
    options = arguments(__doc__, robot="quadruped", folder=pathlib.Path(), worlds=1024, iterations=500)
    # imported here, so that `--help` works without them
    import onnxruntime
    from rsl_rl.runners import OnPolicyRunner

    from diffsim.envs import trainers

    begin, task = time.perf_counter(), envs.Velocity(envs.ROBOTS[options.robot])
    env = task.env(None if options.robot == "quadruped" else options.folder)
    worlds = trainers.for_rsl_rl(env, options.worlds, 1000, randomization_fn=task.randomization(options.worlds))
    network = {"class_name": "MLPModel", "hidden_dims": [256, 128], "activation": "elu", "obs_normalization": True}
    settings = {
        "num_steps_per_env": 24,
        "save_interval": 100,
        "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
        "actor": network | {"distribution_cfg": {"class_name": "GaussianDistribution", "init_std": 0.5}},
        "critic": network,
        "algorithm": {"class_name": "PPO"},
    }
    runner = OnPolicyRunner(worlds, settings, log_dir=str(options.out))
    runner.learn(options.iterations, init_at_random_ep_len=True)
    policy = envs.Policy.from_torch(runner.alg.get_policy())
    policy.to_onnx(options.out / "policy.onnx", env, task.parts(env.model))
    obs = np.asarray(jax.random.normal(jax.random.key(0), (8, env.observation_size)), np.float32)
    actions = onnxruntime.InferenceSession(str(options.out / "policy.onnx")).run(None, {"obs": obs})[0]
    off = float(np.max(np.abs(actions - policy(obs))))
    result(observations=env.observation_size, minutes=(time.perf_counter() - begin) / 60, onnx_difference=off)


if __name__ == "__main__":
    main()

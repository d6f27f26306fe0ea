"""Real models that nobody here wrote: the public packages' files that diffsim loads."""

SUITE = [
    f"dm_control/suite/{name}.xml"
    for name in (
        "acrobot",
        "cartpole",
        "cheetah",
        "finger",
        "fish",
        "hopper",
        "humanoid",
        "humanoid_CMU",
        "manipulator",
        "pendulum",
        "point_mass",
        "reacher",
        "stacker",
        "swimmer",
        "walker",
    )
]
GYM = [
    f"gymnasium/envs/mujoco/assets/{name}.xml"
    for name in (
        "ant",
        "half_cheetah",
        "hopper",
        "humanoid",
        "humanoidstandup",
        "inverted_double_pendulum",
        "inverted_pendulum",
        "point",
        "pusher",
        "pusher_v5",
        "reacher",
        "swimmer",
        "walker2d",
        "walker2d_v5",
    )
]
MJX = [
    f"mujoco/mjx/test_data/{name}.xml"
    for name in (
        "humanoid/humanoid",
        "constraints",
        "pendula",
        "quadratic_frictionloss",
        "tendon/fixed",
        "tendon/no_tendon",
    )
]
CORPUS = [*SUITE, *GYM, *MJX]

"""Random trees, long chains, stars and swarms: every smooth stage against the oracle."""

import os

import pytest

from tests.kinematics import generate, stages

BAR = 1e-9
SEEDS = int(os.environ.get("DIFFSIM_SEEDS", "12"))
SHAPES = {"chain": generate.chain(100), "star": generate.star(100), "swarm": generate.swarm(20)}


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_models_match_oracle(seed: int) -> None:
    stages.compare(generate.random_model(seed), seed, BAR)


@pytest.mark.parametrize("shape", SHAPES)
def test_large_trees_match_oracle(shape: str) -> None:
    stages.compare(SHAPES[shape], 2, BAR)

"""A cluster of two processor cores on this machine, shared by all tests of this folder."""

import os

import pytest


@pytest.fixture(scope="session")
def cluster():
    import ray  # takes seconds

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_BACKEND_LOG_LEVEL"] = "fatal"
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield ray
    ray.shutdown()

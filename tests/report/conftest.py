"""The run that most tests of the report read."""

import pytest
from made_runs import write_group


@pytest.fixture
def run(tmp_path):
    """Write a run of two groups with seeds 0, 1 and 2, 3."""
    path = tmp_path / "chase"
    write_group(path / "group-0", [0, 1])
    write_group(path / "group-1", [2, 3])
    return path

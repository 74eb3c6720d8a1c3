"""What several groups at once say of themselves while they train."""

import json

import pytest

from outlast.run import fleet, layout


def group(folder, seeds, **metrics):
    folder.mkdir()
    (folder / layout.SEEDS).write_text(json.dumps({"seeds": seeds}))
    line = {"iteration": 2, "steps": 100, "metrics": metrics}
    (folder / layout.METRICS).write_text(json.dumps(line) + "\n")
    return folder


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ({"episodes": [4, 0], "captures": [1, 0]}, {"episodes": [4], "captures": [3]}, "capture 0.50"),
        (
            {"episodes": [3, 0], "episode/steps": [100.0, None]},
            {"episodes": [1], "episode/steps": [500.0]},
            "survival 200",
        ),
        ({"episodes": [0, 0], "captures": [0, 0]}, {"episodes": [0], "captures": [0]}, ""),
    ],
)
def test_progress_adds_up_the_groups_in_the_words_of_their_program(tmp_path, first, second, said):
    parts = [group(tmp_path / "a", [0, 1], **first), group(tmp_path / "b", [2], **second)]
    assert fleet._steps_done(parts) == (300, said)

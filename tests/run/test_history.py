"""`history.json` in a run directory: there from the start, grown at every evaluation, the same after a resume."""

import json
import shutil

import pytest

from outlast.config import validate
from outlast.programs.duel import Duel
from outlast.programs.duel_config import DuelConfig
from outlast.run import layout
from outlast.run.history import history_of
from outlast.run.loop import Options, train

ITERATIONS, SEEDS = 6, [3, 4]
TINY = {
    "learner": "both",
    "arena": {"level": {"max_steps": 8}},
    "collect": {"worlds": 4, "horizon": 4},
    "ppo": {"network": {"hidden": [8]}, "epochs": 1, "minibatches": 1},
    "selfplay": {
        "league": {"capacity": 2, "groups": 1, "snapshot_steps": 16},
        "schedule": {"kind": "micro", "micro_phase_steps": 16},
        "evaluation": {"every_steps": 32, "games": 4, "panel_games": 0},
    },
}


def config_for(iterations):
    run = {"steps": iterations * 16, "checkpoint_seconds": 0.0, "checkpoint_iterations": 1, "keep_last": 100}
    return validate(DuelConfig, TINY | {"run": run}, source="test")


def trained(folder, iterations):
    """Train up to an iteration; return what was told."""
    config, told = config_for(iterations), []
    if not folder.exists():
        layout.create(folder, config, SEEDS)
    train(folder, config, Duel(config), SEEDS, options=Options(tell=told.append, quiet=True))
    return told


def exact(folder):
    """Return the part of the history that is promised to be exact, as bytes."""
    text = (folder / "history.json").read_text()
    kept = [line for line in text.splitlines() if '"elapsed_seconds"' not in line]
    assert len(kept) == len(text.splitlines()) - 1
    return kept


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    folder = tmp_path_factory.mktemp("history") / "straight"
    return folder, trained(folder, ITERATIONS)


def test_every_evaluation_is_an_entry_and_a_line(straight):
    folder, told = straight
    document = json.loads((folder / "history.json").read_text())
    assert [one["seed"] for one in document["seeds"]] == SEEDS
    for place, one in enumerate(document["seeds"]):
        assert [entry["total_steps"] for entry in one["history"]] == [32, 64, 96]
        assert [entry["phase"] for entry in one["history"]] == ["M2", "M4", "M6"]
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        rates = [line["metrics"]["evaluation/capture_rate"][place] for line in lines[1::2]]
        assert [entry["capture_rate"] for entry in one["history"]] == rates
    assert len([line for line in told if "SR_P" in line and "NE gap" in line]) == 3


def test_a_cut_run_writes_the_same_history(straight, tmp_path):
    folder, _ = straight
    for cut in (1, 4):
        again = tmp_path / str(cut)
        shutil.copytree(folder, again)
        for checkpoint in (again / "checkpoints").iterdir():
            if checkpoint.name.isdigit() and int(checkpoint.name) > cut:
                shutil.rmtree(checkpoint)
        trained(again, cut)
        grown = json.loads((again / "history.json").read_text())["seeds"][0]["history"]
        assert len(grown) == cut // 2  # the future that the journal has lost is gone here too
        trained(again, ITERATIONS)
        assert exact(again) == exact(folder)


def test_a_run_of_one_role_has_no_history(tmp_path):
    config = validate(DuelConfig, {"opponents": {"orbit": 1.0}}, source="test")
    assert history_of(tmp_path, config, [0]) is None
    assert list(tmp_path.iterdir()) == []

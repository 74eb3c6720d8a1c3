"""A criterion turns over when the data it judges do."""

import json

import pytest
from made_runs import OPPONENTS, panel, write_group

from outlast.report.criteria import criteria
from outlast.report.read import read_run

GOOD = {"flee_away": 0.93, "look_ahead": 0.7}


def judged(path):
    return {line["name"]: line for line in criteria(read_run(path))}


def evaluated(path, rates):
    for group, seeds in (("group-0", [0, 1]), ("group-1", [2, 3])):
        (path / group / "evaluations/panel.json").write_text(json.dumps(panel(seeds, rates)))


def test_a_good_run_passes_everything(run):
    lines = judged(run)
    assert list(lines) == ["capture of flee_away", "capture of look_ahead", "finite", "finished"]
    assert all(line["pass"] is True for line in lines.values())
    assert lines["capture of flee_away"]["target"] == ">= 0.90 in every seed"
    assert lines["capture of flee_away"]["value"]["per_seed"] == pytest.approx([0.93, 0.94, 0.95, 0.96])


@pytest.mark.parametrize(("rate", "passed"), [(0.90, True), (0.8999, False)])
def test_the_worst_seed_decides(run, rate, passed):
    evaluated(run, GOOD | {"flee_away": rate})
    lines = judged(run)
    assert lines["capture of flee_away"]["pass"] is passed
    assert lines["capture of look_ahead"]["pass"] is True


def test_a_seed_that_was_not_evaluated_fails(run):
    (run / "group-1/evaluations/panel.json").unlink()
    assert judged(run)["capture of flee_away"]["pass"] is False


def test_an_opponent_outside_the_panel_is_not_judged(run):
    evaluated(run, {"flee_away": 0.95, "orbit": 0.1})
    assert list(judged(run)) == ["capture of flee_away", "finite", "finished"]


def test_without_a_panel_the_end_of_training_is_judged_and_says_so(run):
    for group in ("group-0", "group-1"):
        (run / group / "evaluations/panel.json").unlink()
    lines = judged(run)
    name = "capture of flee_away (last tenth of training; panel not evaluated)"
    assert lines[name]["pass"] is True
    assert len(lines[name]["value"]["per_seed"]) == 4


def test_an_evader_is_judged_by_its_escapes(tmp_path):
    write_group(tmp_path / "flee", [0, 1], config={"learner": "evader"})
    document = tmp_path / "flee/evaluations/panel.json"
    for caught, passed in ((0.05, True), (0.12, False)):
        document.write_text(json.dumps(panel([0, 1], dict.fromkeys((*OPPONENTS, "pure_pursuit"), caught))))
        line = judged(tmp_path / "flee")["escape from pure_pursuit"]
        assert line["pass"] is passed
        assert line["value"]["per_seed"] == pytest.approx([1 - caught, 0.99 - caught])


def test_one_update_that_is_not_finite_fails(run):
    path = run / "group-1/metrics.jsonl"
    text = path.read_text()
    path.write_text(text.replace('"learner/nonfinite": [0.0, 0.0]', '"learner/nonfinite": [0.0, 1.0]', 1))
    line = judged(run)["finite"]
    assert line["pass"] is False
    assert line["value"]["per_seed"] == [0, 0, 0, 1]


def test_a_group_that_stopped_early_fails_the_budget(run):
    path = run / "group-1/metrics.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-2]))
    line = judged(run)["finished"]
    assert line["pass"] is False
    assert line["value"]["per_seed"] == [123 * 16_384] * 2 + [121 * 16_384] * 2


def test_another_program_has_the_general_criteria(tmp_path):
    write_group(tmp_path / "town", [0], config={"program": "survive"})
    assert list(judged(tmp_path / "town")) == ["finite", "finished"]

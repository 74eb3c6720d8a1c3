"""The report of a run in the town equals counts made by hand, and says what the run is measured against."""

import json

import pytest
from made_towns import BED, HOSPITAL, JOB, STEPS, survival_suite, write_groups, write_town

from outlast.report import curves, report
from outlast.report.criteria import criteria
from outlast.report.read import read_run
from outlast.report.town import town_document


@pytest.fixture
def path(tmp_path):
    """Write a run of two groups with seeds 0 and 1, 2."""
    return write_groups(tmp_path / "town")


def test_lives_are_counted_by_period_and_cause(path):
    rows = {(row["period"], row["cause"]): row for row in town_document(read_run(path))["lives"]}
    # The first tenth is 4 iterations of 3 deaths in each of 3 seeds; in the last, one life more reaches the limit.
    assert {key: row["lives"] for key, row in rows.items()} == {
        ("first", "health"): 12,
        ("first", "energy"): 24,
        ("last", "health"): 12,
        ("last", "energy"): 24,
        ("last", "limit"): 12,
    }
    assert rows["last", "limit"]["share"]["per_seed"] == [0.25] * 3
    assert rows["last", "limit"]["survival"]["mean"] == 500
    assert rows["last", "limit"]["return"]["mean"] == 300
    assert rows["first", "energy"]["survival"]["per_seed"] == [100, 101, 102]
    assert rows["first", "energy"]["intrinsic"]["mean"] == 2


def test_visits_and_falls_are_per_100_ticks(path):
    town = town_document(read_run(path))
    # Job is visited i times in iteration i of 1024 ticks: 1 to 4 first, 37 to 40 last.
    assert town["visits"]["Job"]["first"]["per_seed"] == pytest.approx([100 * 2.5 / STEPS] * 3)
    assert town["visits"]["Job"]["last"]["mean"] == pytest.approx(100 * 38.5 / STEPS)
    assert list(town["visits"]) == ["Bed", "HomeMeal", "Hospital", "Job"]
    assert town["critical"]["energy"]["last"]["mean"] == pytest.approx(1000 / STEPS)
    assert town["critical"]["mood"]["last"]["mean"] == 0


def test_work_before_the_hospital_is_a_share_of_moves_to_what_costs(path):
    town = town_document(read_run(path))
    # Moves to a place with a price: Bed to HomeMeal 3, Job to Hospital i, Job to Bed 2; staying in bed is no move.
    assert town["earned_first"]["first"]["mean"] == pytest.approx((10 + 8) / (10 + 8 + 12))
    assert town["earned_first"]["last"]["mean"] == pytest.approx((154 + 8) / (154 + 8 + 12))
    ways = town["transitions"]["last"]
    assert ways["Job"]["Hospital"]["mean"] == pytest.approx(154 / (154 + 8))
    assert ways["Bed"]["Bed"]["per_seed"] == pytest.approx([0.7] * 3)
    assert ways["Hospital"]["Job"]["mean"] == 1
    assert ways["HomeMeal"]["Bed"]["mean"] is None
    assert (JOB, HOSPITAL) != (BED, JOB)


def test_the_event_and_the_last_deaths_are_told(path):
    town = town_document(read_run(path))
    assert [town["generalisation"][when]["mean"] for when in ("before", "after")] == [400, 300]
    newest = town["last_deaths"][0]
    assert (newest["iteration"], newest["cause"], newest["stage"]) == (40, "energy", 5)
    assert len(town["last_deaths"]) == 12


def test_curves_are_those_that_moved(path):
    record = read_run(path)
    rows = [[q.name for q in row] for row in curves.town_rows(record)]
    assert rows[0] == ["survival_steps", "episode_return", "deaths/limit", "deaths/energy", "deaths/health"]
    # No shaping, so the extrinsic reward is the return; greedy survival was measured beside training.
    assert rows[1] == ["greedy_steps", "intrinsic"]
    assert rows[2] == ["stage", "epsilon", "curiosity", "choice_entropy", "refused"]
    assert rows[3] == ["q_mean", "td_error"]
    greedy = curves.final(record, curves.LIVES[2])
    assert greedy["mean"] == 450


def judged(path, pack, value):
    """Judge a run with a pack by what the survival suite has found."""
    for group in ("group-0", "group-1"):
        config = json.loads((path / group / "config.json").read_text())
        (path / group / "config.json").write_text(json.dumps(config | {"pack": pack}))
    (path / "evaluations").mkdir(exist_ok=True)
    document = survival_suite([value, value, value]) | {"seeds": [0, 1, 2]}
    (path / "evaluations/survival.json").write_text(json.dumps(document))
    return {line["name"]: line for line in criteria(read_run(path))}


@pytest.mark.parametrize(
    ("pack", "least"),
    [("L0", 180), ("L0.5", 450), ("L1", 450), ("L2", 400), ("L3", 350), ("mine.toml", None)],
)
def test_a_pack_has_its_bar(path, pack, least):
    for value, passes in ((least, True), (least - 1, False)) if least else ((0, False),):
        lines = judged(path, pack, value)
        kind = "return" if pack == "L0" else "survival"
        line = lines.get(f"{kind}, greedy, full difficulty")
        assert (line is None) if least is None else (line["pass"] is passes)
        assert least is None or str(least) in line["target"]
    assert lines["curriculum"]["pass"]


def test_the_page_and_the_document_hold_it(path):
    document = report([path])
    text = (path / "report/report.html").read_text()
    assert json.loads((path / "report/report.json").read_text()) == document
    run = document["runs"][0]
    assert run["learner"] == "dqn"
    assert run["town"]["visits"]["Job"]["last"]["ci95"][0] <= run["town"]["visits"]["Job"]["last"]["mean"]
    for shown in (
        "How lives end",
        "Critical events",
        "What comes after what",
        "came straight from work",
        "Bed",
    ):
        assert shown in text
    assert "<script" not in text


def test_a_run_without_a_line_has_a_report(tmp_path):
    write_town(tmp_path / "new", [0], iterations=0)
    document = report([tmp_path / "new"])
    assert document["runs"][0]["town"] == {}

"""The history of a pair, as a pure function of journal lines made by hand."""

import json
import re

import pytest

from outlast.config import validate
from outlast.programs.duel_config import DuelConfig
from outlast.programs.duel_history import history, is_evaluation, log_line, written

STEPS = 1000


def config_with(**selfplay):
    return validate(DuelConfig, {"learner": "both", "selfplay": selfplay}, source="test")


def line(number, rates, **measures):
    """Make the journal line of one evaluation, a list per measure with one number for each seed."""
    n = len(rates)
    metrics = {
        "evaluation/capture_rate": rates,
        "evaluation/episode_steps": [300.0] * n,
        "evaluation/capture_time_s": [None if rate == 0 else 4.5 for rate in rates],
        "pursuer/learning_rate": [0.001] * n,
        "evader/learning_rate": [0.0] * n,
        "contest/phase": [number] * n,
        "contest/frozen": [1] * n,
        "contest/converged": [False] * n,
        "contest/stage": [0] * n,
        "contest/advances": [0] * n,
        "contest/pool_pursuer": [number + 1] * n,
        "contest/pool_evader": [number + 2] * n,
    }
    metrics |= {f"contest/{name}": values for name, values in measures.items()}
    return {"iteration": number, "steps": number * STEPS, "metrics": metrics}


MICRO = config_with(schedule={"kind": "micro"})
SMOOTH = config_with(
    schedule={"kind": "micro"},
    curriculum={"kind": "smooth", "increment_m": 3.0, "final_max_m": 8.0, "obstacles": 0},
)


def test_one_seed_has_the_document_of_the_original():
    document = history([line(50, [0.25]), line(100, [0.0], converged=[True])], MICRO, [47])
    assert document == {
        "converged": True,
        "history": [
            {
                "phase": "M50",
                "role": "pursuer",
                "total_steps": 50_000,
                "capture_rate": 0.25,
                "escape_rate": 0.75,
                "ne_gap": 0.5,
                "mean_episode_length": 300.0,
                "mean_capture_time": 4.5,
            },
            {
                "phase": "M100",
                "role": "pursuer",
                "total_steps": 100_000,
                "capture_rate": 0.0,
                "escape_rate": 1.0,
                "ne_gap": 1.0,
                "mean_episode_length": 300.0,
                "mean_capture_time": None,  # nobody was captured: null, not the NaN that is no JSON
            },
        ],
        "total_micro_phases": 100,
        "total_steps": 100_000,
        "seed": 47,
    }


def test_several_seeds_have_a_document_each():
    lines = [line(50, [0.25, 0.5]), line(100, [0.75, 1.0])]
    document = history(lines, MICRO, [3, 9])
    assert list(document) == ["seeds"]
    for place, (seed, one) in enumerate(zip([3, 9], document["seeds"], strict=True)):
        alone = [
            record | {"metrics": {name: [values[place]] for name, values in record["metrics"].items()}}
            for record in lines
        ]
        assert one == history(alone, MICRO, [seed])


@pytest.mark.parametrize(
    ("kind", "phase", "total"), [("phases", "S7", "total_phases"), ("together", "T1", None)]
)
def test_the_phase_says_the_schedule(kind, phase, total):
    document = history([line(7, [0.5])], config_with(schedule={"kind": kind}), [0])
    assert document["history"][0]["phase"] == phase
    assert {name for name in document if name.startswith("total_")} - {"total_steps"} == ({total} - {None})


@pytest.mark.parametrize(
    ("pursuer", "evader", "role"), [(0.1, 0.1, "both"), (0, 0.1, "evader"), (0, 0, "none")]
)
def test_the_role_is_who_has_just_learned(pursuer, evader, role):
    record = line(1, [0.5])
    record["metrics"] |= {"pursuer/learning_rate": [pursuer], "evader/learning_rate": [evader]}
    assert history([record], MICRO, [0])["history"][0]["role"] == role


def test_a_level_is_the_one_that_was_played_and_moves_are_listed():
    lines = [
        line(1, [0.9], stage=[1], advances=[1]),
        line(2, [0.2], stage=[1], advances=[1]),
        line(3, [1.0], stage=[0], advances=[1]),
    ]
    document = history(lines, SMOOTH, [0])
    levels = [
        (e["curriculum_level"], e["curriculum_description"], e["curriculum_at_max"])
        for e in document["history"]
    ]
    assert levels == [(1, "2 to 5 m, 0 obstacles", False)] + [(2, "2 to 8 m, 0 obstacles", True)] * 2
    moves = [
        (m["level"], m["max_distance"], m["capture_rate"], m["advanced"])
        for m in document["curriculum_history"]
    ]
    assert moves == [(1, 5.0, 0.9, True), (2, 8.0, 0.2, False), (2, 8.0, 1.0, False)]
    assert document["curriculum_final_level"] == 1


def test_alternate_freezing_is_told_with_its_threshold():
    freeze = {"enabled": True, "threshold": 0.8, "schedule": [[2000, 0.7], [3000, 0.65]]}
    config = config_with(schedule={"kind": "micro", "alternate_freeze": freeze})
    lines = [line(1, [0.5]), line(2, [0.5], frozen=[0]), line(4, [0.5], frozen=[2])]
    told = [(e["frozen"], e["freeze_threshold"]) for e in history(lines, config, [0])["history"]]
    assert told == [("evader", 0.8), ("pursuer", 0.7), ("none", 0.65)]


def test_lines_without_an_evaluation_are_left_out():
    assert is_evaluation(line(1, [0.0]))
    assert not is_evaluation(line(1, [None, None]))
    assert not is_evaluation({"metrics": {"episodes": [3]}})


def test_the_log_line_is_found_by_the_search_of_the_original():
    text = log_line([line(50, [0.25, 0.5])], SMOOTH, [0, 1])
    assert text == (
        "Eval at 50,000 steps, micro M50 M50, SR_P 0.250 0.500, SR_E 0.750 0.500, NE gap 0.500 0.000, "
        "Pool 51+52 51+52, level 1 1"
    )
    for word in ("SR_P", "Eval", "NE.gap", "micro", "Pool"):
        assert re.search(word, text)
    phases = config_with(schedule={"kind": "phases"})
    assert re.search("Phase", log_line([line(3, [0.5])], phases, [0]))


def test_what_is_written_is_strict_json_with_the_seconds():
    document = json.loads(written(history([line(1, [0.0])], MICRO, [0]), 1.23456), parse_constant=pytest.fail)
    assert document["elapsed_seconds"] == 1.235
    assert list(document["history"][0].values()).count(None) == 1

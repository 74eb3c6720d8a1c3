"""A run directory is read back with the seeds of its groups side by side, and its damage is named."""

import json
import shutil

import numpy as np
import pytest
from made_runs import panel, write_group, write_lines

from outlast.report.read import read_run
from outlast.run.errors import Damaged, Refused


def line(iteration, **metrics):
    return {"iteration": iteration, "steps": 10 * iteration, "metrics": metrics}


def test_groups_are_merged_by_steps_and_seed(tmp_path):
    write_group(tmp_path / "group-0", [0, 2])
    write_group(tmp_path / "group-1", [1])
    write_lines(tmp_path / "group-0/metrics.jsonl", [line(1, a=[1, None]), line(2, a=[2, 5])])
    write_lines(tmp_path / "group-1/metrics.jsonl", [line(1, a=[7]), line(2, b=[8]), line(3, a=[9])])
    record = read_run(tmp_path)
    nan = np.nan
    assert record.seeds == [0, 1, 2]
    assert record.steps.tolist() == [10, 20, 30]
    assert record.reached.tolist() == [20, 30, 20]
    np.testing.assert_array_equal(record.metrics["a"], [[1, 7, nan], [2, nan, 5], [nan, 9, nan]])
    np.testing.assert_array_equal(record.metrics["b"], [[nan] * 3, [nan, 8, nan], [nan] * 3])


def test_one_group_is_a_run(tmp_path):
    write_group(tmp_path / "solo", [3])
    record = read_run(tmp_path / "solo")
    assert (record.name, record.seeds, record.role) == ("solo", [3], "pursuer")
    assert record.evaluations == {"panel": panel([3], RATES)}


RATES = {"flee_away": 0.93, "look_ahead": 0.7, "corner": 0.8, "orbit": 0.4}


def test_evaluations_of_groups_become_one_over_all_seeds(run):
    merged = read_run(run).evaluations["panel"]
    assert merged == panel([0, 1, 2, 3], RATES)


def test_a_group_without_an_evaluation_leaves_its_seeds_empty(run):
    (run / "group-1/evaluations/panel.json").unlink()
    rate = read_run(run).evaluations["panel"]["capture_rate"]["flee_away"]
    assert rate["per_seed"] == [pytest.approx(0.93), pytest.approx(0.94), None, None]


def test_an_evaluation_of_the_whole_run_is_put_in_order_of_seeds(run):
    (run / "evaluations").mkdir()
    (run / "evaluations/panel.json").write_text(json.dumps(panel([3, 1, 0, 2], RATES)))
    assert read_run(run).evaluations["panel"] == panel([0, 1, 2, 3], RATES)


def test_the_torn_last_line_of_a_kill_is_left_out(run):
    whole = read_run(run)
    with (run / "group-0/metrics.jsonl").open("ab") as file:
        file.write(b'{"iteration": 124, "steps": 2031616, "metr')
    torn = read_run(run)
    np.testing.assert_array_equal(torn.steps, whole.steps)


def test_events_carry_their_group_and_steps(run):
    events = read_run(run).events
    assert [e["time"] for e in events] == sorted(e["time"] for e in events)
    resumed = [(e["group"], e["steps"]) for e in events if e["event"] == "resumed"]
    assert resumed == [("group-0", 60 * 16_384), ("group-1", 60 * 16_384)]


def test_a_run_that_has_not_started_is_readable(run):
    for group in ("group-0", "group-1"):
        for name in ("metrics.jsonl", "events.jsonl", "identity.json"):
            (run / group / name).unlink()
        shutil.rmtree(run / group / "evaluations")
    record = read_run(run)
    assert record.reached.tolist() == [0, 0, 0, 0]
    assert (record.metrics, record.events, record.evaluations) == ({}, [], {})


def test_what_is_not_a_run_is_refused(tmp_path):
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(Refused, match="is not a run"):
            read_run(path)


def test_groups_that_do_not_belong_together_are_refused(run):
    write_group(run / "group-2", [1])
    with pytest.raises(Refused, match="share a seed"):
        read_run(run)
    shutil.rmtree(run / "group-2")
    write_group(run / "group-2", [9], config={"ppo": {"discount": 0.5}})
    with pytest.raises(Refused, match=r"group-2: trained with another configuration"):
        read_run(run)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", "{"),
        ("config.json", "[]"),
        ("config.json", "[" * 100_000),
        ("seeds.json", '{"seeds": []}'),
        ("seeds.json", '{"seeds": ["x"]}'),
        ("metrics.jsonl", '{"iteration": 1}\n'),
        ("metrics.jsonl", '{"iteration": 1, "steps": 5, "metrics": {"a": [1, 2, 3]}}\n'),
        ("metrics.jsonl", '{"iteration": 1, "steps": 5, "metrics": {"a": ["x", 2]}}\n'),
        ("evaluations/panel.json", "nothing"),
    ],
)
def test_damage_names_the_file(run, name, content):
    (run / "group-0" / name).write_text(content)
    with pytest.raises(Damaged, match=name):
        read_run(run)

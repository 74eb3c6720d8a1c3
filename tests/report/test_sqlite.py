"""The database of a run holds what its journals hold, however often and whenever it is exported."""

import json
import sqlite3
from contextlib import closing

import pytest
from made_runs import write_group
from made_towns import ITERATIONS, write_groups, write_town

from outlast.cli import main
from outlast.report.sqlite import TABLES, export


@pytest.fixture
def path(tmp_path):
    return write_groups(tmp_path / "town")


def asked(file, query):
    """Ask a database."""
    with closing(sqlite3.connect(file)) as database:
        return database.execute(query).fetchall()


def content(file):
    """Read every row of every table."""
    return {table: asked(file, f"SELECT * FROM {table}") for table in TABLES}


def test_lives_are_rows_in_the_order_in_which_they_ended(path, tmp_path):
    file = tmp_path / "out" / "run.sqlite"
    export([path], file)
    # 20 iterations of three lives, 20 of four.
    assert asked(file, "SELECT seed, count(*), max(episode_id) FROM episodes GROUP BY seed") == [
        (seed, 140, 139) for seed in range(3)
    ]
    columns = "survival_time, total_reward, intrinsic_weight, epsilon, curriculum_stage, cause, steps"
    rows = asked(file, f"SELECT {columns} FROM episodes WHERE seed = 1 ORDER BY episode_id")
    assert rows[0] == (101, 50.0, 0.5, pytest.approx(0.98), 1, "health", 1024)
    assert rows[-1] == (500, 300.0, 0.5, pytest.approx(0.2), 5, "limit", 1024 * ITERATIONS)


def test_ways_and_settings_are_there(path, tmp_path):
    export([path], tmp_path / "a.sqlite")
    way = "from_affordance = 'Job' AND to_affordance = 'Hospital'"
    query = f"SELECT sum(visit_count) FROM affordance_visits WHERE {way}"
    assert asked(tmp_path / "a.sqlite", query) == [(3 * ITERATIONS * (ITERATIONS + 1) // 2,)]
    assert asked(tmp_path / "a.sqlite", "SELECT value FROM settings WHERE field = 'pack'") == [('"L0.5"',)]
    state = dict(asked(tmp_path / "a.sqlite", "SELECT key, value FROM system_state"))
    assert (json.loads(state["training_status"]), json.loads(state["start_time"])) == ("finished", "t0")


def test_exporting_again_changes_nothing_and_a_shorter_journal_takes_away(path, tmp_path):
    export([path], tmp_path / "a.sqlite")
    before = content(tmp_path / "a.sqlite")
    export([path], tmp_path / "a.sqlite")
    assert content(tmp_path / "a.sqlite") == before
    # A resume has cut the journals back and gone another way: the file follows.
    write_town(path / "group-0", [0], iterations=10)
    write_town(path / "group-1", [1, 2], iterations=10)
    export([path], tmp_path / "a.sqlite")
    export([path], tmp_path / "b.sqlite")
    assert content(tmp_path / "a.sqlite") == content(tmp_path / "b.sqlite") != before


def test_several_runs_share_a_file(path, tmp_path):
    write_town(tmp_path / "other", [7], iterations=3)
    export([path, tmp_path / "other"], tmp_path / "a.sqlite")
    export([tmp_path / "other"], tmp_path / "a.sqlite")
    assert asked(tmp_path / "a.sqlite", "SELECT run, count(*) FROM episodes GROUP BY run") == [
        ("other", 9),
        ("town", 420),
    ]


def test_the_command_names_the_file(path, capsys):
    assert main(["report", str(path), "--json", "--sqlite"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["files"][-1] == str(path / "report/run.sqlite")
    assert (path / "report/run.sqlite").is_file()


def refusal(capsys, *arguments):
    """Return the one line of a command that fails."""
    capsys.readouterr()
    assert main(["report", *map(str, arguments)]) == 3
    line = capsys.readouterr().err
    assert line.startswith("outlast: ") and line.count("\n") == 1
    return line


def test_what_cannot_be_exported_is_said_in_one_line(path, tmp_path, capsys):
    write_group(tmp_path / "chase", [0], iterations=2)
    assert "keeps no record of lives" in refusal(capsys, tmp_path / "chase", "--sqlite")
    (tmp_path / "text").write_text("not a database, and long enough to be taken for one" * 40)
    assert "cannot be written" in refusal(capsys, path, "--sqlite", tmp_path / "text")
    with closing(sqlite3.connect(tmp_path / "metrics.db")) as original, original:
        original.execute("CREATE TABLE episodes (episode_id INTEGER)")
    assert "a database of something else" in refusal(capsys, path, "--sqlite", tmp_path / "metrics.db")
    assert "cannot be written" in refusal(capsys, path, "--sqlite", tmp_path)

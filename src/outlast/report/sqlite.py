"""A run of the town as an SQLite database, from its journals only: lives, ways between places, every measure.

Rows are keyed by what they are about, so exporting again changes nothing, and after a resume the file holds what the
journals hold, no row twice and none too many.
"""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from outlast.report.read import RunRecord, flat, read_run
from outlast.report.town import causes
from outlast.run.errors import Refused

APPLICATION_ID, VERSION = 0x6F75746C, 1
Row = tuple[Any, ...]
TABLES = {
    "episodes": (
        "run TEXT, seed INTEGER, episode_id INTEGER, iteration INTEGER, steps INTEGER, tick INTEGER, world INTEGER, "
        "survival_time INTEGER, total_reward REAL, extrinsic_reward REAL, shaping_reward REAL, intrinsic_reward REAL, "
        "intrinsic_weight REAL, curriculum_stage INTEGER, epsilon REAL, cause TEXT",
        "run, seed, episode_id",
    ),
    "affordance_visits": (
        "run TEXT, seed INTEGER, iteration INTEGER, from_affordance TEXT, to_affordance TEXT, visit_count INTEGER",
        "run, seed, iteration, from_affordance, to_affordance",
    ),
    "metrics": (
        "run TEXT, seed INTEGER, iteration INTEGER, steps INTEGER, name TEXT, value REAL",
        "run, seed, iteration, name",
    ),
    "settings": ("run TEXT, field TEXT, value TEXT", "run, field"),
    "system_state": ("run TEXT, key TEXT, value TEXT", "run, key"),
}
"""Columns and primary key; every column but a value may not be empty."""


def export(paths: list[Path], file: Path) -> None:
    """Bring a database up to what the journals of some runs hold now, in one transaction."""
    records = [read_run(path) for path in paths]
    for record in records:
        if record.program != "survive":
            raise Refused(
                f"--sqlite: {record.path} is a run of {record.program}, which keeps no record of lives"
            )
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        with closing(sqlite3.connect(file)) as database, database:
            _prepare(database, file)
            for record in records:
                for table, rows in (
                    ("episodes", episodes(record)),
                    ("affordance_visits", affordance_visits(record)),
                    ("metrics", metrics(record)),
                    ("settings", settings(record)),
                    ("system_state", system_state(record)),
                ):
                    _bring_up_to(database, table, str(record.name), rows)
    except sqlite3.Error as error:
        raise Refused(f"--sqlite {file}: cannot be written: {error}") from None


def _prepare(database: sqlite3.Connection, file: Path) -> None:
    known = database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    kind = tuple(
        database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
    )
    if known and kind != (APPLICATION_ID, VERSION):
        raise Refused(
            f"--sqlite {file}: a database of something else, or of another version; name a new file"
        )
    database.execute("BEGIN")
    database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    database.execute(f"PRAGMA user_version = {VERSION}")
    for table, (columns, key) in TABLES.items():
        database.execute(f"CREATE TABLE IF NOT EXISTS {table} ({columns}, PRIMARY KEY ({key})) WITHOUT ROWID")


def _bring_up_to(database: sqlite3.Connection, table: str, run: str, rows: Iterator[Row]) -> None:
    """Insert or overwrite rows, and take away those of the run that the journals no longer hold."""
    key = TABLES[table][1]
    database.execute(f"CREATE TEMP TABLE fresh AS SELECT * FROM {table} WHERE false")
    marks = ", ".join("?" * (TABLES[table][0].count(",") + 1))
    database.executemany(f"INSERT INTO fresh VALUES ({marks})", ((run, *row) for row in rows))
    database.execute(
        f"DELETE FROM {table} WHERE run = ? AND ({key}) NOT IN (SELECT {key} FROM fresh)", (run,)
    )
    database.execute(f"INSERT OR REPLACE INTO {table} SELECT * FROM fresh")
    database.execute("DROP TABLE fresh")


def episodes(record: RunRecord) -> Iterator[Row]:
    """Yield a row for each life, numbered within its seed in the order in which lives ended."""
    names, lives = causes(record), record.lives
    numbers = {seed: count() for seed in record.seeds}
    weight, epsilon = (record.metrics.get(name) for name in ("curiosity/weight", "explore/epsilon"))
    whole = ("iteration", "tick", "world", "survival", "stage", "cause", "seed")
    for life in zip(*(lives.get(name, []) for name in (*whole, *REWARDS)), strict=True):
        iteration, tick, world, survival, stage, cause, seed = map(int, life[: len(whole)])
        if iteration > len(record.steps):
            continue
        extrinsic, shaping, intrinsic = map(_number, life[len(whole) :])
        at = (iteration - 1, record.seeds.index(seed))
        yield (
            seed, next(numbers[seed]), iteration, int(record.steps[iteration - 1]), tick, world, survival,
            (extrinsic or 0.0) + (shaping or 0.0), extrinsic, shaping, intrinsic,
            0.0 if weight is None else _number(weight[at]), stage,
            0.0 if epsilon is None else _number(epsilon[at]), names[cause],
        )  # fmt: skip


REWARDS = ("extrinsic", "shaping", "intrinsic")


def affordance_visits(record: RunRecord) -> Iterator[Row]:
    """Yield how often one place was used after another, where that happened at all."""
    names = [place["name"] for place in record.config["town"]["places"]]
    ways = np.nan_to_num(record.metrics.get("transitions", np.zeros((0, 0, 0, 0))))
    for row, place, came, went in zip(*np.nonzero(ways), strict=True):
        times = int(ways[row, place, came, went])
        yield record.seeds[place], int(row) + 1, names[came], names[went], times


def metrics(record: RunRecord) -> Iterator[Row]:
    """Yield every measure of every iteration that is a number."""
    for name, values in record.metrics.items():
        if values.ndim == 2:
            for row, place in zip(*np.nonzero(np.isfinite(values)), strict=True):
                steps, value = int(record.steps[row]), float(values[row, place])
                yield record.seeds[place], int(row) + 1, steps, name, value


def settings(record: RunRecord) -> Iterator[Row]:
    """Yield every field of the configuration; values are JSON."""
    return ((path, json.dumps(value)) for path, value in flat(record.config).items())


def system_state(record: RunRecord) -> Iterator[Row]:
    """Yield where the run stands; values are JSON."""
    last = record.events[-1] if record.events else {}
    state = {
        "seeds": record.seeds,
        "steps": int(record.reached.min()),
        "iterations": len(record.steps),
        "start_time": record.events[0].get("time") if record.events else None,
        "training_status": last.get("event"),
        "status_time": last.get("time"),
    }
    return ((key, json.dumps(value)) for key, value in state.items())


def _number(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None

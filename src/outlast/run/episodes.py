"""The lives that ended, one line each: what a program hands over as tables over ticks and worlds."""

from collections.abc import Iterator
from typing import Any

import numpy as np

TABLE = "lives/"
"""Begins the names of tables [seeds, ticks, worlds] among the metrics; `lives/ended` says which entries count."""
Metrics = dict[str, np.ndarray]


def apart(metrics: Metrics) -> tuple[Metrics, Metrics]:
    """Return the measures of an iteration, and its tables of lives by the names of their columns."""
    measures = {name: value for name, value in metrics.items() if not name.startswith(TABLE)}
    tables = {name.removeprefix(TABLE): v for name, v in metrics.items() if name.startswith(TABLE)}
    return measures, tables


def episodes(iteration: int, tables: Metrics, seeds: list[int]) -> Iterator[dict[str, Any]]:
    """Yield the record of each life that ended, by seed, tick and world."""
    if not tables:
        return
    columns = {name: values for name, values in tables.items() if name != "ended"}
    for place, tick, world in zip(*np.nonzero(tables["ended"]), strict=True):
        record = {name: values[place, tick, world] for name, values in columns.items()}
        yield {"iteration": iteration, "seed": seeds[place], "tick": int(tick), "world": int(world)} | record

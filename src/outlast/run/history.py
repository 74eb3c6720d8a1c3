"""`history.json` of a group of seeds, rewritten atomically at every evaluation from the lines of its journal."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from outlast.config import Section
from outlast.programs import duel_history
from outlast.run import disk, journal, layout


class History:
    """The evaluations of a group so far. Opened after the journals, so that it begins where they were cut."""

    def __init__(self, folder: Path, config: Any, seeds: list[int]) -> None:
        self._folder, self._config, self._seeds = folder, config, seeds
        first = next(journal.read(folder / layout.EVENTS))
        self._begun = datetime.fromisoformat(first["time"])
        lines = journal.read(folder / layout.METRICS)
        self._records = [line for line in lines if duel_history.is_evaluation(line)]
        self._write()

    def take(self, record: Mapping[str, Any]) -> str:
        """Take in a line of the journal; when it holds an evaluation, write it down and return what to say."""
        if not np.isfinite(record["metrics"]["evaluation/capture_rate"]).any():
            return ""
        self._records.append(json.loads(journal.line_of(record)))
        self._write()
        return duel_history.log_line(self._records, self._config, self._seeds)

    def _write(self) -> None:
        document = duel_history.history(self._records, self._config, self._seeds)
        seconds = (datetime.now(UTC) - self._begun).total_seconds()
        path = self._folder / layout.HISTORY
        with disk.writing(f"{path}"):
            disk.write_atomic(path, duel_history.written(document, seconds))


def history_of(folder: Path, config: Section, seeds: list[int]) -> History | None:
    """Return the history of a run in which two roles play each other; other runs have none."""
    is_pair = config.program == "duel" and config.learner == "both"  # pyright: ignore[reportAttributeAccessIssue]
    return History(folder, config, seeds) if is_pair else None

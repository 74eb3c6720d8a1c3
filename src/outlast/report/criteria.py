"""What a run is measured against: a table of small functions per program.

Each looks at a record and returns one line of the report, or None where it does not apply.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from outlast.evaluate.statistics import summary
from outlast.report import curves
from outlast.report.contest import CONTEST
from outlast.report.read import RunRecord, is_quantity
from outlast.report.town import TOWN

PerSeed = list[float | None] | np.ndarray
Criterion = Callable[[RunRecord], dict[str, Any] | None]


class Target(NamedTuple):
    """A share of games against one opponent that a learner has to win, in every seed."""

    role: str
    opponent: str
    at_least: float


TARGETS = (
    Target("pursuer", "flee_away", 0.90),
    Target("pursuer", "look_ahead", 0.60),
    Target("evader", "pure_pursuit", 0.90),
)


def criteria(record: RunRecord) -> list[dict[str, Any]]:
    """Judge a run: name, target, value over seeds, and whether it passes."""
    lines = (criterion(record) for criterion in CRITERIA.get(record.program, GENERAL))
    return [line for line in lines if line is not None]


def line(name: str, target: str, per_seed: PerSeed, passed: bool, **kind: Any) -> dict[str, Any]:
    """Write one line of the table of criteria."""
    return {"name": name, "target": target, "value": summary(per_seed, **kind), "pass": passed}


def wins(target: Target) -> Criterion:
    """Make the criterion of one target."""

    def criterion(record: RunRecord) -> dict[str, Any] | None:
        measured = capture_rates(record, target.opponent)
        if record.role != target.role or measured is None:
            return None
        rates, source = measured
        if target.role == "evader":
            rates = [None if rate is None else 1.0 - rate for rate in rates]
        verb = "capture of" if target.role == "pursuer" else "escape from"
        passed = len(rates) >= len(record.seeds) and all(
            r is not None and r >= target.at_least for r in rates
        )
        wanted = f">= {target.at_least:.2f} in every seed"
        return line(f"{verb} {target.opponent}{source}", wanted, rates, passed, bounds=(0.0, 1.0))

    return criterion


def capture_rates(record: RunRecord, opponent: str) -> tuple[list[float | None], str] | None:
    """Return the capture rate of each seed against an opponent, and a note where it is not the panel's."""
    panel = record.evaluations.get("panel")
    if isinstance(panel, dict):
        rates = panel.get("capture_rate")
        quantity = rates.get(opponent, {}) if isinstance(rates, dict) else {}
        return (quantity["per_seed"], "") if is_quantity(quantity) else None
    if opponent not in curves.opponents(record):
        return None
    trained = curves.final(record, curves.opponent_quantity(opponent))
    return trained["per_seed"], " (last tenth of training; panel not evaluated)"


def finite(record: RunRecord) -> dict[str, Any] | None:
    """Count the updates that were not finite."""
    found = [values for name, values in record.metrics.items() if name.endswith("/nonfinite")]
    if not found:
        return None
    counts = np.nansum(found, axis=(0, 1))
    return line("finite", "no non-finite update in any seed", counts, bool((counts == 0).all()))


def finished(record: RunRecord) -> dict[str, Any] | None:
    """Compare the steps of each seed with the budget."""
    budget = record.config.get("run", {}).get("steps")
    if not isinstance(budget, int):
        return None
    passed = bool((record.reached >= budget).all())
    return line("finished", f">= {budget:,} steps in every seed", record.reached, passed)


GENERAL: tuple[Criterion, ...] = (finite, finished)
CRITERIA: dict[str, tuple[Criterion, ...]] = {
    "duel": (*(wins(target) for target in TARGETS), *CONTEST, *GENERAL),
    "survive": (*TOWN, *GENERAL),
    "balance": GENERAL,
}

"""The report as a plain document, and how its quantities are written as text."""

from collections.abc import Iterator
from typing import Any

from outlast.evaluate.statistics import bootstrap_iqm, paired_difference
from outlast.report import curves
from outlast.report.criteria import criteria
from outlast.report.read import RunRecord, is_quantity
from outlast.report.town import town_document

Row = tuple[str, list[dict[str, Any] | None]]


def run_document(record: RunRecord) -> dict[str, Any]:
    """Summarise one run; its curves are represented by their last tenth."""
    return {
        "run": str(record.path),
        "program": record.program,
        "learner": record.role or (record.config.get("learner") if record.program == "survive" else None),
        "seeds": record.seeds,
        "steps": int(record.reached.min()),
        "curves": {q.name: curves.final(record, q) for q in curves.quantities(record)},
        "criteria": criteria(record),
        "panel_iqm": panel_iqm(record.evaluations),
        "evaluations": record.evaluations,
    } | ({"town": town_document(record)} if record.program == "survive" else {})


def panel_iqm(evaluations: dict[str, Any]) -> dict[str, Any] | None:
    """Aggregate the capture rates of the whole panel, where every seed has met every opponent."""
    panel = evaluations.get("panel") or {}
    rates = [quantity["per_seed"] for _, quantity in found(panel.get("capture_rate"), "")]
    if not rates or any(None in rate or len(rate) != len(rates[0]) for rate in rates) or not rates[0]:
        return None
    return bootstrap_iqm([list(scores) for scores in zip(*rates, strict=True)])


def found(value: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Walk to every quantity in a document that is not inside a list of rows."""
    if is_quantity(value):
        yield path, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from found(inner, f"{path}/{key}")


def compared(document: dict[str, Any]) -> list[Row]:
    """List what matters most, with its value in each run: rates, what a suite measures as a whole, the training."""
    runs = document["runs"]
    tables = [dict(found(run["evaluations"], "")) for run in runs]
    tables = [{p[1:]: q for p, q in table.items() if p.count("/") < 3 or "rate" in p} for table in tables]
    for table, run in zip(tables, runs, strict=True):
        table |= {f"training/{name}": value for name, value in run["curves"].items()}
    names = dict.fromkeys(name for table in tables for name in table)
    return [(name, [table.get(name) for table in tables]) for name in names]


def differences(document: dict[str, Any], row: Row) -> list[dict[str, Any] | None]:
    """Compare each later run with the first, seed by seed, where both have trained the same seeds."""
    seeds = [run["seeds"] for run in document["runs"]]
    first, *others = row[1]
    return [
        paired_difference(other["per_seed"], first["per_seed"])
        if first and other and mine == seeds[0] and len(first["per_seed"]) == len(other["per_seed"])
        else None
        for other, mine in zip(others, seeds[1:], strict=True)
    ]


def number(value: float | None) -> str:
    """Write a number in three digits; whole and large ones in full."""
    if value is None:
        return "–"
    if abs(value) >= 1000 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3f}" if 0.1 <= abs(value) < 1 else f"{value:.3g}"


def interval(quantity: dict[str, Any] | None) -> str:
    """Write the 95 % interval of a quantity."""
    low, high = (quantity or {}).get("ci95") or (None, None)
    return "no interval" if low is None else f"{number(low)} to {number(high)}"


def valued(quantity: dict[str, Any] | None) -> str:
    """Write a quantity with its interval."""
    return "–" if quantity is None else f"{number(quantity['mean'])} [{interval(quantity)}]"

"""The headline results: train every preset with five seeds, measure it, and write the table of the README.

Each row is an ordinary run below `runs/headline`, so an interrupted study goes on where it was. Rows whose run is
not there stay as they are in the page's data: one machine may measure one row and another the next.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

from outlast.config import BadInput

BEGIN, END = "<!-- results: made by `outlast study headline` -->", "<!-- end of results -->"


class Row(NamedTuple):
    """One run of the table: name, preset, budget in steps a seed (0 is the preset's own), and what is measured."""

    name: str
    preset: str
    steps: int
    suites: tuple[str, ...]


TOWN = ("town-l0", "town-l05", "town-l1", "town-l2", "town-l3", "town-climb")
ROWS = (
    Row("chase", "chase", 0, ("panel",)),
    Row("flee", "flee", 0, ("panel",)),
    Row("duel-2M", "duel", 2_000_000, ("panel",)),
    Row("duel", "duel", 0, ("panel", "head-to-head", "cross-play", "exploit")),
    Row("ra1", "ra1", 2_000_000, ("panel", "exploit")),
    Row("ra2", "ra2", 2_000_000, ("panel", "exploit")),
    *(Row(name, name, 0, ("survival", "economy")) for name in TOWN),
)


def run_study(folder: Path, out: Path, *, only: list[str], seeds: int, workers: int) -> Path:
    """Train and measure what is not there yet, then write the page, its data and the README's table."""
    from outlast.report.document import run_document
    from outlast.report.read import read_run

    known = [row.name for row in ROWS]
    if unknown := [name for name in only if name not in known]:
        raise BadInput(f"--only {unknown[0]}: unknown (allowed: {', '.join(known)})")
    for row in ROWS:
        if not only or row.name in only:
            measured(row, folder / row.name, seeds=seeds, workers=workers)
    done = [row.name for row in ROWS if (folder / row.name).exists()]
    documents = {name: run_document(read_run(folder / name)) for name in done}
    return write_page(documents, folder, out)


def measured(row: Row, place: Path, *, seeds: int, workers: int) -> None:
    """Bring one run to the end of its budget and evaluate it."""
    from outlast import programs
    from outlast.cli.commands import go
    from outlast.cli.evaluation import evaluate_run
    from outlast.run import layout

    config = programs.from_preset(row.preset, [f"run.steps={row.steps}"] if row.steps else [])
    if not place.exists():
        layout.create(place, config, list(range(seeds)), workers=min(workers, seeds))
    code = go(place, quiet=False, fresh=False, allow_different=False)
    if code:
        raise SystemExit(code)
    for suite in row.suites:
        if not (place / "evaluations" / f"{suite}.json").exists():
            evaluate_run(place, config, suite)


def write_page(documents: dict[str, Any], folder: Path, out: Path) -> Path:
    """Write the table, the curves and the data behind them."""
    from outlast.report import plots
    from outlast.report.read import read_run
    from outlast.run import disk

    out.mkdir(parents=True, exist_ok=True)
    data = out / "headline.json"
    known = json.loads(data.read_text()) if data.is_file() else {}
    known |= {name: {key: d[key] for key in ("seeds", "steps", "criteria")} for name, d in documents.items()}
    rows = {row.name: known[row.name] for row in ROWS if row.name in known}
    lines = ["# Headline results", "", *table(rows), ""]
    for name in documents:
        disk.write_atomic(out / f"{name}.png", plots.png([read_run(folder / name)]))
    for name in rows:
        lines += [f"## {name}", "", f"![{name}]({name}.png)", ""]
    disk.write_atomic(data, json.dumps(rows, indent=1, allow_nan=False).encode() + b"\n")
    disk.write_atomic(out / "headline.md", "\n".join(lines).encode())
    readme = Path("README.md")
    if readme.is_file() and BEGIN in readme.read_text():
        head, rest = readme.read_text().split(BEGIN)
        middle = "\n".join(["", "", *table(rows), "", ""])
        disk.write_atomic(readme, (head + BEGIN + middle + END + rest.split(END)[1]).encode())
    return out / "headline.md"


def table(rows: dict[str, Any]) -> list[str]:
    """Lay the criteria out as a table; the mean is over seeds, with its 95 % interval."""
    from outlast.report.document import interval, number

    lines = [
        "Mean over seeds [95 % interval over seeds]; a target that was missed says so.",
        "",
        "| run | steps a seed | measured | target | value | |",
        "|---|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        for found in row["criteria"]:
            if found["name"] in ("finite", "finished"):
                continue
            value = f"{number(found['value']['mean'])} [{interval(found['value'])}]"
            passed = found.get("per_seed_pass")
            verdict = ("met" if found["pass"] else "missed") + (
                f" ({sum(passed)} of {len(passed)} seeds)" if passed else ""
            )
            budget = f"{len(row['seeds'])} x {row['steps'] / 1e6:.3g}M"
            lines.append(f"| {name} | {budget} | {found['name']} | {found['target']} | {value} | {verdict} |")
    return lines

"""The study of the originals' two runs: RA1 and RA2 as they were, then repaired one thing at a time.

Each variant is an ordinary run below `runs/study-ra`, so an interrupted study goes on where it was. What was broken
is expressed by configuration: the pool that met the past in 8 % of the games, the curriculum that never reached
training, the timeout that bootstrapped, the five-second horizon, the general-sum reward, the strict alternation.
"""

import io
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np

from outlast.config import BadInput, Section

ZERO_SUM = {
    "arena.reward.capture_bonus": 1.0,
    "arena.reward.timeout_penalty": -1.0,
    "arena.reward.distance_scale": 0.0,
    "arena.reward.evader_mode": "zero_sum",
    "arena.reward.hiding": 0.0,
    "arena.reward.survival_bonus": 0.0,
    "arena.reward.obstacle_approach": 0.0,
    "arena.reward.potential": 1.0,
}
BROKEN = {
    "selfplay.league.history": 0.09,
    "selfplay.league.groups": 1,
    "selfplay.league.eviction": "fifo",
    "arena.timeout": "truncates",
    "arena.time_to_go": False,
    "ppo.discount": 0.99,
}
STUCK_AT_START = {"arena.level.spawn_min_m": 2.0, "arena.level.spawn_max_m": 5.0}
ABOUT = {
    "as given": "the flags of the document, and what the code of then did with them: the past was met in 8 % of a "
    "learner's games, running out of time was bootstrapped and could not be seen coming, the discount of 0.99 looked "
    "5 s ahead; in ra2 no advance of the curriculum reached the training games",
    "curriculum wiring": "an advance reaches the next training games",
    "pool": "half of a learner's games are against 8 past policies, and a full pool keeps a fair sample of the past",
    "timeout": "running out of time is the end of the game, and the time that is left is observed",
    "horizon": "a discount of 0.995 looks 10 s ahead",
    "zero-sum reward": "capture is worth 1 to one side and -1 to the other, shaped by a potential that cannot change "
    "which play is best; no pay for hiding, for nearing obstacles or for staying alive",
    "schedule": "both roles learn from the same games, not by turns",
}
REPAIRS: tuple[tuple[str, dict[str, Any]], ...] = (
    (
        "pool",
        {
            "selfplay.league.history": 0.5,
            "selfplay.league.groups": 8,
            "selfplay.league.eviction": "reservoir",
        },
    ),
    ("timeout", {"arena.timeout": "terminates", "arena.time_to_go": True}),
    ("horizon", {"ppo.discount": 0.995}),
    ("zero-sum reward", ZERO_SUM),
    ("schedule", {"selfplay.schedule.kind": "together", "selfplay.schedule.micro_phase_steps": 4096}),
)


def variants() -> list[tuple[str, str, dict[str, Any], bool]]:
    """List (name, preset, fields set, whether the curriculum reaches training): as given, then repair by repair."""
    listed = []
    for preset in ("ra1", "ra2"):
        fields = dict(BROKEN)
        wired = preset == "ra1"
        listed.append((f"{preset} as given", preset, dict(fields), wired))
        if not wired:
            wired = True
            listed.append((f"{preset} + curriculum wiring", preset, dict(fields), wired))
        for name, repair in REPAIRS:
            fields |= repair
            listed.append((f"{preset} + {name}", preset, dict(fields), wired))
    return listed


def config_of(preset: str, fields: dict[str, Any], wired: bool, steps: int) -> Section:
    """Build the configuration of one variant."""
    from outlast import programs
    from outlast.config import override, read_preset, validate

    document = read_preset(preset)
    model = programs.config_model(document, source=preset)
    if not wired:
        document["selfplay"] = {k: v for k, v in document["selfplay"].items() if k != "curriculum"}
        fields = fields | STUCK_AT_START
    for path, value in {**fields, "run.steps": steps}.items():
        document = override(document, path, value, model=model)
    return validate(model, document, source=f"study variant of {preset}")


def run_study(folder: Path, out: Path, *, only: list[str], seeds: int, steps: int, workers: int) -> Path:
    """Train every variant, or only some, that is not finished, and write the page."""
    from outlast.cli.commands import go
    from outlast.report.read import read_run
    from outlast.run import layout

    known = [name for name, *_ in variants()]
    if unknown := [name for name in only if name not in known]:
        raise BadInput(f"--only {unknown[0]}: unknown (allowed: {', '.join(known)})")
    records = {}
    for name, preset, fields, wired in variants():
        if only and name not in only:
            continue
        place = folder / name.replace(" ", "-")
        if not place.exists():
            config = config_of(preset, fields, wired, steps)
            layout.create(place, config, list(range(seeds)), workers=min(workers, seeds))
        code = go(place, quiet=False, fresh=False, allow_different=False)
        if code:
            raise SystemExit(code)
        records[name] = read_run(place)
    return write_page(records, out, seeds=seeds, steps=steps)


def write_page(records: dict[str, Any], out: Path, *, seeds: int, steps: int) -> Path:
    """Write the table, the curves and the data behind them."""
    from outlast.report.criteria import criteria
    from outlast.run import disk

    rows = [{"variant": name, "criteria": criteria(record)} for name, record in records.items()]
    out.mkdir(parents=True, exist_ok=True)
    document = {"study": "ra", "seeds": seeds, "steps": steps, "rows": rows}
    disk.write_atomic(out / "ra-study.json", json.dumps(document, indent=1, allow_nan=False).encode() + b"\n")
    disk.write_atomic(out / "ra-study.png", _figure(records))
    disk.write_atomic(out / "ra-study.md", _page(rows, records, seeds=seeds, steps=steps).encode())
    return out / "ra-study.md"


def evaluations(record: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the steps and the capture rates (one column per seed) of a run's evaluations."""
    rates = record.metrics["evaluation/capture_rate"]
    seen = np.isfinite(rates).any(axis=1)
    return record.steps[seen], rates[seen]


def _page(rows: list[dict[str, Any]], records: dict[str, Any], *, seeds: int, steps: int) -> str:
    names = [line["name"] for line in rows[0]["criteria"]]
    lines = [
        "# RA1 and RA2 as they were, and repaired one thing at a time",
        "",
        f"{seeds} seeds each, {steps:,} steps a seed; repairs add up from line to line. Made by `outlast study ra`.",
        "Mean over seeds with its 95 % interval; the number of seeds that pass in parentheses.",
        "",
        "| variant | SR_P at the end, by seed | training starts, m | " + " | ".join(names) + " |",
        "|---|---|---|" + "---|" * len(names),
    ]
    for row in rows:
        record = records[row["variant"]]
        last = ", ".join(f"{rate:.2f}" for rate in evaluations(record)[1][-1])
        found = {line["name"]: line for line in row["criteria"]}
        cells = [_cell(found.get(name)) for name in names]
        lines.append(f"| {row['variant']} | {last} | {_starts(record)} | " + " | ".join(cells) + " |")
    if missing := [name for name, *_ in variants() if name not in records]:
        lines += ["", f"Not trained yet: {', '.join(missing)}. A line holds every repair up to its own."]
    lines += [
        "",
        "Training starts: mean distance at the start of the first and of the last tenth of the games.",
        "",
    ]
    lines += ["![capture rates](ra-study.png)", "", "## What each line changes", ""]
    lines += [f"- **{name}**: {about}." for name, about in ABOUT.items()]
    return "\n".join([*lines, "", *_effects(rows), ""])


def _starts(record: Any) -> str:
    """Say from where training games began, early and late."""
    metres = record.metrics["episode/start_distance_m"]
    tenth = max(1, len(metres) // 10)
    return f"{np.nanmean(metres[:tenth]):.1f} to {np.nanmean(metres[-tenth:]):.1f}"


def _effects(rows: list[dict[str, Any]]) -> list[str]:
    """Tabulate what each repair did to the sustained gap: the difference to the line before it, seed by seed."""
    from outlast.evaluate.statistics import paired_difference
    from outlast.report.document import valued

    lines = [
        "## What each repair did to the gap",
        "",
        "Difference of the sustained NE gap to the line before, paired by seed, with its 95 % interval; below zero is",
        "more balance.",
        "",
        "| repair | change of the gap |",
        "|---|---|",
    ]
    gaps = {
        row["variant"]: line["value"]["per_seed"]
        for row in rows
        for line in row["criteria"]
        if line["name"] == "NE gap sustained"
    }
    for before, name in itertools.pairwise(gaps):
        if before.split()[0] == name.split()[0]:
            lines.append(f"| {before} → {name} | {valued(paired_difference(gaps[name], gaps[before]))} |")
    return lines


def _cell(line: dict[str, Any] | None) -> str:
    if line is None or line["value"]["mean"] is None:
        return "-"
    low, high = line["value"]["ci95"]
    interval = f" [{low:.2f}, {high:.2f}]" if low is not None else ""
    passed = line.get("per_seed_pass")
    count = f" ({sum(map(bool, passed))}/{len(passed)})" if passed else (" pass" if line["pass"] else " fail")
    return f"{line['value']['mean']:.2f}{interval}{count}"


def _figure(records: dict[str, Any]) -> bytes:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = 3
    n_rows = -(-len(records) // columns)
    figure, axes = pyplot.subplots(
        n_rows, columns, figsize=(11, 2.2 * n_rows), sharex=True, sharey=True, squeeze=False
    )
    for axis, (name, record) in zip(axes.flat, records.items(), strict=False):
        steps, rates = evaluations(record)
        axis.plot(steps / 1e6, rates, color="#0072b2", alpha=0.6, linewidth=1)
        axis.axhline(0.5, color="0.6", linewidth=0.8)
        axis.set_title(name, fontsize=9)
        axis.set_ylim(0, 1)
    for axis in axes[-1]:
        axis.set_xlabel("million steps", fontsize=8)
    for axis in axes[:, 0]:
        axis.set_ylabel("SR_P", fontsize=8)
    figure.tight_layout()
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=130)
    pyplot.close(figure)
    return buffer.getvalue()

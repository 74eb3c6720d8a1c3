"""The report as one HTML page that needs nothing else: no script, no network, light and dark.

Every text that comes from a run passes through `text`; table cells are HTML that was made here.
"""

from importlib import resources
from itertools import groupby
from typing import Any

from outlast.report.document import Row, compared, differences, found, interval, number, valued
from outlast.report.html import bar, table, text, verdict
from outlast.report.plots import PALETTE, colours
from outlast.report.read import RunRecord, flat, is_quantity, labels
from outlast.report.town_page import town_sections

MAX_EVENTS = 200
NOTHING = '<p class="muted">Not recorded.</p>'
# The policy lets a page that was fed something hostile do nothing at all.
HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="referrer" content="no-referrer"><title>{title}</title><style>{style}</style></head><body><main>
"""


def page(records: list[RunRecord], document: dict[str, Any], figure: str) -> str:
    """Write the whole page around an SVG figure."""
    style = resources.files("outlast.report").joinpath("page.css").read_text()
    title = text(" / ".join(labels(records)))
    shades = [
        f"var(--c{PALETTE.index(c)})" if c in PALETTE[:-1] else "var(--muted)" for c in colours(records)
    ]
    runs = list(zip(records, document["runs"], shades, strict=True))
    parts = [HEAD.format(title=f"{title} · outlast report", style=style)]
    parts += [headline(*run) for run in runs]
    if len(records) > 1:
        parts.append(comparison(records, document))
    parts += ["<h2>Criteria</h2>", criteria_table(runs), "<h2>Learning curves</h2>"]
    parts += [f'<div class="scroll curves">{figure}</div>', CURVES_NOTE]
    parts += [evaluations(*run, alone=len(runs) == 1) for run in runs]
    parts += [town_sections(*run) for run in runs if run[1].get("town")]
    parts += [last_tenth(run) for run in runs if len(runs) == 1]
    parts += [configuration(records), identity(records), *(events(r) for r in records)]
    return "\n".join(parts) + "\n</main></body></html>\n"


CURVES_NOTE = """<p class="note">Lines are gathered into at most 60 bins of steps: counts over episodes, never means
of means. Thin: one seed. Thick: the mean over seeds. Band: its 95 % Student t interval; the seed is the unit of
replication. Only episodes that have ended are counted, so the first bins hold the short ones. Training episodes
explore, so an evaluation may score higher.</p>"""
PAIRED_NOTE = """<p class="note">Differences are paired by seed, with a 95 % t interval; bold where it excludes zero,
without correction for the number of rows.</p>"""


def headline(record: RunRecord, run: dict[str, Any], shade: str) -> str:
    """Open with what was trained and what came out of it."""
    seeds, lines = len(record.seeds), run["criteria"]
    passed = sum(line["pass"] for line in lines)
    learns = f" · {text(record.role)} learns" if record.role else ""
    if record.program == "survive":
        learns = f" · pack {text(record.config.get('pack'))} · {text(run['learner'])}"
    verdicts = f" · {verdict(passed == len(lines))} {passed} of {len(lines)} criteria" if lines else ""
    top = (
        f'<h1><i class="run" style="background:{shade}"></i>{text(record.name)}</h1><p class="muted">'
        f"{text(record.program)}{learns} · {seeds} seed{'s' if seeds > 1 else ''} · {run['steps']:,} steps per seed"
        f"{verdicts}</p>"
    )
    shown = [(line["name"], line["value"]) for line in lines if line["name"] not in ("finite", "finished")]
    names = {
        "capture_rate": "capture rate",
        "episode_steps": "episode length, steps",
        "episode_return": "return",
        "survival_steps": "survival, ticks",
        "deaths/limit": "lives that reach the limit",
    }
    training = [(f"{names[n]} (last tenth of training)", q) for n, q in run["curves"].items() if n in names]
    iqm = run["panel_iqm"]
    aggregate = [("capture, interquartile mean over the panel", iqm | {"mean": iqm["iqm"]})] if iqm else []
    cards = [
        f'<div class="card"><span>{text(name)}</span><b style="color:{shade}">{number(quantity["mean"])}</b>'
        f'<span class="muted">95 %: {interval(quantity)}</span></div>'
        for name, quantity in (shown + aggregate + training)[:6]
    ]
    return f'{top}<div class="cards">{"".join(cards)}</div>'


def criteria_table(runs: list[tuple[RunRecord, dict[str, Any], str]]) -> str:
    """Write every criterion of every run with its value in each seed."""
    rows = [
        [f'<i class="run" style="background:{shade}"></i>{text(record.name)}'] * (len(runs) > 1)
        + [text(line["name"]), text(line["target"]), number(line["value"]["mean"]), interval(line["value"])]
        + [", ".join(number(value) for value in line["value"]["per_seed"]), verdict(line["pass"])]
        for record, run, shade in runs
        for line in run["criteria"]
    ]
    head = ["run"] * (len(runs) > 1) + ["criterion", "target", "mean", "95 % interval", "each seed", ""]
    return table(head, rows) if rows else '<p class="muted">No criterion applies to this run.</p>'


def comparison(records: list[RunRecord], document: dict[str, Any]) -> str:
    """Put the runs side by side, with paired differences where the seeds are the same."""
    names = [text(name) for name in labels(records)]
    head = ["quantity", *names, *(f"difference to the first: {name}" for name in names[1:])]
    rows = [_compared_row(document, row) for row in compared(document)]
    return f"<h2>Comparison</h2>{table(head, rows)}{PAIRED_NOTE}"


def _compared_row(document: dict[str, Any], row: Row) -> list[str]:
    cells = [text(row[0]), *(valued(value) for value in row[1])]
    for difference in differences(document, row):
        low, high = (difference or {}).get("ci95", (None, None))
        clear = low is not None and (low > 0 or high < 0)
        cells.append(f"<b>{valued(difference)}</b>" if clear else valued(difference))
    return cells


def evaluations(record: RunRecord, run: dict[str, Any], shade: str, *, alone: bool) -> str:
    """Write what each suite found: quantities as bars, tables as they are."""
    whose = "" if alone else f": {text(record.name)}"
    parts = [f"<h2>Evaluations{whose}</h2>"]
    for suite, document in run["evaluations"].items():
        parts.append(f"<h3>{text(suite)}</h3>")
        measures = groupby(found(document, ""), key=lambda pair: pair[0].rpartition("/")[0].strip("/"))
        shown = [(title, bars(title, list(same), shade)) for title, same in measures]
        parts += [bars_table for title, bars_table in shown if in_sight(title)]
        folded = [bars_table for title, bars_table in shown if not in_sight(title)]
        if folded:
            parts.append(
                f"<details><summary>{len(folded)} more measures</summary>{''.join(folded)}</details>"
            )
        parts += [_rows(key, value) for key, value in document.items() if isinstance(value, list)]
        if residents := document.get("residents"):
            parts.append(_rows("Scripted residents", [{"resident": n} | v for n, v in residents.items()]))
    if not run["evaluations"]:
        parts.append(f'<p class="muted">None yet: <code>outlast evaluate {text(str(record.path))}</code></p>')
    return "\n".join(parts)


def in_sight(title: str) -> bool:
    """Tell which measures of a suite are shown at once: whole ones, rates, and the random resident beside them."""
    return not title or "rate" in title or title == "random"


def bars(title: str, quantities: list[tuple[str, dict[str, Any]]], shade: str) -> str:
    """Draw the quantities of one measure on a common scale."""
    seen = [v for _, q in quantities for v in (*q["per_seed"], *(q["ci95"])) if v is not None]
    low, high = min([0.0, *seen]), max([1.0 if max([0.0, *seen]) <= 1 else 0.0, *seen])
    rows = [
        [text(path.rpartition("/")[2]), bar(q, (low, high), shade), number(q["mean"]), interval(q)]
        for path, q in quantities
    ]
    return table(
        [
            text(title.replace("_", " ") or "quantity"),
            f"{number(low)} to {number(high)}",
            "mean",
            "95 % interval",
        ],
        rows,
    )


def _rows(title: str, rows: list[Any]) -> str:
    rows = [row for row in rows if isinstance(row, dict)]
    names = list(dict.fromkeys(name for row in rows for name in row))
    if {"pursuer", "evader", "capture_rate"} <= set(names):
        return _role_by_role(rows)
    cells = [[_cell(row.get(name)) for name in names] for row in rows]
    return f"<h3>{text(title)}</h3>{table([text(name) for name in names], cells)}" if rows else ""


def _role_by_role(rows: list[dict[str, Any]]) -> str:
    """Lay pairings out as a matrix, pursuers down and evaders across."""
    evaders = list(dict.fromkeys(str(row.get("evader")) for row in rows))
    cell_of = {(str(row.get("pursuer")), str(row.get("evader"))): row for row in rows}
    body = []
    for pursuer in dict.fromkeys(pursuer for pursuer, _ in cell_of):
        cells = [cell_of.get((pursuer, evader), {}) for evader in evaders]
        body.append(
            [text(pursuer), *(f"{_cell(c.get('capture_rate'))}<br>{_ends(c.get('ci95'))}" for c in cells)]
        )
    note = '<p class="note">Capture rate of the pursuer (row) against the evader (column), with 95 % intervals.</p>'
    return f"<h3>Role by role</h3>{note}{table(['', *(text(evader) for evader in evaders)], body)}"


def _ends(pair: Any) -> str:
    told = isinstance(pair, list) and len(pair) == 2 and all(isinstance(end, int | float) for end in pair)
    return f'<span class="muted nowrap">{number(pair[0])} to {number(pair[1])}</span>' if told else ""


def _cell(value: Any) -> str:
    if is_quantity(value):
        return valued(value)
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return number(value) if plain or value is None else _ends(value) or text(value)


def last_tenth(run: tuple[RunRecord, dict[str, Any], str]) -> str:
    """Write the end of every curve as numbers."""
    rows = [
        [text(name), number(q["mean"]), interval(q), ", ".join(number(value) for value in q["per_seed"])]
        for name, q in run[1]["curves"].items()
    ]
    return f"<h2>Last tenth of training</h2>{table(['quantity', 'mean', '95 % interval', 'each seed'], rows)}"


def configuration(records: list[RunRecord]) -> str:
    """Write how the runs differ from each other, or one run from the defaults; the rest is folded away."""
    configs = [flat(record.config) for record in records]
    names = [text(name) for name in labels(records)]
    if len(records) == 1 and records[0].defaults:
        configs, names = [flat(records[0].defaults), *configs], ["default", "this run"]
        # A pack has no default to differ from; all of it is among all fields.
        configs[0] |= {path: value for path, value in configs[1].items() if path.startswith("town.")}
    paths = sorted({path for config in configs for path in config})
    differing = [path for path in paths if len({text(config.get(path)) for config in configs}) > 1]

    def rows(chosen: list[str]) -> str:
        cells = [
            [f"<code>{text(p)}</code>", *(f"<code>{text(c.get(p))}</code>" for c in configs)] for p in chosen
        ]
        return table(["field", *names], cells)

    changed = rows(differing) if differing else ""
    if len(configs) > 1 and not differing:
        changed = '<p class="muted">No differences.</p>'
    folded = f"<details><summary>All {len(paths)} fields</summary>{rows(paths)}</details>"
    return f"<h2>Configuration</h2>{changed}{folded}"


def identity(records: list[RunRecord]) -> str:
    """Write what equal bits depend on, once for groups that agree."""
    parts = ["<h2>Identity</h2>"]
    for record in records:
        same = groupby(sorted(record.identities.items(), key=lambda p: text(p[1])), key=lambda p: text(p[1]))
        for _, members in same:
            groups = list(members)
            title = ", ".join(dict.fromkeys([record.name, *(name for name, _ in groups)]))
            cells = [
                [text(path), f"<code>{text(value)}</code>"] for path, value in flat(groups[0][1]).items()
            ]
            found_any = table(["field", "value"], cells) if cells else NOTHING
            is_open = " open" if len(record.identities) == 1 else ""
            parts.append(f"<details{is_open}><summary>{text(title)}</summary>{found_any}</details>")
    return "\n".join(parts)


def events(record: RunRecord) -> str:
    """Write what happened to the run; saves that follow each other are one row."""
    rows = []
    ordered = sorted(record.events, key=lambda event: str(event.get("group", "")))
    for (group, kind), same in groupby(ordered, key=lambda e: (e.get("group"), e.get("event"))):
        many = list(same)
        times = f'<span class="nowrap">{text(many[0].get("time") or "")}</span>'
        last = {
            k: v
            for k, v in many[-1].items()
            if k not in ("group", "event", "time") and v not in (None, [], "")
        }
        details = " ".join(f"{text(key)}={text(value)}" for key, value in last.items())
        rows.append([times, text(group), f"{text(kind)}{f' ×{len(many)}' if len(many) > 1 else ''}", details])
    more = (
        f'<p class="muted">{len(rows) - MAX_EVENTS} more rows are in events.jsonl.</p>'
        if len(rows) > MAX_EVENTS
        else ""
    )
    body = table(["time", "group", "event", "details (of the last)"], rows[-MAX_EVENTS:])
    return f"<h2>Events: {text(record.name)}</h2>{body if rows else NOTHING}{more}"

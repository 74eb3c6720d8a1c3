"""The sections of the page that only a run in the town has: lives, places, needs, and what came after what."""

from typing import Any

from outlast.report.document import interval, number, valued
from outlast.report.html import bar, table, text
from outlast.report.read import RunRecord

PERIODS = {"first": "first tenth", "last": "last tenth"}
WAYS_NOTE = """<p class="note">Last tenth of training. A row is a place that was left, a column the next place that was
used; a cell is the share of what came next, over seeds. Uses in a row at the same place stand on the diagonal.</p>"""
LIVES_NOTE = """<p class="note">Over the lives that ended in the first and the last tenth of training, at the difficulty
and with the random actions of that time. Survival in ticks; intrinsic reward is not weighted.</p>"""
CRITICAL_NOTE = '<p class="note">How often a meter falls below a fifth, in 100 ticks lived.</p>'
Entry = dict[str, Any]


def town_sections(record: RunRecord, run: Entry, shade: str) -> str:
    """Write everything that the document says of lives in the town."""
    town, whose = run["town"], text(record.name)
    parts = [
        f"<h2>How lives end: {whose}</h2>{LIVES_NOTE}",
        lives(town["lives"]),
        deaths(town["last_deaths"]),
    ]
    parts += [f"<h2>Places: {whose}</h2>", visits("place", town["visits"], shade), order(town)]
    if town["transitions"].get("last"):
        parts += ["<h3>What comes after what</h3>", WAYS_NOTE, ways(town["transitions"]["last"], shade)]
    parts += [f"<h2>Critical events: {whose}</h2>{CRITICAL_NOTE}", visits("meter", town["critical"], shade)]
    if event := town["generalisation"]:
        rows = [[when, number(q["mean"]), interval(q)] for when, q in event.items()]
        parts += [
            "<h3>Greedy survival around the new layout</h3>",
            table(["", "mean", "95 % interval"], rows),
        ]
    return "\n".join(parts)


def lives(rows: list[Entry]) -> str:
    """Write what each cause ended, by period."""
    cells = [
        [PERIODS[row["period"]], text(row["cause"]), f"{row['lives']:,}"]
        + [valued(row[name]) for name in ("share", "survival", "return", "intrinsic")]
        for row in rows
    ]
    return table(["", "ended by", "lives", "share", "survival", "return", "intrinsic"], cells)


def deaths(rows: list[Entry]) -> str:
    """Write the last death certificates."""
    if not rows:
        return ""
    cells = [[text(value) for value in row.values()] for row in rows]
    folded = table([text(name) for name in rows[0]], cells)
    return f"<details><summary>The last {len(rows)} deaths</summary>{folded}</details>"


def visits(what: str, counts: dict[str, dict[str, Entry]], shade: str) -> str:
    """Write how often something happened at the beginning and at the end, with bars on a common scale."""
    ends = [q for both in counts.values() for q in both.values()]
    seen = [v for q in ends for v in (*q["per_seed"], *q["ci95"]) if v is not None]
    bounds = (0.0, max([*seen, 1e-9]))
    rows = [
        [text(name), valued(both["first"]), bar(both["last"], bounds, shade), valued(both["last"])]
        for name, both in counts.items()
    ]
    return table([what, "first tenth, per 100 ticks", f"last tenth: 0 to {number(bounds[1])}", ""], rows)


def order(town: Entry) -> str:
    """Say whether residents earn before they spend."""
    earned = {PERIODS[period]: q for period, q in town["earned_first"].items() if q and q["mean"] is not None}
    if not earned:
        return ""
    told = "; ".join(f"{when} <b>{valued(q)}</b>" for when, q in earned.items())
    return (
        f"<p>Of the moves to a place that has a price, the share that came straight from work: {told}.</p>"
        '<p class="note">Whether that was needed, being broke, is what '
        "<code>outlast evaluate RUN --suite economy</code> measures.</p>"
    )


def ways(shares: dict[str, dict[str, Entry]], shade: str) -> str:
    """Write the ways between places as a matrix; the stronger the tint, the more often."""
    rows = [[text(came), *(_tinted(q, shade) for q in row.values())] for came, row in shares.items()]
    return f'<div class="ways">{table(["", *(text(name) for name in shares)], rows)}</div>'


def _tinted(quantity: Entry, shade: str) -> str:
    mean = quantity["mean"]
    if mean is None:
        return ""
    tint = f"background:color-mix(in srgb,{shade} {round(75 * mean)}%,transparent)"
    shown = f"{100 * mean:.0f}" if mean >= 0.005 else ""
    return f'<span style="{tint}" title="{interval(quantity)}">{shown}</span>'

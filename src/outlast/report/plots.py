"""The learning-curve figure: outcome, each opponent, learner health and speed, as PNG or as SVG for the page.

matplotlib is imported late, and its global state is never touched.
"""

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from outlast.report import curves
from outlast.report.criteria import TARGETS
from outlast.report.read import RunRecord, labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 150
FIGURE_INCHES, ROW_INCHES, LEFT_INCHES, BELOW_INCHES = 14.0, 2.75, 0.68, 0.6
INK, MUTED, LINE = "#1f2328", "#656d76", "#d8dee4"
# Okabe and Ito's palette, which colour-blind readers can tell apart; a role keeps its colour in every figure.
ROLES = {"pursuer": "#0072b2", "evader": "#d55e00", "": "#009e73"}
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#656d76")
ON_PAGE = {INK: "currentColor", MUTED: "var(--muted)", LINE: "var(--line)"} | {
    colour: f"var(--c{index})" for index, colour in enumerate(PALETTE[:-1])
}
STYLE: dict[Any, Any] = {
    "text.parse_math": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "outlast",
    "font.family": "sans-serif",
    "font.size": 8.5,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlecolor": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": LINE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "lines.solid_capstyle": "round",
}
RATE_TICKS = np.linspace(0, 1, 6)


class Panel(NamedTuple):
    """One small plot: a quantity, or the speed when there is none."""

    title: str
    unit: str
    quantity: curves.Quantity | None
    target: float | None = None


Rows = list[list[tuple[int, Panel]]]


def png(records: list[RunRecord]) -> bytes:
    """Draw the figure as a PNG file."""
    with _drawing():
        buffer = io.BytesIO()
        figure(records, titled=True).savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
    return buffer.getvalue()


def svg(records: list[RunRecord]) -> str:
    """Draw the figure as an SVG element for a page, whose colours are variables of that page."""
    with _drawing():
        buffer = io.StringIO()
        figure(records, titled=False).savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    head, rest = text.split(">", 1)
    head = re.sub(r'\s(?:xmlns(?::\w+)?|width|height|version)="[^"]*"', "", head)
    pattern = re.compile("|".join(ON_PAGE))
    return head + ' role="img" aria-label="learning curves">' + pattern.sub(lambda m: ON_PAGE[m[0]], rest)


@contextmanager
def _drawing() -> Iterator[None]:
    import matplotlib

    # NOTE: a run's name may hold signs that the font lacks; a box in the figure is all that happens.
    with warnings.catch_warnings(), matplotlib.rc_context(STYLE):
        warnings.filterwarnings("ignore", message="Glyph")
        yield


def colours(records: list[RunRecord]) -> list[str]:
    """Colour each run by its role where that tells the runs apart, else in colours that stand for no role."""
    roles = [record.role for record in records]
    if set(roles) <= set(ROLES) and len(set(roles)) == len(roles):
        return [ROLES[role] for role in roles]
    others = PALETTE[2:]
    return [others[index % len(others)] for index in range(len(records))]


def figure(records: list[RunRecord], *, titled: bool) -> "Figure":
    """Lay out the panels that the runs have something for, one row per theme."""
    from matplotlib.figure import Figure

    rows, edges, shades = layout(records), curves.bin_edges(records), colours(records)
    above = 0.8 if titled else 0.4
    height = ROW_INCHES * max(1, len(rows)) + above
    page = Figure(figsize=(FIGURE_INCHES, height))
    for panel, (left, bottom, width, tall) in _boxes(rows, top=height - above):
        box = (left / FIGURE_INCHES, bottom / height, width / FIGURE_INCHES, tall / height)
        axes = page.add_axes(box)
        for record, shade in zip(records, shades, strict=True):
            _draw(axes, record, panel, edges, shade, alone=len(records) == 1)
        _finish(axes, panel, edges)
    if titled:
        heading = _short(" / ".join(labels(records)), 100)
        page.text(0.008, 1 - 0.12 / height, heading, va="top", fontsize=14, fontweight="bold")
    _legend(page, rows, records, shades, top=1 - (above - 0.42) / height)
    return page


def _boxes(rows: Rows, *, top: float) -> Iterator[tuple[Panel, tuple[float, ...]]]:
    """Place each panel, in inches: every row fills the width, and leaves room for its labels."""
    for place, row in enumerate(rows):
        bottom, left = top - ROW_INCHES * (place + 1) + BELOW_INCHES, LEFT_INCHES
        unit = FIGURE_INCHES / sum(share for share, _ in row)
        for share, panel in row:
            yield panel, (left, bottom, share * unit - LEFT_INCHES - 0.15, ROW_INCHES - BELOW_INCHES - 0.3)
            left += share * unit


def layout(records: list[RunRecord]) -> Rows:
    """Choose the panels, each with its width relative to its row."""
    duels = [record for record in records if record.program != "survive"]
    names = dict.fromkeys(quantity.name for record in duels for quantity in curves.quantities(record))
    panels = [Panel(q.title, q.unit, q) for q in curves.QUANTITIES if q.name in names]
    outcome = [p for p in panels if p.quantity and p.quantity.gathered != "iteration"]
    health = [p for p in panels if p not in outcome]
    evaluated = [Panel(q.title, q.unit, q) for q in curves.EVALUATED if q.name in names]
    against = list(dict.fromkeys(name for record in duels for name in curves.opponents(record)))
    met = [_opponent_panel(name, records) for name in against] if len(against) > 1 else []
    town = _town_panels([record for record in records if record.program == "survive"])
    rows = [outcome, evaluated, *(met[i : i + 5] for i in range(0, len(met), 5)), health, *town]
    rows = [row for row in rows if row]
    if any(speeds(record) for record in records):
        speed = Panel("Speed", "steps/s per process", None)
        rows = [*rows[:-1], [*rows[-1], speed]] if rows else [[speed]]
    return [[(2 if panel is rows[0][0] else 1, panel) for panel in row] for row in rows]


def _town_panels(records: list[RunRecord]) -> list[list[Panel]]:
    """Join the themes of all runs in the town; the order is that of the first."""
    if not records:
        return []
    themes = zip(*(curves.town_rows(record) for record in records), strict=True)
    rows = [dict.fromkeys(quantity for row in theme for quantity in row) for theme in themes]
    return [[Panel(q.title, q.unit, q) for q in row] for row in rows]


def _opponent_panel(name: str, records: list[RunRecord]) -> Panel:
    roles = {record.role for record in records}
    goals = [t for t in TARGETS if t.opponent == name and roles == {t.role}]
    target = (goals[0].at_least if goals[0].role == "pursuer" else 1 - goals[0].at_least) if goals else None
    title = f"by {name}" if roles == {"evader"} else f"of {name}" if roles == {"pursuer"} else name
    return Panel(f"Capture {title}", "share of episodes", curves.opponent_quantity(name), target)


def speeds(record: RunRecord) -> list[tuple[int, int, float]]:
    """List the stretches between start or resume and stop as (first step, last step, steps per second)."""
    begun: dict[Any, int] = {}
    stretches = []
    for event in record.events:
        group, steps, speed = event.get("group"), event.get("steps"), event.get("steps_per_s")
        if isinstance(steps, int) and isinstance(speed, int | float):
            stretches.append((begun.get(group, 0), steps, float(speed)))
        if isinstance(steps, int):
            begun[group] = steps
    return stretches


def _draw(axes: "Axes", record: RunRecord, panel: Panel, edges: Any, shade: str, *, alone: bool) -> None:
    if panel.quantity is None:
        for first, last, speed in speeds(record):
            axes.plot([first, last], [speed, speed], color=shade, lw=1.4, marker="o", ms=2.5)
        return
    if panel.quantity.name not in {quantity.name for quantity in curves.quantities(record)}:
        return
    curve = curves.curve(record, panel.quantity, edges).filled_only()
    for values in curve.per_seed:
        axes.plot(curve.steps, values, color=shade, lw=0.6, alpha=0.45 if alone else 0.25)
    axes.plot(curve.steps, curve.mean, color=shade, lw=1.9)
    # Where two seeds have a value the interval is huge: the curves set the scale and it runs off the panel.
    limits = axes.dataLim.frozen()
    axes.fill_between(curve.steps, curve.low, curve.high, color=shade, alpha=0.18, lw=0)
    axes.dataLim.set(limits)
    end = curves.final(record, panel.quantity)["mean"]
    if alone and panel.quantity.gathered == "share" and end is not None:
        # A narrow panel has room for the number alone beside its title.
        told = "last tenth " if axes.get_position().width > 0.15 else ""
        axes.set_title(f"{told}{end:.2f}", loc="right", fontsize=8.5, color=MUTED, weight="normal")


def _finish(axes: "Axes", panel: Panel, edges: Any) -> None:
    from matplotlib.ticker import EngFormatter, MaxNLocator

    axes.set_title(_short(panel.title, 28))
    axes.set_xlabel("world steps per seed")
    axes.set_ylabel(panel.unit)
    axes.set_xlim(0, edges[-1])
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.tick_params(length=0)
    if panel.quantity is None:
        axes.set_ylim(0, 1.15 * axes.get_ylim()[1])
        axes.yaxis.set_major_formatter(EngFormatter(sep=""))
    elif panel.quantity.bounds == curves.RATE:
        axes.set_yticks(RATE_TICKS)
        axes.set_ylim(-0.03, 1.03)
    elif panel.quantity.name == "explained_variance":
        # A value function that has learned nothing yet may be arbitrarily bad; that must not flatten the rest.
        axes.set_ylim(max(-0.5, axes.get_ylim()[0]), 1.03)
    if panel.target is not None:
        axes.axhline(panel.target, color=MUTED, lw=1, ls=(0, (4, 3)), zorder=1.5)


def _legend(page: "Figure", rows: Rows, records: list[RunRecord], shades: list[str], *, top: float) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    if len(records) == 1:
        n, role = len(records[0].seeds), records[0].role
        who = {"": "", "both": " (both roles learn)"}.get(role, f" ({role} learns)")
        mean = f"mean of {n} seed{'s' if n > 1 else ''}{who}"
        entries: list[tuple[str, Any]] = [(mean, Line2D([], [], color=shades[0], lw=1.9))]
    else:
        named = zip(labels(records), shades, strict=True)
        entries = [(_short(name, 40), Line2D([], [], color=shade, lw=1.9)) for name, shade in named]
    shade = shades[0] if len(records) == 1 else MUTED
    entries.append(("each seed", Line2D([], [], color=shade, lw=0.6, alpha=0.6)))
    entries.append(("95 % interval over seeds", Patch(color=shade, alpha=0.18, lw=0)))
    if any(panel.target is not None for row in rows for _, panel in row):
        entries.append(("target", Line2D([], [], color=MUTED, lw=1, ls=(0, (4, 3)))))
    legend = page.legend(
        [artist for _, artist in entries],
        [f"\u2060{name}" if name.startswith("_") else name for name, _ in entries],
        loc="upper left",
        bbox_to_anchor=(0.0, top),
        ncols=min(6, len(entries)),
        frameon=False,
        fontsize=8.5,
    )
    for text in legend.get_texts():
        text.set_color(INK)


def _short(name: str, length: int) -> str:
    return name if len(name) <= length else name[: length - 1] + "…"

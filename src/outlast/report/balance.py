"""The map of balance from a run's journal: the capture rate of every cell once learning has settled, with intervals
over seeds, and where on each row the two sides are even.
"""

import io
import json
from typing import Any

import numpy as np

from outlast.evaluate.statistics import summary
from outlast.report.read import RunRecord

SETTLED_SHARE = 1 / 3


def balance_map(record: RunRecord) -> dict[str, Any]:
    """Summarise every cell over the last third of training, and find where each row crosses one half."""
    axes = {name: record.config[name] for name in ("x", "y")}
    shape = tuple(len(axes[name]["values"]) for name in ("y", "x"))
    rates = np.stack([record.metrics[f"balance/{cell}"] for cell in range(shape[0] * shape[1])])
    late = record.steps[None, :, None] > (1 - SETTLED_SHARE) * record.reached
    seen = np.isfinite(rates) & late
    settled = np.where(seen, rates, 0.0).sum(axis=1) / np.maximum(seen.sum(axis=1), 1)
    settled = np.where(seen.any(axis=1), settled, np.nan).reshape(*shape, -1)
    xs = np.array(axes["x"]["values"], float)
    return {
        "x": axes["x"],
        "y": axes["y"],
        "sr_p": [[summary(cell, bounds=(0.0, 1.0)) for cell in row] for row in settled],
        "even_at": [summary([crossing(xs, seed) for seed in row.T]) for row in settled],
    }


def crossing(xs: np.ndarray, rates: np.ndarray) -> float:
    """Return where a row's rate first passes one half, between cells by a straight line; NaN where it never does."""
    above = rates - 0.5
    for left in range(len(xs) - 1):
        a, b = above[left], above[left + 1]
        if np.isfinite(a) and np.isfinite(b) and a * b <= 0 and a != b:
            return float(xs[left] + (xs[left + 1] - xs[left]) * a / (a - b))
    return float("nan")


def markdown(found: dict[str, Any], seeds: list[int], steps: int) -> str:
    """Write the map as a page."""
    x, y = found["x"], found["y"]
    cells = len(x["values"]) * len(y["values"])
    lines = [
        "# Where the game is even",
        "",
        f"Capture rate once both roles have learned from each other: {len(seeds)} seeds, {steps // cells:,} steps a",
        "cell and seed, mean over the evaluations of the last third with its 95 % interval over seeds.",
        "Made by `outlast balance`.",
        "",
        f"| {y['field']} \\ {x['field']} | " + " | ".join(f"{v:g}" for v in x["values"]) + " | even at |",
        "|---|" + "---|" * (len(x["values"]) + 1),
    ]
    for value, row, even in zip(y["values"], found["sr_p"], found["even_at"], strict=True):
        lines.append(f"| {value:g} | " + " | ".join(map(_cell, row)) + f" | {_cell(even)} |")
    return "\n".join([*lines, "", "![map](balance.png)", ""])


def _cell(quantity: dict[str, Any]) -> str:
    if quantity["mean"] is None:
        return "-"
    low, high = quantity["ci95"]
    return f"{quantity['mean']:.2f}" + (f" [{low:.2f}, {high:.2f}]" if low is not None else "")


def png(found: dict[str, Any]) -> bytes:
    """Draw the map: one field per cell with its rate and interval, and a line through the even points."""
    from matplotlib.figure import Figure

    xs, ys = (np.array(found[name]["values"], float) for name in ("x", "y"))
    rates = np.array([[np.nan if c["mean"] is None else c["mean"] for c in row] for row in found["sr_p"]])
    figure = Figure(figsize=(1.6 + 1.15 * len(xs), 1.4 + 0.75 * len(ys)), layout="constrained")
    axis = figure.subplots()
    image = axis.imshow(rates, cmap="RdBu_r", vmin=0, vmax=1, origin="lower", aspect="auto")
    for (row, column), rate in np.ndenumerate(rates):
        ink = "white" if abs(rate - 0.5) > 0.3 else "black"
        text = _cell(found["sr_p"][row][column]).replace(" [", "\n[")
        axis.text(column, row - 0.2, text, ha="center", va="center", fontsize=7.5, color=ink)
    even = [(c["mean"], row) for row, c in enumerate(found["even_at"]) if c["mean"] is not None]
    if even:
        places = np.interp([at for at, _ in even], xs, np.arange(len(xs)))
        axis.plot(places, [row for _, row in even], "k.--", linewidth=1, label="even")
        axis.legend(loc="upper left", fontsize=7)
    axis.set_xticks(range(len(xs)), [f"{v:g}" for v in xs])
    axis.set_yticks(range(len(ys)), [f"{v:g}" for v in ys])
    axis.set_xlabel(found["x"]["field"])
    axis.set_ylabel(found["y"]["field"])
    figure.colorbar(image, label="equilibrium capture rate")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130, metadata={"Software": None})
    return buffer.getvalue()


def files(record: RunRecord) -> dict[str, bytes]:
    """Return the files of the map, by name."""
    found = balance_map(record)
    text = json.dumps(found, indent=1, allow_nan=False) + "\n"
    page = markdown(found, record.seeds, int(record.reached.min()))
    return {"balance.json": text.encode(), "balance.md": page.encode(), "balance.png": png(found)}

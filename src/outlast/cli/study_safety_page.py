"""The page of the safety study: tables, a Pareto plot and the decision, all from the data."""

import io
import json
from pathlib import Path
from typing import Any

from outlast.report.document import interval, number

ROLE = "pursuer"
COLUMNS = (
    ("capture", "capture_rate"),
    ("time (s)", "capture_time_s"),
    ("wall, per step", "wall_step_rate"),
    ("obstacle, per step", "obstacle_step_rate"),
    ("wall, per episode", "wall_episode_rate"),
    ("obstacle, per episode", "obstacle_episode_rate"),
    ("robot, per episode", "robot_episode_rate"),
    ("clearance (m)", "least_clearance_m"),
    ("intervention", "intervention_rate"),
    ("change (m/s)", "speed_change_mps"),
    ("change (rad/s)", "turn_change_radps"),
    ("infeasible", "infeasible_rate"),
)
TARGET = 0.85
SWEEPS = {"sweep": "with the hard check", "sweep-unchecked": "projection alone"}


def write_page(document: dict[str, Any], out: Path) -> Path:
    """Write the page, its figure and its data."""
    from outlast.run import disk

    out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(document, indent=1, allow_nan=False)
    disk.write_atomic(out / "safety.json", text.encode() + b"\n")
    disk.write_atomic(out / "safety.png", figure(document))
    disk.write_atomic(out / "safety.md", page(document).encode())
    disk.write_atomic(out / "safety-decision.md", decision(document).encode())
    return out / "safety.md"


def settings(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Name what is compared: every variant bare and shielded, by its data."""
    found = {}
    for name, row in document["rows"].items():
        modes = row["roles"][ROLE]
        kappa = modes["shielded"]["kappa_per_s"]
        behind = "filter after training" if name == "no filter" else f"{name}, shielded"
        found[name if name == "no filter" else f"{name}, bare"] = modes["bare"]
        found[f"{behind} (kappa {kappa:g}/s, gamma {modes['shielded']['gamma']:g})"] = modes["shielded"]
    return found


def cell(value: dict[str, Any]) -> str:
    """Write a quantity with its interval."""
    if value["mean"] is None:
        return "–"
    low, _ = value["ci95"]
    same = low is None or value["ci95"] == [value["mean"]] * 2
    return number(value["mean"]) if same else f"{number(value['mean'])} [{interval(value)}]"


def table(rows: dict[str, dict[str, Any]], columns: tuple[tuple[str, str], ...], head: str) -> list[str]:
    """Lay quantities out, one row each."""
    lines = [
        f"| {head} | " + " | ".join(title for title, _ in columns) + " |",
        "|---" * (len(columns) + 1) + "|",
    ]
    for name, found in rows.items():
        lines.append(f"| {name} | " + " | ".join(cell(found[key]) for _, key in columns) + " |")
    return lines


def page(document: dict[str, Any]) -> str:
    """Write the page."""
    found = settings(document)
    lines = [
        "# Safety: filters, safe policies and BarrierNet",
        "",
        f"{document['seeds']} seeds, {document['steps']:,} steps a seed, {document['games']} episodes a cell on the "
        "same first states. Made by `outlast study safety`. Mean over seeds [95 % interval over seeds].",
        "A pursuer among 2 obstacles in 10 x 10 m, evader speed 0.9. Contacts are the pursuer's; clearance is the mean "
        "over episodes of the least distance to a wall or an obstacle.",
        "",
        "## All opponents together",
        "",
        *table({name: modes["mean"] for name, modes in found.items()}, COLUMNS, "setting"),
        "",
        "Microseconds for one action, policy and filter, in a batch: "
        + "; ".join(f"{name} {modes['us_per_action']:.2f}" for name, modes in found.items())
        + ".",
        "",
        *_paired(document),
        "",
        "## Each opponent",
        "",
    ]
    for opponent in next(iter(found.values()))["opponents"]:
        rows = {name: modes["opponents"][opponent] for name, modes in found.items()}
        short = tuple(c for c in COLUMNS if c[1] in ("capture_rate", "capture_time_s", "least_clearance_m"))
        short += (("contact, per episode", "contact_episode_rate"), ("intervention", "intervention_rate"))
        lines += [f"### {opponent}", "", *table(rows, short, "setting"), ""]
    return "\n".join([*lines, *_sweep(document), "", *_ablation(document), ""])


def _paired(document: dict[str, Any]) -> list[str]:
    from outlast.evaluate.safety import compared

    rows = document["rows"]
    base = rows["no filter"]["roles"][ROLE]["bare"]
    differences = {
        ("filter after training" if name == "no filter" else name): compared(
            base, row["roles"][ROLE]["shielded"]
        )
        for name, row in rows.items()
    }
    columns = (
        ("capture", "capture_rate"),
        ("episodes with a contact", "contact_episode_rate"),
        ("clearance (m)", "least_clearance_m"),
    )
    return [
        "## Shielded, against no filter, paired by seed on the same games",
        "",
        "An interval that does not hold 0 is a difference at the 5 % level.",
        "",
        *table({name: found["mean"] for name, found in differences.items()}, columns, "setting"),
    ]


def points(document: dict[str, Any], name: str = "sweep") -> list[dict[str, Any]]:
    """List a sweep: rate, capture, contacts and interventions over the swept opponents."""
    return [{"kappa": p["kappa_per_s"], "gamma": p["gamma"], **p["mean"]} for p in document[name]["points"]]


def _sweep(document: dict[str, Any]) -> list[str]:
    lines = [
        "## The rate: the unfiltered pursuer behind filters from 0.1 to 20 per second",
        "",
        f"Against {', '.join(document['sweep']['opponents'])}. gamma = kappa x dt. Without the hard check, the "
        "projection and the tiers of infeasibility are alone.",
    ]
    keys = ("capture_rate", "contact_episode_rate", "intervention_rate", "infeasible_rate", "capture_time_s")
    for name, title in SWEEPS.items():
        lines += [
            "",
            f"### {title.capitalize()}",
            "",
            "| kappa (1/s) | gamma | capture | episodes with a contact | intervention | infeasible | time (s) |",
            "|---|---|---|---|---|---|---|",
        ]
        for point in points(document, name):
            cells = " | ".join(cell(point[key]) for key in keys)
            lines.append(f"| {point['kappa']:g} | {point['gamma']:g} | {cells} |")
    return [*lines, "", "![capture against contact](safety.png)"]


def _ablation(document: dict[str, Any]) -> list[str]:
    from outlast.evaluate.statistics import paired_difference

    rows = {name: found["opponents"]["flee_away"] for name, found in document["ablation"].items()}
    base = rows["repaired"]["capture_rate"]["per_seed"]
    lines = [
        "## What sank the original's BarrierNet",
        "",
        "The repaired one (projection behind the policy, as in the original), and each of its faults put back alone. "
        "Trained against flee-away only, as briefly as the original.",
        "",
        "| put back | capture of flee-away | difference, paired by seed | interventions |",
        "|---|---|---|---|",
    ]
    for name, found in rows.items():
        cost = paired_difference(found["capture_rate"]["per_seed"], base)
        difference = "" if name == "repaired" else cell(cost)
        lines.append(
            f"| {name} | {cell(found['capture_rate'])} | {difference} | {cell(found['intervention_rate'])} |"
        )
    return [*lines, "", f"Worst alone: {worst_fault(rows)}."]


def worst_fault(rows: dict[str, dict[str, Any]]) -> str:
    """Name the faults in the order of what each costs alone."""
    base = rows["repaired"]["capture_rate"]["mean"]
    alone = {
        n: base - r["capture_rate"]["mean"] for n, r in rows.items() if n not in ("repaired", "all of them")
    }
    ranked = sorted(alone.items(), key=lambda pair: -pair[1])
    return ", ".join(
        f"{name} (-{cost:.2f})" if cost >= 0 else f"{name} (+{-cost:.2f})" for name, cost in ranked
    )


def decision(document: dict[str, Any]) -> str:
    """Write what to use, by rules that look at the data only."""
    shielded = {name: modes for name, modes in settings(document).items() if modes["kappa_per_s"] is not None}
    touchless = {
        name: modes
        for name, modes in shielded.items()
        if all(c["contact_episode_rate"]["mean"] == 0 for c in modes["opponents"].values())
    }
    best = max(touchless or shielded, key=lambda name: shielded[name]["mean"]["capture_rate"]["mean"])
    bare = settings(document)["no filter"]["mean"]
    chosen = shielded[best]["mean"]
    free = [p for p in points(document) if p["contact_episode_rate"]["mean"] == 0]
    top = max((p["capture_rate"]["mean"] for p in points(document)), default=0.0)
    near = [p["kappa"] for p in free if p["capture_rate"]["mean"] >= top - 0.01]
    nets = {n: r["roles"][ROLE]["shielded"]["opponents"]["flee_away"] for n, r in document["rows"].items()}
    lines = [
        "# Decision: which safety to use",
        "",
        "Made by `outlast study safety` from [its data](safety.md); the rules are in the code.",
        "",
        f"- Without a contact in any of {document['games']} episodes x {document['seeds']} seeds against any opponent: "
        + (", ".join(touchless) or "none")
        + ".",
        f"- **Use: {best}.** It captures {cell(chosen['capture_rate'])} over all opponents; without a filter the "
        f"capture is {cell(bare['capture_rate'])} and {cell(bare['contact_episode_rate'])} of the episodes have a "
        "contact.",
        "- Rates without a contact and within 0.01 of the best capture of the sweep: "
        + (", ".join(f"{kappa:g}" for kappa in near) or "none")
        + " per second.",
    ]
    for name in ("barriernet", "barriernet with gradient"):
        rate = nets[name]["capture_rate"]
        met = "met" if rate["mean"] >= TARGET else "missed"
        lines.append(
            f"- {name}: capture of flee-away {cell(rate)}; the target of {TARGET} is {met} (the original: 0.03)."
        )
    rows = {name: found["opponents"]["flee_away"] for name, found in document["ablation"].items()}
    lines.append(
        f"- The original's faults together: {cell(rows['all of them']['capture_rate'])} against "
        f"{cell(rows['repaired']['capture_rate'])} repaired. Each alone: {worst_fault(rows)}."
    )
    return "\n".join([*lines, ""])


def figure(document: dict[str, Any]) -> bytes:
    """Draw capture against contact, and capture against intervention, along the rates and for every setting."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    drawn, axes = pyplot.subplots(1, 2, figsize=(11, 4.2), sharey=True)
    for axis, key in zip(axes, ("contact_episode_rate", "intervention_rate"), strict=True):
        for (sweep, title), colour in zip(SWEEPS.items(), ("#0072b2", "#d55e00"), strict=True):
            swept = points(document, sweep)
            x, y = [p[key]["mean"] for p in swept], [p["capture_rate"]["mean"] for p in swept]
            axis.plot(x, y, "o-", color=colour, ms=4, label=f"filter after training by kappa, {title}")
            for point, *place in zip(swept, x, y, strict=True):
                axis.annotate(
                    f"{point['kappa']:g}", place, fontsize=7, xytext=(3, 3), textcoords="offset points"
                )
        for name, modes in settings(document).items():
            label = name.split(" (")[0]
            axis.plot(
                modes["mean"][key]["mean"], modes["mean"]["capture_rate"]["mean"], "s", ms=5, label=label
            )
        axis.set_xlabel(key.replace("_", " "))
        axis.grid(color="0.9")
    axes[0].set_ylabel("capture rate")
    axes[1].legend(fontsize=6.5)
    drawn.tight_layout()
    buffer = io.BytesIO()
    drawn.savefig(buffer, dpi=130)
    pyplot.close(drawn)
    return buffer.getvalue()

"""Documents as tables for a terminal."""

import json
from typing import Any

from rich.console import Console
from rich.table import Table

from outlast.config import Section


def quantity(value: dict[str, Any]) -> str:
    """Write a reported quantity as mean and interval."""
    if value["mean"] is None:
        return "-"
    low, high = value["ci95"]
    interval = f" [{low:.3f}, {high:.3f}]" if low is not None else ""
    return f"{value['mean']:.3f}{interval}"


def show(document: dict[str, Any]) -> None:
    """Print an evaluation document."""
    if document["suite"] == "panel":
        show_panel(document)
        return
    from outlast.report.document import found

    table = Table(title=f"{document['run']}: {document['suite']}, {document['games']} games")
    table.add_column("measure")
    table.add_column("mean over seeds [95 % interval]")
    for path, value in found(document, ""):
        table.add_row(path[1:], quantity(value))
    Console().print(table)


def show_panel(document: dict[str, Any]) -> None:
    """Print the panel suite and the scripted table beside it."""
    console = Console()
    rates = document["capture_rate"]
    table = Table(
        title=f"{document['run']}: learned {document['learner']}, {document['games']} games a pairing"
    )
    for column in ("opponent", "capture rate", "sampled actions", "capture time (s)"):
        table.add_column(column)
    for name in rates:
        table.add_row(
            name,
            quantity(rates[name]),
            quantity(document["capture_rate_sampled"][name]),
            quantity(document["capture_time_s"][name]),
        )
    console.print(table)
    evaders = list(dict.fromkeys(row["evader"] for row in document["table"]))
    scripted = Table(title="scripted pursuer (row) against scripted evader (column): capture rate")
    scripted.add_column("")
    for name in evaders:
        scripted.add_column(name)
    for pursuer in dict.fromkeys(row["pursuer"] for row in document["table"]):
        cells = [f"{r['capture_rate']:.2f}" for r in document["table"] if r["pursuer"] == pursuer]
        scripted.add_row(pursuer, *cells)
    console.print(scripted)


SAFETY_COLUMNS = (
    ("capture rate", "capture_rate"),
    ("episodes with a contact", "contact_episode_rate"),
    ("clearance (m)", "least_clearance_m"),
    ("interventions", "intervention_rate"),
    ("infeasible", "infeasible_rate"),
)


def show_safety(documents: list[dict[str, Any]]) -> None:
    """Print safety documents, one after the other; later runs are compared with the first."""
    for document in documents:
        for role, modes in document["roles"].items():
            shield = modes["shielded"]
            table = Table(
                title=f"{document['run']}: {role}, {document['games']} games a pairing, shield of kappa "
                f"{shield['kappa_per_s']:g}/s (gamma {shield['gamma']:g})"
            )
            for column in ("opponent", "", *(title for title, _ in SAFETY_COLUMNS)):
                table.add_column(column)
            for mode in ("bare", "shielded"):
                rows = modes[mode]["opponents"] | {"mean": modes[mode]["mean"]}
                for opponent, found in rows.items():
                    table.add_row(opponent, mode, *(quantity(found[key]) for _, key in SAFETY_COLUMNS))
            Console().print(table)
    first, *others = documents
    for other in others:
        _show_difference(first, other)


def _show_difference(first: dict[str, Any], other: dict[str, Any]) -> None:
    from outlast.evaluate.safety import compared

    for role in first["roles"].keys() & other["roles"].keys():
        if first["seeds"] != other["seeds"]:
            Console().print(f"{other['run']}: other seeds than {first['run']}, so nothing to pair")
            continue
        found = compared(first["roles"][role]["shielded"], other["roles"][role]["shielded"])
        table = Table(title=f"{other['run']} minus {first['run']}, {role}, shielded, paired by seed")
        for column in ("opponent", "capture rate", "episodes with a contact", "clearance (m)"):
            table.add_column(column)
        for opponent, row in found.items():
            table.add_row(opponent, *(quantity(value) for value in row.values()))
        Console().print(table)


def show_preset(name: str, config: Section) -> None:
    """Print every field of a preset with its value and meaning."""
    table = Table(title=f"preset {name}")
    for column in ("field", "value", "meaning"):
        table.add_column(column)
    for path, value, about in _described(config):
        if path.endswith(".kappa_per_s") and "arena" in type(config).model_fields:
            value += f" (gamma {float(value) * config.arena.dt_s:g})"
        table.add_row(path, value, about)
    Console().print(table)


def _described(config: Section, prefix: str = "") -> list[tuple[str, str, str]]:
    rows = []
    for name, info in type(config).model_fields.items():
        value = getattr(config, name)
        if isinstance(value, Section):
            rows += _described(value, f"{prefix}{name}.")
        else:
            rows.append((f"{prefix}{name}", json.dumps(value), info.description or ""))
    return rows

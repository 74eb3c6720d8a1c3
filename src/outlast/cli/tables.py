"""Documents as tables for a terminal."""

import json
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.table import Table

from outlast.config import Section
from outlast.report.document import found
from outlast.report.read import is_quantity


def quantity(value: dict[str, Any]) -> str:
    """Write a reported quantity as mean and interval."""
    if value["mean"] is None:
        return "-"
    low, high = value["ci95"]
    interval = f" [{low:.3f}, {high:.3f}]" if low is not None else ""
    return f"{value['mean']:.3f}{interval}"


def show(document: dict[str, Any]) -> None:
    """Print an evaluation document."""
    layouts = {"panel": panel_tables, "survival": survival_tables, "economy": economy_tables}
    console = Console()
    for table in layouts.get(document["suite"], any_tables)(document):
        console.print(table)


def _titled(document: dict[str, Any], what: str) -> Table:
    learned = f", learned {document['learner']}" if document.get("learner") else ""
    played = f", {document['games']:,} {what}" if document.get("games") else ""
    return Table(title=f"{document['run']}: {document['suite']}{learned}{played}")


def _filled(table: Table, columns: Iterable[str], rows: Iterable[Iterable[str]]) -> Table:
    for column in columns:
        table.add_column(column)
    for row in rows:
        table.add_row(*row)
    return table


def panel_tables(document: dict[str, Any]) -> list[Table]:
    """Lay out how a duellist does against the scripted panel, and the panel against itself."""
    rates = document["capture_rate"]
    measures = ("capture_rate", "capture_rate_sampled", "capture_time_s")
    rows = [(name, *(quantity(document[measure][name]) for measure in measures)) for name in rates]
    columns = ("opponent", "capture rate", "sampled actions", "capture time (s)")
    learned = _filled(_titled(document, "games a pairing"), columns, rows)
    evaders = list(dict.fromkeys(row["evader"] for row in document["table"]))
    rows = [
        (name, *(f"{r['capture_rate']:.2f}" for r in document["table"] if r["pursuer"] == name))
        for name in dict.fromkeys(row["pursuer"] for row in document["table"])
    ]
    title = "scripted pursuer (row) against scripted evader (column): capture rate"
    return [learned, _filled(Table(title=title), ("", *evaders), rows)]


def survival_tables(document: dict[str, Any]) -> list[Table]:
    """Lay out how long residents live and what ends their lives, beside scripted ones."""
    cases = {"": "greedy", "_epsilon": f"epsilon {document['epsilon']:g}"}
    cases |= {"_new_layouts": "greedy, new layouts"}
    causes = list(document["death_causes"])
    rows = [
        (
            name,
            quantity(document["survival_steps" + suffix]),
            quantity(document["episode_return" + suffix]),
            *(quantity(document["death_causes" + suffix][cause]) for cause in causes),
        )
        for suffix, name in cases.items()
        if "survival_steps" + suffix in document
    ]
    rows += [
        (
            f"scripted: {name}",
            *(f"{found[m]:.3f}" for m in ("survival_steps", "episode_return")),
            *("" for _ in causes),
        )
        for name, found in document["residents"].items()
    ]
    columns = (
        "resident",
        f"survival, ticks of {document['limit']}",
        "return",
        *(f"ended: {c}" for c in causes),
    )
    return [_filled(_titled(document, f"lives a seed, layouts: {document['layouts']}"), columns, rows)]


def economy_tables(document: dict[str, Any]) -> list[Table]:
    """Lay out whether residents earn before they spend, beside a random one."""
    measures = document["random"]
    rows = [(name.replace("_", " "), quantity(document[name]), quantity(measures[name])) for name in measures]
    table = _filled(_titled(document, "lives a seed"), ("measure", "learned", "random"), rows)
    table.caption = f"worked first: {document['worked_first_means']}"
    return [table]


def any_tables(document: dict[str, Any]) -> list[Table]:
    """Lay out every quantity of a suite, then its lists of rows."""
    rows = [(path.strip("/").replace("/", ", "), quantity(value)) for path, value in found(document, "")]
    tables = [_filled(_titled(document, "games"), ("measure", "mean [95 % interval over seeds]"), rows)]
    for name, entries in document.items():
        entries = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
        columns = list(dict.fromkeys(column for entry in entries for column in entry))
        cells = [[_cell(entry.get(column)) for column in columns] for entry in entries]
        tables += [_filled(Table(title=name), columns, cells)] if entries else []
    return tables


def _cell(value: Any) -> str:
    if is_quantity(value):
        return quantity(value)
    return (
        f"{value:.3f}" if isinstance(value, float) else value if isinstance(value, str) else json.dumps(value)
    )


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
                for opponent, measured in rows.items():
                    table.add_row(opponent, mode, *(quantity(measured[key]) for _, key in SAFETY_COLUMNS))
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
        pairs = compared(first["roles"][role]["shielded"], other["roles"][role]["shielded"])
        table = Table(title=f"{other['run']} minus {first['run']}, {role}, shielded, paired by seed")
        for column in ("opponent", "capture rate", "episodes with a contact", "clearance (m)"):
            table.add_column(column)
        for opponent, row in pairs.items():
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


def show_pack(name: str, pack: Any) -> None:
    """Print what a pack says: what is seen, the needs, the places and the stages."""
    from outlast.worlds.town.observe import observation_fields

    seen, costs = observation_fields(pack), pack.costs.model_dump()
    sizes = [(field, str(size)) for field, size in seen.items()] + [("all", str(sum(seen.values())))]
    meters = [
        (m.name, f"{m.start:g}", f"{m.depletion:g}", *(f"{cost.get(m.name, 0):g}" for cost in costs.values()))
        for m in pack.meters
    ]
    places = [_place(p, pack.multi_tick) for p in pack.places if p.name in pack.deployed_names]
    stages = [
        (
            str(number),
            f"{s.depletion:g}",
            ", ".join(s.active) or "all",
            "sparse" if s.sparse else "every tick",
        )
        for number, s in enumerate(pack.stages, start=1)
    ]
    ends = ", ".join(f"{death.meter} {death.test} {death.value:g}" for death in pack.deaths)
    rules = f"{len(pack.cascades)} cascades, {len(pack.modulations)} modulations"
    console = Console()
    console.print(f"pack {name}: {pack.title}; {pack.size} x {pack.size} cells, {pack.max_steps} ticks")
    console.print(f"layout {pack.layout.policy}, reward {pack.reward.kind}, {rules}; a life ends at {ends}")
    for title, columns, rows in (
        (f"observation: {pack.observation.kind}", ("field", "numbers"), sizes),
        ("meters", ("meter", "start", "loss per tick", *(f"{action} costs" for action in costs)), meters),
        ("places", ("place", "ticks", "hours", "cost", "effects", "on completion"), places),
        ("stages", ("stage", "depletion", "active meters", "reward"), stages),
    ):
        console.print(_filled(Table(title=title), columns, rows))


def _place(place: Any, multi_tick: bool) -> tuple[str, ...]:
    use = place.multi_tick if multi_tick else place.instant
    hours = "-".join(map(str, place.hours)) if multi_tick else "always"
    parts = (use.cost, use.effects, getattr(use, "completion", {}))
    amounts = (", ".join(f"{meter} {value:g}" for meter, value in part.items()) for part in parts)
    return place.name, str(getattr(use, "ticks", 1)), hours, *amounts

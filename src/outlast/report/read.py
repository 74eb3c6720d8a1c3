"""Reading a run directory back: one record per run, with the seeds of all its groups side by side.

A run is one group directory, or holds `group-0`, `group-1`, ... The files are the interface: nothing here
imports the trainer.
"""

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from outlast.evaluate.statistics import INFINITE, summary
from outlast.run import journal
from outlast.run.errors import Damaged, Refused


@dataclass(frozen=True)
class RunRecord:
    """What a run has left on disk; `metrics` are [iterations, seeds, ...] with NaN where nothing happened.

    `lives` are the columns of the lives that ended, where the program keeps them; `seed` is one of them.
    """

    path: Path
    config: dict[str, Any]
    defaults: dict[str, Any]
    identities: dict[str, dict[str, Any]]
    seeds: list[int]
    steps: np.ndarray
    reached: np.ndarray
    metrics: dict[str, np.ndarray]
    events: list[dict[str, Any]]
    evaluations: dict[str, Any]
    lives: dict[str, np.ndarray]

    @property
    def name(self) -> str:
        """Return the name of the directory."""
        return self.path.resolve().name

    @property
    def program(self) -> str:
        """Return which program was run."""
        return str(self.config.get("program", ""))

    @property
    def role(self) -> str:
        """Return the role that learned in a one-sided duel, or nothing."""
        return str(self.config.get("learner", "")) if self.program == "duel" else ""


@dataclass(frozen=True)
class Group:
    """One directory whose seeds were trained together."""

    path: Path
    config: dict[str, Any]
    seeds: list[int]
    steps: np.ndarray
    metrics: dict[str, np.ndarray]
    events: list[dict[str, Any]]
    evaluations: dict[str, Any]
    lives: dict[str, np.ndarray]


def read_run(path: Path) -> RunRecord:
    """Read a run with the seeds of its groups merged."""
    groups = [_read_group(folder) for folder in group_folders(path)]
    first = groups[0]
    seeds = [seed for group in groups for seed in group.seeds]
    if len(set(seeds)) < len(seeds):
        raise Refused(f"{path}: its groups share a seed, so they are not one run")
    for group in groups[1:]:
        if _without_run(group.config) != _without_run(first.config):
            raise Refused(f"{group.path}: trained with another configuration than {first.path}")
    steps = np.unique(np.concatenate([group.steps for group in groups]))
    reached = np.concatenate([np.full(len(g.seeds), g.steps.max(initial=0)) for g in groups])
    order = np.argsort(seeds)
    return RunRecord(
        path=path,
        config=first.config,
        defaults=_optional(first.path / "defaults.json"),
        identities={group.path.name: _optional(group.path / "identity.json") for group in groups},
        seeds=sorted(seeds),
        steps=steps,
        reached=reached[order],
        metrics={name: values[:, order] for name, values in _side_by_side(groups, steps).items()},
        events=sorted((e for g in groups for e in g.events), key=lambda event: str(event.get("time", ""))),
        evaluations=_evaluations(path, groups, sorted(seeds)),
        lives={name: np.concatenate([g.lives[name] for g in groups]) for name in first.lives},
    )


def labels(records: list[RunRecord]) -> list[str]:
    """Name runs by their directories, or by their paths where that does not tell them apart."""
    names = [record.name for record in records]
    return names if len(set(names)) == len(names) else [str(record.path) for record in records]


def group_folders(path: Path) -> list[Path]:
    """List the group directories of a run, in order."""
    found = [(re.fullmatch(r"group-(\d{1,9})", inner.name), inner) for inner in _inside(path)]
    folders = [inner for match, inner in sorted((int(m[1]), inner) for m, inner in found if m)]
    if not folders and not (path / "config.json").is_file():
        raise Refused(f"{path} is not a run: it has neither config.json nor group-0")
    return folders or [path]


def _inside(path: Path) -> list[Path]:
    return [inner for inner in path.iterdir() if inner.is_dir()] if path.is_dir() else []


def _read_group(path: Path) -> Group:
    config, seeds = read_json(path / "config.json"), read_json(path / "seeds.json").get("seeds")
    if not isinstance(seeds, list) or not seeds or not all(isinstance(seed, int) for seed in seeds):
        raise Damaged(f"{path / 'seeds.json'}: names no seeds")
    lines = _lines(path / "metrics.jsonl")
    try:
        steps = np.array([line["steps"] for line in lines], dtype=np.int64)
        metrics = _table(_with_evaluations(lines, _lines(path / "evaluations.jsonl")), len(seeds))
        steps_at = {0: 0} | {line.get("iteration"): line["steps"] for line in lines}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Damaged(f"{path / 'metrics.jsonl'}: not the metrics of {len(seeds)} seeds ({error})") from None
    events = [
        {"group": path.name, "steps": steps_at.get(event.get("iteration"))} | event
        for event in _lines(path / "events.jsonl")
    ]
    return Group(path, config, seeds, steps, metrics, events, _read_suites(path), read_lives(path))


def read_lives(path: Path) -> dict[str, np.ndarray]:
    """Read the lives that ended in one group as columns; none where the program keeps no record of them."""
    records = journal.read(path / "episodes.jsonl") if (path / "episodes.jsonl").is_file() else iter(())
    first = next(records, {})
    columns = {name: [value] for name, value in first.items()}
    for record in records:
        for name, values in columns.items():
            values.append(record.get(name))
    return {name: np.array(values, float) for name, values in columns.items()}


def _with_evaluations(lines: list[dict[str, Any]], played: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Enter what was evaluated beside training into the lines of its iterations, as `beside/...`."""
    values = {line["iteration"]: {f"beside/{n}": v for n, v in line["values"].items()} for line in played}
    return [line | {"metrics": line["metrics"] | values.get(line.get("iteration"), {})} for line in lines]


def _table(lines: list[dict[str, Any]], n_seeds: int) -> dict[str, np.ndarray]:
    table: dict[str, np.ndarray] = {}
    for row, line in enumerate(lines):
        for name, values in line["metrics"].items():
            array = np.array(values, dtype=float)
            if name not in table:
                table[name] = np.full((len(lines), n_seeds, *array.shape[1:]), np.nan)
            table[name][row] = array
    return table


def _side_by_side(groups: list[Group], steps: np.ndarray) -> dict[str, np.ndarray]:
    shapes = {name: values.shape[2:] for group in groups for name, values in group.metrics.items()}
    merged = {}
    for name, shape in shapes.items():
        blocks = [np.full((len(steps), len(group.seeds), *shape), np.nan) for group in groups]
        for block, group in zip(blocks, groups, strict=True):
            block[np.searchsorted(steps, group.steps)] = group.metrics.get(name, np.nan)
        merged[name] = np.concatenate(blocks, axis=1)
    return merged


def _read_suites(path: Path) -> dict[str, Any]:
    return {file.stem: read_json(file) for file in sorted((path / "evaluations").glob("*.json"))}


def is_quantity(value: Any) -> bool:
    """Tell whether a value of a document is a reported quantity."""
    if not isinstance(value, dict) or not {"mean", "ci95", "per_seed"} <= value.keys():
        return False
    lists = (
        isinstance(value["ci95"], list) and len(value["ci95"]) == 2 and isinstance(value["per_seed"], list)
    )
    return lists and all(
        item is None or isinstance(item, int | float)
        for item in (value["mean"], *value["ci95"], *value["per_seed"])
    )


def _evaluations(path: Path, groups: list[Group], seeds: list[int]) -> dict[str, Any]:
    """Read every suite of a run, of the whole run where it was evaluated as one, with seeds in order."""
    whole = Group(path, {}, seeds, np.empty(0), {}, [], _read_suites(path), {})
    found: dict[str, Any] = {}
    for suite in dict.fromkeys(suite for group in (whole, *groups) for suite in group.evaluations):
        sources = [whole] if suite in whole.evaluations else groups
        parts = [source.evaluations.get(suite) for source in sources]
        orders = [
            (part or {}).get("seeds", source.seeds) for part, source in zip(parts, sources, strict=True)
        ]
        found[suite] = parts[0] if orders == [seeds] else _merged(parts, orders, seeds) | {"seeds": seeds}
    return found


def _merged(parts: list[Any], orders: list[Any], seeds: list[int], bounds: Any = INFINITE) -> Any:
    """Join what the groups say of one thing; what differs and is no quantity has no joint value: None."""

    def inner(key: Any) -> Any:
        limits = (0.0, 1.0) if "rate" in str(key) else bounds
        values = [None if p is None else p[key] if isinstance(p, list) else p.get(key) for p in parts]
        return _merged(values, orders, seeds, limits)

    present = [part for part in parts if part is not None]
    if present and all(is_quantity(part) for part in present):
        known = [zip(o, p["per_seed"], strict=False) for o, p in zip(orders, parts, strict=True) if p]
        value_of = dict(pair for pairs in known for pair in pairs)
        per_seed = [value_of.get(seed) for seed in seeds]
        return {key: inner(key) for key in present[0]} | summary(per_seed, bounds=bounds)
    if present and all(isinstance(part, dict) for part in present):
        return {key: inner(key) for key in dict.fromkeys(key for part in present for key in part)}
    if present and all(isinstance(part, list) and len(part) == len(present[0]) for part in present):
        return [inner(place) for place in range(len(present[0]))]
    return present[0] if present and all(part == present[0] for part in present) else None


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; numbers that strict JSON cannot hold become None."""
    try:
        document = json.loads(path.read_bytes(), parse_constant=lambda _: None, parse_float=_finite)
    except FileNotFoundError:
        raise Refused(f"{path.parent} is not a run: it has no {path.name}") from None
    except (ValueError, RecursionError, OSError) as error:
        raise Damaged(f"{path}: cannot be read: {error}") from None
    if not isinstance(document, dict):
        raise Damaged(f"{path}: not a JSON object")
    return document


def flat(value: Any, path: str = "") -> dict[str, Any]:
    """Write a nested document as dotted paths."""
    if not isinstance(value, dict) or (path and not value):
        return {path: value}
    items = [flat(inner, f"{path}.{key}" if path else str(key)) for key, inner in value.items()]
    return {key: inner for item in items for key, inner in item.items()}


def _finite(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None


def _optional(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}


def _lines(path: Path) -> list[dict[str, Any]]:
    return list(journal.read(path)) if path.is_file() else []


def _without_run(config: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key != "run"}

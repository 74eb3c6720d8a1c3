"""The history of a pair: what every evaluation inside training has shown, in the original's `history.json`.

All of it is a pure function of the lines of the journal that hold an evaluation, so a resumed run writes it again.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from outlast.programs.duel_config import DuelConfig
from outlast.selfplay.curriculum import n_stages, stage_table

Record = Mapping[str, Any]
PHASE = {"micro": "M", "phases": "S", "together": "T"}


def is_evaluation(record: Record) -> bool:
    """Tell whether a line of the journal holds an evaluation; every seed has one at the same time."""
    rates = record["metrics"].get("evaluation/capture_rate", [])
    return any(rate is not None for rate in rates)


def history(records: Sequence[Record], config: DuelConfig, seeds: list[int]) -> dict[str, Any]:
    """Return the document of one seed, or of several as a list under `seeds`."""
    each = [_of_seed(records, config, place) | {"seed": seed} for place, seed in enumerate(seeds)]
    return each[0] if len(each) == 1 else {"seeds": each}


def _of_seed(records: Sequence[Record], config: DuelConfig, place: int) -> dict[str, Any]:
    seen = [_picked(record, place) for record in records]
    adapts = config.selfplay.curriculum.kind != "none"
    entries, moves, stage, advances = [], [], 0, 0
    for number, one in enumerate(seen, start=1):
        entry = _entry(one, config, number)
        if adapts:
            entry |= _level(stage, config)
            advanced = one["contest/advances"] > advances
            moves.append(_move(entry, stage, config) | {"advanced": advanced})
            stage, advances = int(one["contest/stage"]), one["contest/advances"]
        entries.append(entry)
    last = seen[-1] if seen else {}
    kind = config.selfplay.schedule.kind
    document: dict[str, Any] = {"converged": bool(last.get("contest/converged")), "history": entries}
    if kind != "together":
        phases = "total_micro_phases" if kind == "micro" else "total_phases"
        document[phases] = int(last.get("contest/phase", 0))
    document["total_steps"] = last.get("steps", 0)
    if adapts:
        document |= {"curriculum_final_level": stage + 1, "curriculum_history": moves}
    return document


def _picked(record: Record, place: int) -> dict[str, Any]:
    """Return what one seed has in a line of the journal."""
    return {name: values[place] for name, values in record["metrics"].items()} | {"steps": record["steps"]}


def _entry(one: Record, config: DuelConfig, number: int) -> dict[str, Any]:
    """Write one evaluation; `role` is who has just learned, `phase` how many phases are over."""
    rules = config.selfplay.schedule
    learned = [role for role in ("pursuer", "evader") if one[f"{role}/learning_rate"]]
    count = number if rules.kind == "together" else int(one["contest/phase"])
    rate = one["evaluation/capture_rate"]
    entry = {
        "phase": f"{PHASE[rules.kind]}{count}",
        "role": "both" if len(learned) == 2 else (learned or ["none"])[0],
        "total_steps": one["steps"],
        "capture_rate": rate,
        "escape_rate": 1 - rate,
        "ne_gap": abs(2 * rate - 1),
        "mean_episode_length": one["evaluation/episode_steps"],
        "mean_capture_time": one["evaluation/capture_time_s"],
    }
    freeze = rules.alternate_freeze
    if freeze.enabled:
        reached = [value for since, value in freeze.schedule if one["steps"] >= since]
        frozen = ("pursuer", "evader", "none")[int(one["contest/frozen"])]
        entry |= {"frozen": frozen, "freeze_threshold": (reached or [freeze.threshold])[-1]}
    return entry


def _level(stage: int, config: DuelConfig) -> dict[str, Any]:
    """Describe the level at which an evaluation was played."""
    rules, base = config.selfplay.curriculum, config.arena.level
    low, high, few, most = stage_table(rules, base)[stage]
    count = f"{few}" if few == most else f"{few} to {most}"
    return {
        "curriculum_level": stage + 1,
        "curriculum_description": f"{low:g} to {high:g} m, {count} obstacles",
        "curriculum_at_max": stage + 1 == n_stages(rules, base),
    }


def _move(entry: Record, stage: int, config: DuelConfig) -> dict[str, Any]:
    names = ("total_steps", "capture_rate", "escape_rate", "ne_gap")
    largest = stage_table(config.selfplay.curriculum, config.arena.level)[stage][1]
    return {"level": stage + 1, "max_distance": largest} | {name: entry[name] for name in names}


def log_line(records: Sequence[Record], config: DuelConfig, seeds: list[int]) -> str:
    """Say in a line what the last evaluation has shown; several seeds stand beside each other."""
    last = records[-1]["metrics"]
    documents = history(records, config, seeds)
    entries = [one["history"][-1] for one in documents.get("seeds", [documents])]

    def beside(name: str, form: str) -> str:
        return " ".join(format(entry[name], form) for entry in entries)

    parts = [
        f"Eval at {records[-1]['steps']:,} steps",
        f"{'micro' if config.selfplay.schedule.kind == 'micro' else 'Phase'} {beside('phase', '')}",
        f"SR_P {beside('capture_rate', '.3f')}",
        f"SR_E {beside('escape_rate', '.3f')}",
        f"NE gap {beside('ne_gap', '.3f')}",
    ]
    if config.selfplay.league.capacity:
        sizes = zip(last["contest/pool_pursuer"], last["contest/pool_evader"], strict=True)
        parts.append(f"Pool {' '.join(f'{int(p)}+{int(e)}' for p, e in sizes)}")
    level = beside("curriculum_level", "") if config.selfplay.curriculum.kind != "none" else "fixed"
    return ", ".join([*parts, f"level {level}"])


def written(document: Mapping[str, Any], elapsed_seconds: float) -> bytes:
    """Encode the document; the seconds since the run began are all in it that is not exact."""
    whole = {**document, "elapsed_seconds": round(elapsed_seconds, 3)}
    return json.dumps(whole, indent=1, allow_nan=False).encode() + b"\n"

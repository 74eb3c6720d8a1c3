"""What a run in the town leaves beside its curves: how lives ended, where residents went and what came after what,
at the beginning and at the end of training; and what such a run is measured against.
"""

from typing import Any

import numpy as np

from outlast.evaluate.statistics import INFINITE, summary
from outlast.report.contest import judged
from outlast.report.curves import FINAL_SHARE, POSITIVE, RATE
from outlast.report.read import RunRecord, is_quantity

PERIODS = ("first", "last")
"""Tenths of training."""
LEAST_SURVIVAL = {"L0.5": 450, "L1": 450, "L2": 400, "L3": 350}
LEAST_OF_RULE = 0.9
LIMIT = "limit"
LAST_DEATHS = 12
Quantity = dict[str, Any]


def town_document(record: RunRecord) -> dict[str, Any]:
    """Summarise lives, places and needs over the seeds, in the first and the last tenth of training."""
    if not len(record.steps):
        return {}
    names = deployed(record)
    meters = [meter["name"] for meter in record.config["town"]["meters"]]
    return {
        "lives": certificates(record),
        "last_deaths": last_deaths(record),
        "visits": {name: per_100_ticks(record, f"visits/{name}") for name in names},
        "critical": {name: per_100_ticks(record, f"critical/{name}") for name in meters},
        "earned_first": {period: earned_first(record, period) for period in PERIODS},
        "transitions": {period: transitions(record, period) for period in PERIODS},
        "generalisation": generalisation(record),
    }


def deployed(record: RunRecord) -> list[str]:
    """Name the places that stand in the town, in the pack's order."""
    town = record.config["town"]
    return [p["name"] for p in town["places"] if not town["deployed"] or p["name"] in town["deployed"]]


def causes(record: RunRecord) -> list[str]:
    """Name what each number in the column `cause` stands for; -1, the last, is the limit."""
    return [*(death["meter"] for death in record.config["town"]["deaths"]), LIMIT]


def in_period(record: RunRecord, period: str) -> np.ndarray:
    """Tell which iterations of each seed belong to a tenth of what it has trained."""
    share = record.steps[:, None] / np.maximum(record.reached, 1)
    first = share <= max(FINAL_SHARE, float(share[0].max()))
    return first if period == "first" else share > 1 - FINAL_SHARE


def _share(top: np.ndarray, bottom: np.ndarray, bounds: tuple[float, float]) -> Quantity:
    ratio = np.divide(top, bottom, out=np.full_like(top, np.nan, dtype=float), where=bottom > 0)
    return summary(ratio, bounds=bounds)


def total(record: RunRecord, metric: str, period: str) -> np.ndarray:
    """Add a count up over a period; the result is [seeds, ...]."""
    values = np.nan_to_num(record.metrics.get(metric, np.zeros((len(record.steps), len(record.seeds)))))
    inside = in_period(record, period).reshape(values.shape[:2] + (1,) * (values.ndim - 2))
    return (values * inside).sum(axis=0)


def per_100_ticks(record: RunRecord, metric: str) -> dict[str, Quantity]:
    """Return how often something happens in 100 ticks lived, in each period."""
    per_iteration = np.diff(record.steps, prepend=0)[:, None]
    ticks = per_iteration * (1 - np.nan_to_num(record.metrics.get("tick/idle", 0.0)))
    found = {}
    for period in PERIODS:
        lived = (ticks * in_period(record, period)).sum(axis=0)
        found[period] = _share(100 * total(record, metric, period), lived, POSITIVE)
    return found


def transitions(record: RunRecord, period: str) -> dict[str, dict[str, Quantity]]:
    """Return, for each place, which share of its visits was followed by a visit to each other one."""
    if "transitions" not in record.metrics:
        return {}
    every = [place["name"] for place in record.config["town"]["places"]]
    ways = total(record, "transitions", period)
    leaving = ways.sum(axis=2)
    return {
        came: {
            went: _share(ways[:, every.index(came), every.index(went)], leaving[:, every.index(came)], RATE)
            for went in deployed(record)
        }
        for came in deployed(record)
    }


def earned_first(record: RunRecord, period: str) -> Quantity | None:
    """Return the share of visits to places with a price that came straight from a place where its means are earned.

    A stay counts once: going on at the same place is no new visit.
    """
    if "transitions" not in record.metrics:
        return None
    town, here = record.config["town"], deployed(record)
    uses = [place["multi_tick" if town["multi_tick"] else "instant"] or {} for place in town["places"]]
    earns, pays = np.zeros((2, len(uses)), bool)
    prices = {meter for use in uses for meter in use.get("cost", {})}
    for index, use in enumerate(uses):
        gains = use.get("effects", {}) | use.get("completion", {})
        stands = town["places"][index]["name"] in here
        pays[index] = stands and bool(use.get("cost"))
        earns[index] = stands and not pays[index] and any(gains.get(meter, 0) > 0 for meter in prices)
    ways = total(record, "transitions", period) * ~np.eye(len(uses), dtype=bool)
    to_paid = ways[:, :, pays].sum(axis=2)
    return _share(to_paid[:, earns].sum(axis=1), to_paid.sum(axis=1), RATE)


def certificates(record: RunRecord) -> list[dict[str, Any]]:
    """Summarise the lives that ended, by period and cause: share, length and what they were worth."""
    lives, rows = record.lives, []
    if not lives:
        return rows
    for period in PERIODS:
        inside = _lives_in(record, period)
        for number, cause in enumerate(causes(record)):
            ended = inside & (lives["cause"] == (-1 if cause == LIMIT else number))
            row: dict[str, Any] = {"period": period, "cause": cause, "lives": int(ended.sum())}
            row["share"] = _share(_counted(record, ended), _counted(record, inside), RATE)
            worth = {"survival": lives["survival"], "return": lives["extrinsic"] + lives["shaping"]}
            for name, values in (worth | {"intrinsic": lives["intrinsic"]}).items():
                sums = _counted(record, ended, np.nan_to_num(values))
                row[name] = _share(sums, _counted(record, ended), INFINITE)
            rows += [row] * bool(row["lives"])
    return rows


def _lives_in(record: RunRecord, period: str) -> np.ndarray:
    """Tell which lives ended in a period."""
    # A journal holds every iteration from the first on; a torn last line may leave lives without one.
    row = np.minimum(record.lives["iteration"].astype(int), len(record.steps)) - 1
    return in_period(record, period)[row, np.searchsorted(record.seeds, record.lives["seed"])]


def _counted(record: RunRecord, which: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Count lives by seed, or add up a weight of theirs."""
    seeds = np.searchsorted(record.seeds, record.lives["seed"][which])
    chosen = None if weights is None else weights[which]
    return np.bincount(seeds, weights=chosen, minlength=len(record.seeds)).astype(float)


def last_deaths(record: RunRecord) -> list[dict[str, Any]]:
    """List the last lives that ended before their limit."""
    if not record.lives:
        return []
    dead = np.flatnonzero(record.lives["cause"] >= 0)
    order = np.lexsort((record.lives["tick"][dead], record.lives["iteration"][dead]))
    names, lives = causes(record), record.lives
    return [
        {name: int(lives[name][place]) for name in ("seed", "iteration", "stage", "survival")}
        | {"cause": names[int(lives["cause"][place])]}
        | {"return": round(float(lives["extrinsic"][place] + lives["shaping"][place]), 2)}
        for place in dead[order][: -LAST_DEATHS - 1 : -1]
    ]


def generalisation(record: RunRecord) -> dict[str, Quantity] | None:
    """Return greedy survival before and after the layout was drawn anew, where that has happened."""
    found = {when: record.metrics.get(f"generalisation/{when}") for when in ("before", "after")}
    if any(values is None or not np.isfinite(values).any() for values in found.values()):
        return None
    return {when: summary(np.nanmax(values, axis=0), bounds=POSITIVE) for when, values in found.items()}


def survives(record: RunRecord) -> dict[str, Any] | None:
    """Judge greedy survival at full difficulty, or on one bed the return against the rule's; by the survival suite."""
    suite, pack = record.evaluations.get("survival"), record.config.get("pack")
    if not isinstance(suite, dict) or record.config.get("learner") in ("random", "wait", "rule"):
        return None
    if pack == "L0" and is_quantity(suite.get("episode_return")):
        least = LEAST_OF_RULE * suite["residents"]["rule"]["episode_return"]
        name, target = "return", f"mean >= {least:.0f}, {LEAST_OF_RULE} of the rule's"
        value = suite["episode_return"]
    elif pack in LEAST_SURVIVAL and is_quantity(suite.get("survival_steps")):
        least, name, value = LEAST_SURVIVAL[pack], "survival", suite["survival_steps"]
        target = f"mean >= {least} of {suite.get('limit')} ticks"
    else:
        return None
    return {
        "name": f"{name}, greedy, full difficulty",
        "target": target,
        "value": value,
        "pass": value["mean"] is not None and value["mean"] >= least,
        "per_seed_pass": [one is not None and one >= least for one in value["per_seed"]],
    }


def climbed(record: RunRecord) -> dict[str, Any] | None:
    """Judge whether the curriculum, where there is one, has reached its last stage."""
    stages = record.metrics.get("curriculum/stage")
    if stages is None or not len(stages):
        return None
    last, reached = len(record.config["town"]["stages"]), np.nanmax(stages, axis=0)
    return judged("curriculum", f"stage {last} reached in every seed", reached, reached >= last)


TOWN = (survives, climbed)

"""What a run of self-play is measured against: balance that lasts, play that is no worse than the scripted one,
levels gained, and exploitability where it was measured. Balance is no equilibrium; exploitability is.
"""

from typing import Any

import numpy as np

from outlast.evaluate.statistics import summary
from outlast.report.read import RunRecord, is_quantity

GAP, SWING, COLLAPSE, COLLAPSE_STEPS, EXPLOIT = 0.30, 0.30, 0.80, 200_000, 0.15
BALANCE_FROM, SWING_FROM = 1_000_000, 500_000
SEEDS_THAT_MAY_FAIL = 0.2


def judged(
    name: str, target: str, per_seed: np.ndarray, passes: np.ndarray, *, share: float = 1.0
) -> dict[str, Any]:
    """Write one line: it passes when at least `share` of the seeds do; a seed without a value does not."""
    per_seed, verdicts = np.asarray(per_seed, float), np.asarray(passes, bool) & np.isfinite(per_seed)
    passed = bool(verdicts.size) and float(verdicts.mean()) >= share - 1e-9
    line = {"name": name, "target": target, "value": summary(per_seed), "pass": passed}
    return line | {"per_seed_pass": verdicts.tolist()}


def rates(record: RunRecord) -> tuple[np.ndarray, np.ndarray]:
    """Return the steps and the capture rates [evaluations, seeds] of the evaluations inside training."""
    found = record.metrics.get("evaluation/capture_rate")
    if record.role != "both" or found is None:
        return np.zeros(0, int), np.zeros((0, len(record.seeds)))
    seen = np.isfinite(found).any(axis=1)
    return record.steps[seen], found[seen]


def balanced(record: RunRecord) -> dict[str, Any] | None:
    """Judge the median gap of all evaluations from 1M steps on."""
    steps, found = rates(record)
    late = steps >= BALANCE_FROM
    if not late.any():
        return None
    gaps = np.median(np.abs(2 * found[late] - 1), axis=0)
    target = f"median over evaluations from 1M steps on < {GAP:.2f} in 4 of 5 seeds"
    return judged("NE gap sustained", target, gaps, gaps < GAP, share=1 - SEEDS_THAT_MAY_FAIL)


def steady(record: RunRecord) -> dict[str, Any] | None:
    """Judge the largest change of the capture rate between two evaluations in a row."""
    steps, found = rates(record)
    found = found[steps >= SWING_FROM]
    if len(found) < 2:
        return None
    swings = np.abs(np.diff(found, axis=0)).max(axis=0)
    return judged("SR_P swing", f"largest after 0.5M steps < {SWING:.2f}", swings, swings < SWING)


def never_collapsed(record: RunRecord) -> dict[str, Any] | None:
    """Judge the longest stretch of steps, after 0.5M, in which every evaluation shows a gap above 0.80."""
    steps, found = rates(record)
    late = steps >= SWING_FROM
    if not late.any():
        return None
    steps, wide = steps[late], np.abs(2 * found[late] - 1) > COLLAPSE
    longest = np.zeros(wide.shape[1])
    for seed, column in enumerate(wide.T):
        begun = None
        for at, is_wide in zip(steps, column, strict=True):
            begun = (at if begun is None else begun) if is_wide else None
            longest[seed] = max(longest[seed], 0 if begun is None else at - begun)
    target = f"gap > {COLLAPSE:.2f} for less than {COLLAPSE_STEPS:,} steps"
    return judged("collapse", target, longest, longest < COLLAPSE_STEPS)


def rollbacks(record: RunRecord) -> dict[str, Any] | None:
    """Count rollbacks and restores: a stable run needs at most two."""
    counted = [record.metrics.get(f"contest/{name}") for name in ("rollbacks", "restores")]
    if record.role != "both" or counted[0] is None or not len(record.steps):
        return None
    total = sum(np.nanmax(values, axis=0) for values in counted if values is not None)
    return judged("rollbacks", "at most 2", total, total <= 2)


def levels(record: RunRecord) -> dict[str, Any] | None:
    """Count the levels gained, where there is a curriculum, and see that training starts moved with them."""
    kind = record.config.get("selfplay", {}).get("curriculum", {}).get("kind", "none")
    if record.role != "both" or kind == "none" or not len(record.steps):
        return None
    gained = np.nanmax(record.metrics["contest/advances"], axis=0)
    return judged("levels advanced", ">= 1", gained, gained >= 1)


def panel_kept(role: str, opponent: str, by: tuple[str, str]) -> Any:
    """Make the criterion that a role does at least as well against an opponent as the best scripted policy does."""

    def criterion(record: RunRecord) -> dict[str, Any] | None:
        document = record.evaluations.get("panel")
        quantity = document.get("capture_rate", {}).get(opponent) if isinstance(document, dict) else None
        if record.role != "both" or not is_quantity(quantity):
            return None
        table = {(row["pursuer"], row["evader"]): row["capture_rate"] for row in document["table"]}
        caught, scripted = np.array(quantity["per_seed"], float), table[by]
        own, other = (caught, scripted) if role == "pursuer" else (1 - caught, 1 - scripted)
        verb = "captures" if role == "pursuer" else "escapes from"
        name = by[0] if role == "pursuer" else by[1]
        return judged(f"{role} {verb} {opponent}", f">= {other:.2f}, as {name} does", own, own >= other)

    return criterion


def exploitable(record: RunRecord) -> dict[str, Any] | None:
    """Judge NashConv, in u = 2 SR_P - 1, where best responses were trained."""
    document = record.evaluations.get("exploit")
    quantity = document.get("nash_conv") if isinstance(document, dict) else None
    if record.role != "both" or not is_quantity(quantity):
        return None
    found = np.array(quantity["per_seed"], float)
    line = judged("exploitability (NashConv)", f"mean <= {EXPLOIT:.2f}", found, found <= EXPLOIT)
    return line | {"pass": quantity["mean"] is not None and quantity["mean"] <= EXPLOIT}


CONTEST = (
    balanced,
    steady,
    never_collapsed,
    rollbacks,
    levels,
    panel_kept("pursuer", "look_ahead", ("lead", "look_ahead")),
    panel_kept("evader", "lead", ("lead", "look_ahead")),
    exploitable,
)

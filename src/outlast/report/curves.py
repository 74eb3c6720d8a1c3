"""Learning curves: the journal's lines gathered into bins of steps, one curve per seed and their interval.

A rate is the captures of a bin over its episodes and an episode's mean is weighted by episodes, so that a
bin never is a mean of means.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from outlast.evaluate.statistics import INFINITE, mean_interval, summary
from outlast.report.read import RunRecord

MAX_BINS = 60
FINAL_SHARE = 0.1


class Quantity(NamedTuple):
    """Something that is followed through training, and how its lines are gathered."""

    name: str
    title: str
    unit: str
    metric: str
    gathered: Literal["share", "episode", "iteration"]
    of: str = "episodes"
    bounds: tuple[float, float] = INFINITE


RATE, POSITIVE = (0.0, 1.0), (0.0, math.inf)
QUANTITIES = (
    Quantity("capture_rate", "Capture rate", "share of episodes", "captures", "share", bounds=RATE),
    Quantity("episode_steps", "Episode length", "steps", "episode/steps", "episode", bounds=POSITIVE),
    Quantity("episode_return", "Return", "reward per episode", "episode/return", "episode"),
    Quantity("entropy", "Policy entropy", "nats", "learner/entropy", "iteration"),
    Quantity("kl", "Policy change (KL)", "nats per iteration", "learner/kl", "iteration"),
    Quantity(
        "explained_variance",
        "Explained variance",
        "share of variance",
        "learner/explained_variance",
        "iteration",
        bounds=(-math.inf, 1.0),
    ),
    Quantity(
        "value_loss", "Value loss", "squared return", "learner/value_loss", "iteration", bounds=POSITIVE
    ),
)
EVALUATED = (
    Quantity(
        "sr_p", "SR_P, evaluated", "share of games", "evaluation/capture_rate", "iteration", bounds=RATE
    ),
    Quantity("ne_gap", "NE gap", "|SR_P - SR_E|", "evaluation/ne_gap", "iteration", bounds=RATE),
    Quantity(
        "panel_pursuer",
        "Pursuer against panel",
        "share won",
        "evaluation/panel_pursuer",
        "iteration",
        bounds=RATE,
    ),
    Quantity(
        "panel_evader",
        "Evader against panel",
        "share won",
        "evaluation/panel_evader",
        "iteration",
        bounds=RATE,
    ),
    Quantity("spawn_max_m", "Level: largest start", "metres", "contest/spawn_max_m", "iteration"),
)
"""What self-play evaluates inside training."""

LIVES = (
    Quantity("survival_steps", "Survival", "ticks per life", "episode/steps", "episode", bounds=POSITIVE),
    Quantity("episode_return", "Return", "reward per life", "episode/return", "episode"),
    Quantity("greedy_steps", "Survival, greedy", "ticks per life", "beside/survival_steps", "iteration"),
    Quantity("extrinsic", "Extrinsic reward", "per life, unshaped", "episode/extrinsic", "episode"),
    Quantity("intrinsic", "Intrinsic reward", "per life, unweighted", "episode/intrinsic", "episode"),
)
CHOICE = (
    Quantity("stage", "Curriculum stage", "stage", "curriculum/stage", "iteration"),
    Quantity("epsilon", "Epsilon", "share of random actions", "explore/epsilon", "iteration", bounds=RATE),
    Quantity("curiosity", "Weight of intrinsic reward", "weight", "curiosity/weight", "iteration"),
    Quantity("choice_entropy", "Entropy of choice", "share of the most", "episode/entropy", "episode"),
    Quantity("refused", "Refused uses", "per life", "refused", "share", bounds=POSITIVE),
)
VALUES = (
    Quantity("q_mean", "Q, mean", "reward per tick", "learner/q_mean", "iteration"),
    Quantity("q_std", "Q, spread in a batch", "reward per tick", "learner/q_std", "iteration"),
    Quantity("td_error", "TD error", "reward per tick", "learner/td_error", "iteration", bounds=POSITIVE),
)
"""What is followed in the town: how lives go, how residents choose, what they believe."""


@dataclass(frozen=True)
class Curve:
    """One quantity against steps: `per_seed` is [seeds, bins], NaN where nothing happened."""

    steps: np.ndarray
    per_seed: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def filled_only(self) -> "Curve":
        """Leave out the bins in which no seed has a value, so that rare measures are still lines."""
        kept = np.isfinite(self.per_seed).any(axis=0)
        return Curve(
            self.steps[kept], self.per_seed[:, kept], self.mean[kept], self.low[kept], self.high[kept]
        )


def quantities(record: RunRecord) -> list[Quantity]:
    """List what this run has followed, the capture of each opponent included."""
    if record.program == "survive":
        return [quantity for row in town_rows(record) for quantity in row]
    found = [
        q
        for q in (*QUANTITIES, *EVALUATED)
        if q.metric in record.metrics and (q.gathered != "share" or q.of in record.metrics)
        if q.metric != "contest/spawn_max_m" or np.ptp(record.metrics[q.metric]) > 0
    ]
    return found + [opponent_quantity(name) for name in opponents(record)]


def town_rows(record: RunRecord) -> list[list[Quantity]]:
    """List what a run in the town has followed, theme by theme; what never moved from zero says nothing."""
    causes = [name.removeprefix("deaths/") for name in record.metrics if name.startswith("deaths/")]
    deaths = [death_quantity(cause) for cause in sorted(causes, key=lambda c: (c != "limit", c))]
    rows = ([*LIVES[:2], *deaths], LIVES[2:], CHOICE, VALUES)
    unshaped = not np.nansum(np.abs(record.metrics.get("episode/shaping", 0.0)))

    def said(quantity: Quantity) -> bool:
        if quantity.name == "extrinsic" and unshaped:
            return False
        return bool(np.nansum(np.abs(record.metrics.get(quantity.metric, 0.0))))

    return [[quantity for quantity in row if said(quantity)] for row in rows]


def death_quantity(cause: str) -> Quantity:
    """Return the share of lives that one cause has ended."""
    title = "Survived" if cause == "limit" else f"Died: {cause}"
    return Quantity(f"deaths/{cause}", title, "share of lives", f"deaths/{cause}", "share", bounds=RATE)


def opponents(record: RunRecord) -> list[str]:
    """Name the opponents that the journal counts."""
    names = [name.removeprefix("captures/") for name in record.metrics if name.startswith("captures/")]
    return [name for name in names if f"episodes/{name}" in record.metrics]


def opponent_quantity(name: str) -> Quantity:
    """Return the capture rate in the episodes against, or of, one opponent."""
    title, metric = f"Capture rate, {name}", f"captures/{name}"
    return Quantity(
        f"capture_rate/{name}", title, "share of episodes", metric, "share", f"episodes/{name}", RATE
    )


def bin_edges(records: list[RunRecord]) -> np.ndarray:
    """Cut the steps of all runs into at most 60 equal bins, each of whole iterations of the coarsest run."""
    end = max((int(record.steps[-1]) for record in records if len(record.steps)), default=0)
    widths = [int(np.median(np.diff(record.steps, prepend=0))) for record in records if len(record.steps)]
    coarsest = max(widths, default=1) or 1
    width = coarsest * max(1, math.ceil(end / (MAX_BINS * coarsest)))
    return np.arange(0, end + width, width)


def curve(record: RunRecord, quantity: Quantity, edges: np.ndarray) -> Curve:
    """Gather one quantity; a line at step s belongs to the bin with left < s <= right."""
    top, bottom = _parts(record, quantity)
    bins = np.searchsorted(edges, record.steps, side="left") - 1
    sums = np.zeros((2, len(edges) - 1, len(record.seeds)))
    np.add.at(sums[0], bins, top)
    np.add.at(sums[1], bins, bottom)
    per_seed = _ratio(*sums).T
    mean, low, high = mean_interval(per_seed)
    return Curve((edges[1:] + edges[:-1]) / 2, per_seed, mean, *np.clip([low, high], *quantity.bounds))


def final(record: RunRecord, quantity: Quantity) -> dict[str, Any]:
    """Summarise one quantity over the last tenth of what each seed has trained."""
    top, bottom = _parts(record, quantity)
    late = record.steps[:, None] > (1 - FINAL_SHARE) * record.reached
    return summary(_ratio((top * late).sum(axis=0), (bottom * late).sum(axis=0)), bounds=quantity.bounds)


def _parts(record: RunRecord, quantity: Quantity) -> tuple[np.ndarray, np.ndarray]:
    """Return what is summed above and below the line, per iteration and seed."""
    values = record.metrics[quantity.metric]
    weight = np.ones_like(values)
    if quantity.gathered == "share":
        return np.nan_to_num(values), np.nan_to_num(record.metrics[quantity.of])
    if quantity.gathered == "episode":
        weight = np.nan_to_num(record.metrics.get(quantity.of, weight))
    weight = np.where(np.isfinite(values), weight, 0.0)
    return np.nan_to_num(values) * weight, weight


def _ratio(top: np.ndarray, bottom: np.ndarray) -> np.ndarray:
    return np.divide(top, bottom, out=np.full_like(top, np.nan), where=bottom > 0)

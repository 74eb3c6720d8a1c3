"""Evaluation: fixed first states, scripted panel, intervals over seeds. It never touches a run's state."""

from collections.abc import Callable
from typing import Any

from outlast.evaluate import crossplay, duel_suites, exploit, panel, safety, town_suites

Suite = Callable[..., dict[str, Any]]

SUITES: dict[str, dict[str, Suite]] = {
    "duel": {"panel": panel.panel, "head-to-head": duel_suites.head_to_head, "safety": safety.safety},
    "survive": {"survival": town_suites.survival, "economy": town_suites.economy},
}
"""What is measured on the newest light policies."""
STATE_SUITES: dict[str, dict[str, Suite]] = {
    "duel": {"cross-play": crossplay.cross_play, "exploit": exploit.exploit}
}
"""What needs the full states of the newest checkpoint: pools, critics, optimisers."""
TRAINING_SUITES = frozenset({"exploit"})
"""Suites that train, and so have a budget of steps."""
OPPONENT_SUITES = frozenset({"safety"})
"""Suites that can also meet the learned opponent of another run."""
BESIDE: dict[str, Suite] = {"duel": panel.beside, "survive": town_suites.beside}

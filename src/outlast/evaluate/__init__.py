"""Evaluation: fixed first states, scripted panel, intervals over seeds. It never touches a run's state."""

from collections.abc import Callable
from typing import Any

from outlast.evaluate import panel

SUITES: dict[str, dict[str, Callable[..., dict[str, Any]]]] = {"duel": {"panel": panel.panel}}
BESIDE: dict[str, Callable[..., dict[str, Any]]] = {"duel": panel.beside}

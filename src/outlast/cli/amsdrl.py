"""`outlast amsdrl`: the original's command line, run by our trainer. It says first what is not as in the original."""

import argparse
from collections.abc import Mapping
from typing import Any

from outlast.cli.flags import FLAGS, LEAGUE, Line, decided
from outlast.config import Section, override, validate

BASE = "ra1"
"""The preset that lends what the original leaves open, or does not say in its flags: collection and learner."""

ORIGINAL = (
    ("collect.worlds", 4, "many games at once keep the processor busy (--n_envs)"),
    ("collect.horizon", 512, "shorter pieces of more games (--n_steps)"),
    ("ppo.network.hidden", (256, 256), "a smaller network costs less on a processor"),
    ("ppo.learning_rate", 3e-4, "fits the smaller network (--learning_rate)"),
    ("ppo.discount", 0.99, "a discount of 0.99 looks 5 s ahead in a game of 30 s or more"),
    ("ppo.epochs", 10, "fewer passes over fresher games (--n_epochs)"),
    ("ppo.entropy_weight", 0.01, "less noise at the end (--ent_coef)"),
    ("arena.timeout", "truncates", "running out of time is the end of the game, so nothing is added to it"),
    ("arena.time_to_go", False, "without the time that is left the game cannot be predicted"),
    ("selfplay.evaluation.games", 100, "100 games cannot tell 0.5 from 0.6 (--eval_episodes)"),
    ("selfplay.evaluation.stop_when_converged", True, "balance may be luck, so training goes on"),
    ("selfplay.league.history", 0.08, "half was meant; its weight sync overwrote the past"),
)
"""Field, its value in the original, and why ours differs; said only where it does."""


def config_of(given: Mapping[str, Any], overrides: Mapping[str, Any]) -> Section:
    """Build the config that a command line of the original asks for."""
    from outlast import programs

    base = programs.from_preset(BASE, [])
    whole = base.model_dump(mode="json")
    document = {name: whole[name] for name in ("program", "learner", "collect", "ppo")}
    for path, value in (*decided(given, base), *overrides.items()):
        document = override(document, path, value, model=type(base))
    return validate(programs.config_model(document, source="--set"), document, source="amsdrl")


def given_flags(parsed: argparse.Namespace) -> dict[str, Any]:
    """Return the flags of the original that stand on the command line."""
    return {name: value for name, value in vars(parsed).items() if name in FLAGS}


def differences(given: Mapping[str, Any], config: Any) -> list[str]:
    """Say in a line each what is not as in the original, and why."""
    document, line = config.model_dump(), Line(given, config)
    lines = []
    for path, theirs, why in ORIGINAL:
        value: Any = document
        for name in path.split("."):
            value = value[name]
        if value != theirs and not (path.startswith(LEAGUE) and not line["opponent_pool_size"]):
            lines.append(f"{path} = {value} (original: {theirs}): {why}")
    shield = config.safety.pursuer
    if shield.acts:
        gamma = shield.kappa_per_s * config.arena.dt_s
        lines += [
            f"safety.pursuer.kappa_per_s = {shield.kappa_per_s:g} is --gamma {gamma:g} over the time step",
            "the filter keeps the robots' centres apart (original: points ahead, which forbade a head-on capture), "
            "knows the size of the arena (original: 20 m) and checks the exact next position",
        ]
    if config.arena.observed_obstacles and not line.has("n_obstacle_obs"):
        seen = config.arena.observed_obstacles
        lines.append(f"arena.observed_obstacles = {seen} (original: 0, blind): --n_obstacle_obs decides")
    if not line["full_obs"]:
        lines.append("flat observations (original: a dictionary with wrong wall ranges without --full_obs)")
    if line.adapts:
        lines.append(
            "the curriculum reaches the training games (original: with micro-phases evaluation only)"
        )
    if not line["max_total_steps"]:
        lines.append(
            f"run.steps = {config.run.steps:,}, what --max_phases comes to; stop at any time, resume goes on"
        )
    return lines

"""The training programs, and how a preset or a saved document becomes one."""

import json
from collections.abc import Mapping
from typing import Any

from outlast.config import BadInput, Section, override, parse_override, read_preset, validate
from outlast.programs.balance import Balance, BalanceConfig
from outlast.programs.duel import Duel
from outlast.programs.duel_config import DuelConfig
from outlast.programs.survive import Survive
from outlast.programs.survive_config import SurviveConfig

PROGRAMS: dict[str, tuple[type[Section], type]] = {
    "duel": (DuelConfig, Duel),
    "balance": (BalanceConfig, Balance),
    "survive": (SurviveConfig, Survive),
}


def config_model(document: Mapping[str, Any], *, source: str) -> type[Section]:
    """Return the config model of the program that a document names."""
    name = document.get("program", "duel")
    if not isinstance(name, str) or name not in PROGRAMS:
        raise BadInput(f"{source}: program = {name!r} is unknown (allowed: {', '.join(PROGRAMS)})")
    return PROGRAMS[name][0]


def from_preset(preset: str, overrides: list[str]) -> Section:
    """Build the config of a preset with `path.to.field=value` overrides."""
    document = read_preset(preset)
    model = config_model(document, source=f"preset {preset}")
    for text in overrides:
        path, value = parse_override(text)
        document = override(document, path, value, model=model)
    return validate(config_model(document, source="--set"), document, source=f"preset {preset}")


def from_json(text: str, *, source: str) -> Section:
    """Rebuild the config that a run was started with."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{source}: not valid JSON: {error}") from None
    if not isinstance(document, dict):
        raise BadInput(f"{source}: not a configuration")
    return validate(config_model(document, source=source), document, source=source)


def program_of(config: Section) -> Any:
    """Return the program of a config."""
    return PROGRAMS[config.program][1](config)

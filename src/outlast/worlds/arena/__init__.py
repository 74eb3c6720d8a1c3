"""The arena: a pursuer and an evader, unicycle robots among round obstacles."""

from outlast.worlds.arena.config import ArenaConfig, LevelConfig
from outlast.worlds.arena.state import ArenaLevel, ArenaState, Commands, Outcome, Role, level_of
from outlast.worlds.arena.world import Arena

__all__ = [
    "Arena",
    "ArenaConfig",
    "ArenaLevel",
    "ArenaState",
    "Commands",
    "LevelConfig",
    "Outcome",
    "Role",
    "level_of",
]

"""The town: a resident keeps its meters above zero by using the places of a small grid.

A pack (TOML) says what the town is; `Town(load_pack("L1"))` is the world.
"""

from outlast.worlds.town.pack import Pack, load_pack, pack_fingerprint, pack_names
from outlast.worlds.town.scene import scene
from outlast.worlds.town.state import TownLevel, TownState, TownStep
from outlast.worlds.town.world import Town

__all__ = [
    "Pack",
    "Town",
    "TownLevel",
    "TownState",
    "TownStep",
    "load_pack",
    "pack_fingerprint",
    "pack_names",
    "scene",
]

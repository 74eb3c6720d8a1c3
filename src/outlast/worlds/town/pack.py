"""A pack: one town as data, read from TOML and checked as a whole.

First in the flow: a file becomes a `Pack` here, `tables` compiles it to arrays, everything else reads the arrays.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from outlast.config import BadInput, Section, did_you_mean, read_toml, validate
from outlast.worlds.town.sections import (
    MAX_SIZE,
    Cascade,
    Costs,
    Death,
    Layout,
    Meter,
    Modulation,
    Observation,
    Place,
    Reward,
    Stage,
)

NAMED_TABLES = ("meters", "places")
MAX_METERS, MAX_PLACES, MAX_RULES = 32, 128, 256


class Pack(Section):
    """One town. Meters and places keep the order of the file: it is the order of every array."""

    title: str = Field("", description="what lists show beside the name")
    size: int = Field(ge=2, le=MAX_SIZE, description="columns and rows of the grid")
    multi_tick: bool = Field(False, description="places take several ticks and keep opening hours")
    max_steps: int = Field(500, ge=1, le=1_000_000, description="ticks after which a life is cut (truncated)")
    lifespan: int = Field(
        1000, ge=1, le=1_000_000, description="age of retirement (truncates) and of the age input"
    )
    meters: list[Meter] = Field(description="needs and resources, in the order of every array")
    modulations: list[Modulation] = Field([], description="drains that a low meter makes worse")
    cascades: list[Cascade] = Field([], description="drains below a threshold, applied in this order")
    cascade_scale: float = Field(1.0, ge=0.0, le=10.0, description="multiplies every cascade strength")
    deaths: list[Death] = Field(description="conditions of which any one ends the life")
    costs: Costs = Costs()
    places: list[Place] = Field(description="what can be used, in the order of every array")
    deployed: list[str] = Field([], description="places that stand in the town; empty for all")
    layout: Layout = Layout()
    observation: Observation = Observation()
    reward: Reward = Reward()
    stages: list[Stage] = Field([Stage()], description="steps of the curriculum, the easiest first")

    @model_validator(mode="before")
    @classmethod
    def _tables_to_lists(cls, document: Any) -> Any:
        # A file names each meter and place as a table; lists keep the order through a sorted JSON dump.
        if not isinstance(document, dict):
            return document
        named = {key: document[key] for key in NAMED_TABLES if isinstance(document.get(key), dict)}
        if any(not isinstance(body, dict) for table in named.values() for body in table.values()):
            raise ValueError(f"{' and '.join(named)} must be tables, as in [meters.energy] and [places.Bed]")
        lists = {
            key: [{"name": name, **body} for name, body in table.items()] for key, table in named.items()
        }
        return {**document, **lists}

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        _check_counts(self)
        _check_names(self)
        _check_places(self)
        _check_costs(self)
        _check_cells(self)
        _check_stages(self)
        _check_births(self)
        return self

    @property
    def meter_names(self) -> tuple[str, ...]:
        """List the meters in array order."""
        return tuple(meter.name for meter in self.meters)

    @property
    def place_names(self) -> tuple[str, ...]:
        """List the places, deployed or not, in array order."""
        return tuple(place.name for place in self.places)

    @property
    def deployed_names(self) -> tuple[str, ...]:
        """List the places that stand in the town, in array order."""
        return tuple(name for name in self.place_names if not self.deployed or name in self.deployed)


def pack_names() -> list[str]:
    """Name every pack that ships with the package."""
    files = resources.files("outlast.worlds.town").joinpath("packs").iterdir()
    return sorted(file.name[:-5] for file in files if file.name.endswith(".toml"))


def load_pack(name_or_path: str | Path, changes: Mapping[str, Any] | None = None) -> Pack:
    """Read a shipped pack by name, or a TOML file by path; `changes` overwrite what it says."""
    source = str(name_or_path)
    if source in pack_names():
        return build_pack(_merged(_shipped(source), changes or {}), source=f"pack {source}")
    if Path(source).suffix != ".toml":
        near = did_you_mean(source, pack_names())
        raise BadInput(
            f"unknown pack {source!r}{near}; give one of {', '.join(pack_names())} or a .toml file"
        )
    try:
        text = Path(source).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{source}: cannot be read: {error}") from None
    return build_pack(_merged(read_toml(text, source=source), changes or {}), source=source)


def build_pack(document: Mapping[str, Any], *, source: str) -> Pack:
    """Validate a plain document; `base = "L1"` starts from a shipped pack and overwrites what is given."""
    document = _with_base(document, source)
    try:
        return validate(Pack, document, source=source)
    except BadInput as error:
        raise BadInput(_with_names(str(error), document)) from None


def pack_fingerprint(pack: Pack) -> str:
    """Hash everything a pack says, order of meters and places included."""
    return hashlib.sha256(pack.model_dump_json().encode()).hexdigest()


def _shipped(name: str) -> dict[str, Any]:
    file = resources.files("outlast.worlds.town").joinpath("packs", f"{name}.toml")
    return read_toml(file.read_text(encoding="utf-8"), source=f"pack {name}")


def _with_base(document: Mapping[str, Any], source: str) -> Mapping[str, Any]:
    if "base" not in document:
        return document
    rest = {key: value for key, value in document.items() if key != "base"}
    base = document["base"]
    # Only shipped packs can be a base: they contain no cycle and no path.
    if base not in pack_names():
        near = did_you_mean(str(base), pack_names())
        raise BadInput(f"{source}: base = {base!r}: no such pack{near} (allowed: {', '.join(pack_names())})")
    return _merged(_with_base(_shipped(base), source), rest)


def _merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(old)
    for key, value in new.items():
        before = old.get(key)
        nested = isinstance(before, Mapping) and isinstance(value, Mapping)
        result[key] = _merged(before, value) if nested else value
    return result


def _with_names(message: str, document: Mapping[str, Any]) -> str:
    def name(match: re.Match[str]) -> str:
        table = document.get(match[1])
        known = list(table) if isinstance(table, Mapping) else []
        index = int(match[2])
        return f"{match[1]}.{known[index]}" if index < len(known) else match[0]

    return re.sub(rf"\b({'|'.join(NAMED_TABLES)})\.(\d+)\b", name, message, count=1)


def _known(where: str, names: Iterable[str], known: tuple[str, ...], what: str) -> None:
    for name in names:
        if name not in known:
            hint = did_you_mean(name, list(known))
            raise ValueError(f"{where}: no {what} {name!r}{hint} (allowed: {', '.join(known)})")


def _check_counts(pack: Pack) -> None:
    bounds = {
        "meters": (1, MAX_METERS),
        "places": (1, MAX_PLACES),
        "deaths": (1, MAX_METERS),
        "stages": (1, 100),
    }
    bounds |= {"cascades": (0, MAX_RULES), "modulations": (0, MAX_RULES)}
    for field, (least, most) in bounds.items():
        count = len(getattr(pack, field))
        if not least <= count <= most:
            raise ValueError(f"{field}: {count} given (allowed: {least} to {most})")
    for field in ("meter_names", "place_names", "deployed"):
        names = getattr(pack, field)
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(
                f"{field.removesuffix('_names')}: {twice[0]!r} is given twice (names must differ)"
            )


def _check_names(pack: Pack) -> None:
    meters = pack.meter_names
    for kind in ("modulations", "cascades"):
        for index, rule in enumerate(getattr(pack, kind)):
            _known(f"{kind}.{index}.source", [rule.source], meters, "meter")
            _known(f"{kind}.{index}.target", [rule.target], meters, "meter")
    for index, death in enumerate(pack.deaths):
        _known(f"deaths.{index}.meter", [death.meter], meters, "meter")
    for place in pack.places:
        for form in ("instant", "multi_tick"):
            for part, amounts in getattr(place, form) or ():
                if part != "ticks":
                    _known(f"places.{place.name}.{form}.{part}", amounts, meters, "meter")
    _known("deployed", pack.deployed, pack.place_names, "place")
    for part, amounts in pack.costs:
        _known(f"costs.{part}", amounts, meters, "meter")
    _check_reward_names(pack)


def _check_reward_names(pack: Pack) -> None:
    reward, meters = pack.reward, pack.meter_names
    if reward.kind in ("interoceptive", "minimum", "baseline"):
        _known("reward.meters", reward.meters, meters, "meter")
        if not reward.meters:
            raise ValueError(f'reward.meters: none given, but kind = "{reward.kind}" needs one')
    _known("reward.weights", reward.weights, meters, "meter")
    _known("reward.modifiers", (modifier.meter for modifier in reward.modifiers), meters, "meter")
    for index, term in enumerate(reward.shaping):
        _known(f"reward.shaping.{index}.meters", term.meters, meters, "meter")
        if term.place:
            _known(f"reward.shaping.{index}.place", [term.place], pack.deployed_names, "deployed place")
    if reward.retirement_bonus and pack.lifespan > pack.max_steps:
        raise ValueError(
            f"reward.retirement_bonus does nothing: lifespan = {pack.lifespan} lies beyond "
            f"max_steps = {pack.max_steps}"
        )


def _check_places(pack: Pack) -> None:
    form = "multi_tick" if pack.multi_tick else "instant"
    for place in pack.places:
        if place.name in pack.deployed_names and getattr(place, form) is None:
            mode = "true" if pack.multi_tick else "false"
            raise ValueError(f"places.{place.name}: needs a table {form!r}, because multi_tick = {mode}")


def _check_costs(pack: Pack) -> None:
    for meter, cost in pack.costs.wait.items():
        move = pack.costs.move.get(meter, 0.0)
        if cost >= move and cost > 0.0:
            raise ValueError(f"costs.wait.{meter} = {cost:g}: must be below costs.move.{meter} = {move:g}")


def _check_cells(pack: Pack) -> None:
    n_cells, n_places = pack.size**2, len(pack.deployed_names)
    if n_places >= n_cells:
        raise ValueError(
            f"size = {pack.size}: {n_places} places leave no free cell on {n_cells} (allowed: at most {n_cells - 1})"
        )
    if pack.layout.policy != "fixed":
        return
    cells = pack.layout.cells
    _known("layout.cells", cells, pack.deployed_names, "deployed place")
    owner: dict[tuple[int, int], str] = {}
    for name in pack.deployed_names:
        if name not in cells:
            raise ValueError(f'layout.cells: {name!r} has no cell, and policy = "fixed" needs one')
        column, row = cells[name]
        if not (0 <= column < pack.size and 0 <= row < pack.size):
            raise ValueError(f"layout.cells.{name} = [{column}, {row}]: outside 0 to {pack.size - 1}")
        if (column, row) in owner:
            raise ValueError(f"layout.cells.{name} = [{column}, {row}]: taken by {owner[column, row]!r}")
        owner[column, row] = name


def _check_stages(pack: Pack) -> None:
    for index, stage in enumerate(pack.stages):
        _known(f"stages.{index}.active", stage.active, pack.meter_names, "meter")


def _check_births(pack: Pack) -> None:
    start = {meter.name: meter.start for meter in pack.meters}
    for index, death in enumerate(pack.deaths):
        if death.holds(start[death.meter]):
            raise ValueError(
                f"deaths.{index}: {death.meter!r} starts at {start[death.meter]:g}, so every life is over at birth"
            )

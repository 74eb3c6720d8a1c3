"""The parts of a pack: one frozen section per table of the TOML file, each bounding its own numbers.

What needs the whole pack to be judged (a meter that exists, a cell that is free) is checked in `pack`.
"""

import operator
from collections.abc import Callable
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from outlast.config import Section

MAX_SIZE = 64
DAY_TICKS = 24


def _within(low: float, high: float) -> Callable[[Any], Any]:
    # Field(ge=, le=) names one bound only when the number sits in a list or a free table.
    def check(value: Any) -> Any:
        if not low <= value <= high:
            raise ValueError(f"{value:g} is outside the allowed range {low:g} to {high:g}")
        return value

    return check


Fraction = Annotated[float, AfterValidator(_within(0.0, 1.0))]
Change = Annotated[float, AfterValidator(_within(-1.0, 1.0))]
Amount = Annotated[float, AfterValidator(_within(0.0, 1000.0))]
Name = Annotated[str, Field(min_length=1, max_length=40)]
Pair = Annotated[list[int], Field(min_length=2, max_length=2)]


class Meter(Section):
    """One need or resource, between 0 and 1."""

    name: Name
    start: Fraction = 1.0
    depletion: Fraction = Field(0.0, description="lost per tick, times the depletion multiplier of the level")


class Modulation(Section):
    """A drain on `target` that a low `source` makes worse: rate x (base + span x (1 - source)) per tick."""

    source: Name
    target: Name
    rate: Fraction
    base: Amount
    span: Amount


class Cascade(Section):
    """A drain on `target` while `source` is below `threshold`, proportional to how far below it is."""

    source: Name
    target: Name
    strength: Fraction
    threshold: Fraction = 0.3

    @field_validator("threshold")
    @classmethod
    def _positive(cls, value: float) -> float:
        if value == 0.0:
            raise ValueError("0 can never be undercut (allowed: above 0, up to 1)")
        return value


class Death(Section):
    """A condition that ends the life; any one of them is enough."""

    meter: Name
    test: Literal["<=", "<", ">=", ">", "=="] = "<="
    value: Fraction = 0.0

    def holds(self, level: Any) -> Any:
        """Tell whether a level, a number or an array, meets the condition."""
        tests = {"<=": operator.le, "<": operator.lt, ">=": operator.ge, ">": operator.gt, "==": operator.eq}
        return tests[self.test](level, self.value)


class Instant(Section):
    """Using a place in one tick."""

    cost: dict[str, Fraction] = Field({})
    effects: dict[str, Change] = Field({})


class MultiTick(Section):
    """Using a place over several ticks: cost and effects every tick, `completion` on top of the last one."""

    ticks: Annotated[int, AfterValidator(_within(1, 1000))]
    cost: dict[str, Fraction] = Field({})
    effects: dict[str, Change] = Field({})
    completion: dict[str, Change] = Field({})


class Place(Section):
    """Somewhere to interact; `hours` are consulted in multi-tick mode and may pass midnight (18 to 28)."""

    name: Name
    hours: Pair = Field([0, DAY_TICKS])
    instant: Instant | None = None
    multi_tick: MultiTick | None = None

    @field_validator("hours")
    @classmethod
    def _a_day(cls, value: list[int]) -> list[int]:
        opens, closes = value
        if not (0 <= opens < DAY_TICKS and opens < closes <= opens + DAY_TICKS):
            raise ValueError(
                f"{opens} to {closes} is not a stretch of a day (allowed: opening 0 to {DAY_TICKS - 1}, "
                f"closing later and within {DAY_TICKS} hours; past midnight is written 18 to 28)"
            )
        return value


class Costs(Section):
    """What an action costs in each meter, whatever comes of it: a bump into a wall is a move."""

    move: dict[str, Fraction] = Field({}, description="lost by a move, by meter")
    wait: dict[str, Fraction] = Field({}, description="lost by waiting, by meter")
    interact: dict[str, Fraction] = Field({}, description="lost by using a place, by meter")


class Layout(Section):
    """Where the places stand: given cells, one draw for a run, or a new draw for every life."""

    policy: Literal["fixed", "per_run", "per_episode"] = Field(
        "per_run", description="given cells, one draw for the run, or a draw for every life"
    )
    cells: dict[str, Pair] = Field({}, description="column and row of each place, for the policy `fixed`")

    @model_validator(mode="after")
    def _cells_are_used(self) -> Self:
        if self.cells and self.policy != "fixed":
            raise ValueError(f'cells do nothing when policy = "{self.policy}" (allowed: "fixed")')
        return self


class Observation(Section):
    """What the resident sees; the `s2` layouts are the originals', for comparison."""

    kind: Literal["full", "partial", "s2_full", "s2_partial"] = Field(
        "full", description="everything, a window around the resident, or the layouts of the originals"
    )
    vision: int = Field(2, ge=1, le=8, description="cells seen in each direction when the view is partial")

    @model_validator(mode="after")
    def _vision_is_used(self) -> Self:
        if self.vision != 2 and self.kind in ("full", "s2_full"):
            raise ValueError(f'vision does nothing when kind = "{self.kind}"')
        return self


class Stage(Section):
    """One step of the curriculum."""

    depletion: Annotated[float, AfterValidator(_within(0.0, 10.0))] = Field(
        1.0, description="multiplies the base depletion of every meter"
    )
    active: list[str] = Field([], description="meters that change; the others are held; empty for all")
    sparse: bool = Field(
        False, description="pay the reward every `reward.sparse_ticks` instead of every tick"
    )


class Modifier(Section):
    """A factor on the novelty reward while low <= meter < high."""

    meter: Name
    low: Fraction = 0.0
    high: Amount = 1000.0
    factor: Amount


class Shaping(Section):
    """An extra reward per tick alive.

    `above`: all `meters` at or above `threshold`. `balance`: they differ by at most `threshold`.
    `completion`: a use of `place` was completed. `approach`: falls linearly with the distance to `place`.
    """

    kind: Literal["above", "balance", "completion", "approach"]
    amount: Amount
    meters: list[str] = Field([])
    threshold: Fraction = 0.0
    place: str = ""

    @model_validator(mode="after")
    def _fields_are_used(self) -> Self:
        by_meter = self.kind in ("above", "balance")
        if by_meter and (self.place or not self.meters):
            raise ValueError(f'kind = "{self.kind}" takes meters and a threshold, no place')
        if not by_meter and (self.meters or self.threshold or not self.place):
            raise ValueError(f'kind = "{self.kind}" takes a place, no meters and no threshold')
        return self


REWARD_FIELDS = {
    "interoceptive": {"base", "meters"},
    "minimum": {"base", "meters"},
    "weighted": {"base", "weights", "center"},
    "constant": {"base"},
    "baseline": {"meters"},
    "milestone": {"minor_ticks", "minor", "major_ticks", "major"},
}


class Reward(Section):
    """What a tick is worth; see docs/packs.md for the formulas. Shaping and modifiers go with every kind."""

    kind: Literal["interoceptive", "minimum", "weighted", "constant", "baseline", "milestone"] = Field(
        "interoceptive", description="the formula of a tick alive"
    )
    base: float = Field(1.0, ge=0.0, le=1000.0, description="factor or summand of a tick alive")
    meters: list[str] = Field(["energy", "health"], description="meters that the formula reads")
    weights: dict[str, float] = Field({}, description="weight of each meter, for `weighted`")
    center: float = Field(0.0, ge=0.0, le=1.0, description="level that counts as nothing, for `weighted`")
    minor_ticks: int = Field(10, ge=1, le=1_000_000, description="ticks between minor milestones")
    minor: float = Field(0.5, ge=0.0, le=1000.0, description="paid at a minor milestone")
    major_ticks: int = Field(100, ge=1, le=1_000_000, description="ticks between major milestones")
    major: float = Field(5.0, ge=0.0, le=1000.0, description="paid at a major milestone, on top")
    death_penalty: float = Field(0.0, ge=0.0, le=1000.0, description="lost by dying")
    retirement_bonus: float = Field(0.0, ge=0.0, le=1000.0, description="paid at the age of retirement")
    sparse_ticks: int = Field(24, ge=1, le=1_000_000, description="ticks between payments in a sparse level")
    modifiers: list[Modifier] = Field([], description="factors on the novelty reward, by meter")
    shaping: list[Shaping] = Field([], description="extra rewards of a tick alive")

    @model_validator(mode="after")
    def _fields_are_used(self) -> Self:
        for name in sorted(set().union(*REWARD_FIELDS.values()) - REWARD_FIELDS[self.kind]):
            if getattr(self, name) != Reward.model_fields[name].default:
                raise ValueError(f'{name} does nothing when kind = "{self.kind}"')
        return self

    @model_validator(mode="after")
    def _living_pays(self) -> Self:
        if self.kind == "weighted":
            ends = [(-self.center * w, (1.0 - self.center) * w) for w in self.weights.values()]
            least = self.base + sum(min(pair) for pair in ends)
            if least < -1e-9:
                raise ValueError(
                    f"a tick alive could be worth {least:.3g}, so dying would pay; raise base or lower the weights"
                )
        return self

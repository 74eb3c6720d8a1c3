"""A pack compiled to arrays: rows in the order of the file, columns by meter or by place.

The arrays are constants of the program, so a rule that a pack does not use costs nothing when it is traced.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from outlast.worlds.town.pack import Pack
from outlast.worlds.town.sections import DAY_TICKS, Cascade, Death, Modulation, Stage

N_ACTIONS = 6
UP, DOWN, LEFT, RIGHT, INTERACT, WAIT = range(N_ACTIONS)
ACTION_NAMES = ("up", "down", "left", "right", "interact", "wait")


@dataclasses.dataclass(frozen=True, eq=False)
class Tables:
    """A pack as arrays. `P` places, `M` meters, `C` cells."""

    start: np.ndarray
    """M: meters at birth."""
    depletion: np.ndarray
    """M: lost per tick at multiplier one."""
    modulations: tuple[tuple[int, int, Modulation], ...]
    """Indices of source and target, and the rule."""
    cascades: tuple[tuple[int, int, Cascade], ...]
    cascade_scale: float
    deaths: tuple[tuple[int, Death], ...]
    """Each condition with the index of its meter."""
    action_costs: np.ndarray
    """actions x M: paid for trying, whatever comes of it."""
    cost: np.ndarray
    """P x M: asked for and paid on every tick of use."""
    effects: np.ndarray
    """P x M: gained on every tick of use."""
    completion: np.ndarray
    """P x M: gained on top on the last tick of use."""
    ticks: np.ndarray
    """P: ticks that a use takes."""
    hour_bits: np.ndarray
    """P: bit h is set when the place is open in hour h."""
    deployed: np.ndarray
    """P: which places stand in the town."""
    cells: np.ndarray
    """P: row-major cell under a fixed layout; -1 where there is none."""
    stage_depletion: np.ndarray
    """stages + 1: the last row is full difficulty."""
    stage_active: np.ndarray
    """stages + 1 x M."""
    stage_sparse: np.ndarray
    """stages + 1."""


def compile_tables(pack: Pack) -> Tables:
    """Compile a pack to arrays."""
    index = pack.meter_names.index
    forms = [place.multi_tick if pack.multi_tick else place.instant for place in pack.places]
    actions = (pack.costs.move,) * 4 + (pack.costs.interact, pack.costs.wait)
    hours = [place.hours if pack.multi_tick else (0, DAY_TICKS) for place in pack.places]
    cells = [pack.layout.cells.get(name) for name in pack.place_names]
    stages = [*pack.stages, Stage()]
    active = [[not stage.active or name in stage.active for name in pack.meter_names] for stage in stages]
    return Tables(
        start=np.array([meter.start for meter in pack.meters], np.float32),
        depletion=np.array([meter.depletion for meter in pack.meters], np.float32),
        modulations=tuple((index(rule.source), index(rule.target), rule) for rule in pack.modulations),
        cascades=tuple((index(rule.source), index(rule.target), rule) for rule in pack.cascades),
        cascade_scale=pack.cascade_scale,
        deaths=tuple((index(death.meter), death) for death in pack.deaths),
        action_costs=_rows(pack, actions),
        cost=_rows(pack, [form.cost if form else {} for form in forms]),
        effects=_rows(pack, [form.effects if form else {} for form in forms]),
        completion=_rows(pack, [getattr(form, "completion", {}) for form in forms]),
        ticks=np.array([getattr(form, "ticks", 1) for form in forms], np.int32),
        hour_bits=np.array([_hour_bits(*pair) for pair in hours], np.int32),
        deployed=np.array([name in pack.deployed_names for name in pack.place_names]),
        cells=np.array([cell[1] * pack.size + cell[0] if cell else -1 for cell in cells], np.int32),
        stage_depletion=np.array([stage.depletion for stage in stages], np.float32),
        stage_active=np.array(active),
        stage_sparse=np.array([stage.sparse for stage in stages]),
    )


def _rows(pack: Pack, amounts: Sequence[Mapping[str, float]]) -> np.ndarray:
    return np.array([[row.get(name, 0.0) for name in pack.meter_names] for row in amounts], np.float32)


def _hour_bits(opens: int, closes: int) -> int:
    return sum(1 << (hour % DAY_TICKS) for hour in range(opens, closes))

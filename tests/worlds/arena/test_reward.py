"""Every reward term by itself with hand numbers, the zero-sum audit, and the potential that telescopes."""

import dataclasses
import itertools
from math import pi

import hypothesis.strategies as st
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from outlast.worlds.arena import Arena, Outcome
from outlast.worlds.arena.config import RewardConfig
from outlast.worlds.arena.reward import Moment, distance_potential, rewards
from outlast.worlds.arena.state import Contacts

from . import games
from .games import RA_REWARD, arena, play

DISCOUNT = 0.9
SILENT = {"capture_bonus": 0.0, "timeout_penalty": 0.0}
NO_CONTACT = {
    "pursuer_wall": False,
    "pursuer_obstacle": False,
    "evader_wall": False,
    "evader_obstacle": False,
}


def moment(**changes):
    """Return one step: 6 m to 5.5 m apart, obstacle from 2 m to 1.5 m, diagonal 10 m, in sight, going on."""
    touched = NO_CONTACT | changes.pop("contacts", {})
    plain = {
        "distance_before_m": 6.0,
        "distance_m": 5.5,
        "evader_gap_before_m": 2.0,
        "evader_gap_m": 1.5,
        "diagonal_m": 10.0,
        "captured": False,
        "timed_out": False,
        "in_prep": False,
        "has_obstacles": True,
        "sight_clear": True,
        "pursuer_in_range": True,
        "staleness": 0.0,
    } | changes
    arrays = {
        name: jnp.asarray(value, bool if isinstance(value, bool) else jnp.float32)
        for name, value in plain.items()
    }
    return Moment(
        **arrays, contacts=Contacts(**{name: jnp.asarray(value) for name, value in touched.items()})
    )


def paid(config, **changes):
    pursuer, evader = rewards(moment(**changes), RewardConfig(**(SILENT | config)), DISCOUNT)
    return float(pursuer), float(evader)


HIDDEN, CAPTURED, TIMED_OUT = {"sight_clear": False}, {"captured": True}, {"timed_out": True}
OCCLUSION = {"evader_mode": "occlusion", "hiding": 0.2}
VISIBILITY = {"evader_mode": "visibility", "hiding": 0.1}
DISTANCE = {"distance_scale": 2.0}
P_SIGHT = {"pursuer_visibility": 0.25}


@pytest.mark.parametrize(
    ("config", "changes", "expected"),
    [
        # ends
        ({"capture_bonus": 10.0}, CAPTURED, (10.0, -10.0)),
        ({"capture_bonus": 10.0}, {}, (0.0, 0.0)),
        ({"capture_bonus": 10.0}, TIMED_OUT, (0.0, 0.0)),
        ({"timeout_penalty": -7.0}, TIMED_OUT, (-7.0, 7.0)),
        ({"timeout_penalty": -7.0}, CAPTURED, (0.0, 0.0)),
        # distance: 2 x 0.5 m / 10 m, also on the last step
        (DISTANCE, {}, (0.1, -0.1)),
        (DISTANCE, CAPTURED, (0.1, -0.1)),
        (DISTANCE, {"in_prep": True}, (0.1, -0.1)),
        (DISTANCE | {"prep_shaping": False}, {"in_prep": True}, (0.0, 0.0)),
        (DISTANCE | {"prep_shaping": False}, {}, (0.1, -0.1)),
        # potential: 3 (0.6 - 0.9 x 0.55), and 3 x 0.6 at an end
        ({"potential": 3.0}, {}, (0.315, -0.315)),
        ({"potential": 3.0}, CAPTURED, (1.8, -1.8)),
        ({"potential": 3.0}, TIMED_OUT, (1.8, -1.8)),
        # the pursuer's sight, turned round for the evader
        (P_SIGHT, {}, (0.25, -0.25)),
        (P_SIGHT, HIDDEN, (0.0, 0.0)),
        (P_SIGHT, {"pursuer_in_range": False}, (0.0, 0.0)),
        (P_SIGHT, CAPTURED, (0.0, 0.0)),
        (P_SIGHT, TIMED_OUT, (0.0, 0.0)),
        (P_SIGHT | VISIBILITY, {}, (0.25, -0.1)),
        (P_SIGHT | OCCLUSION, {}, (0.25, -0.25)),
        # occlusion: zero-sum and a bonus while hidden
        (OCCLUSION, HIDDEN, (0.0, 0.2)),
        (OCCLUSION, {}, (0.0, 0.0)),
        (OCCLUSION, HIDDEN | CAPTURED, (0.0, 0.0)),
        (OCCLUSION | DISTANCE, HIDDEN, (0.1, 0.1)),
        # visibility: decoupled from the pursuer between the ends, where obstacles exist
        (VISIBILITY, HIDDEN, (0.0, 0.1)),
        (VISIBILITY, {}, (0.0, -0.1)),
        (VISIBILITY | DISTANCE, {}, (0.1, -0.1)),
        (VISIBILITY | DISTANCE, HIDDEN, (0.1, 0.1)),
        (VISIBILITY | DISTANCE, {"has_obstacles": False}, (0.1, -0.1)),
        (VISIBILITY | DISTANCE, HIDDEN | CAPTURED, (0.1, -0.1)),
        (VISIBILITY | DISTANCE, HIDDEN | TIMED_OUT, (0.1, -0.1)),
        # survival: each step that goes on, in every mode
        ({"survival_bonus": 0.5}, {}, (0.0, 0.5)),
        ({"survival_bonus": 0.5}, CAPTURED, (0.0, 0.0)),
        ({"survival_bonus": 0.5}, TIMED_OUT, (0.0, 0.0)),
        ({"survival_bonus": 0.5} | VISIBILITY, {}, (0.0, 0.4)),
        # obstacle seeking: 4 x 0.5 m / 10 m
        ({"obstacle_approach": 4.0}, {}, (0.0, 0.2)),
        ({"obstacle_approach": 4.0}, {"has_obstacles": False}, (0.0, 0.0)),
        ({"obstacle_approach": 4.0}, CAPTURED, (0.0, 0.0)),
        ({"obstacle_approach": 4.0}, {"evader_gap_m": 3.0}, (0.0, -0.4)),
        # contacts: each pays for its own
        ({"obstacle_contact": 0.5}, {"contacts": {"pursuer_obstacle": True}}, (-0.5, 0.0)),
        ({"obstacle_contact": 0.5}, {"contacts": {"evader_obstacle": True}}, (0.0, -0.5)),
        ({"obstacle_contact": 0.5}, {"contacts": {"evader_wall": True}}, (0.0, 0.0)),
        ({"wall_contact": 0.3}, {"contacts": {"pursuer_wall": True}}, (-0.3, 0.0)),
        ({"wall_contact": 0.3}, {"contacts": {"evader_wall": True}}, (0.0, -0.3)),
        ({"wall_contact": 0.3}, {"contacts": {"pursuer_obstacle": True}}, (0.0, 0.0)),
        # search: the pursuer's alone
        ({"search": 0.25}, {"staleness": 0.8}, (0.2, 0.0)),
    ],
)
def test_a_term_by_hand(config, changes, expected):
    assert paid(config, **changes) == pytest.approx(expected, abs=1e-6)  # sums of a few float32 near one


MOMENTS = st.fixed_dictionaries(
    {
        "distance_before_m": st.floats(0.0, 20.0, width=32),
        "distance_m": st.floats(0.0, 20.0, width=32),
        "evader_gap_before_m": st.floats(0.0, 20.0, width=32),
        "evader_gap_m": st.floats(0.0, 20.0, width=32),
        "in_prep": st.booleans(),
        "sight_clear": st.booleans(),
        "pursuer_in_range": st.booleans(),
        "has_obstacles": st.booleans(),
        "staleness": st.floats(0.0, 1.0, width=32),
        "contacts": st.fixed_dictionaries(dict.fromkeys(NO_CONTACT, st.booleans())),
    }
)
ENDS = {"goes on": {}, "captured": CAPTURED, "timed out": TIMED_OUT}
SHARED = DISTANCE | {"potential": 0.7, "capture_bonus": 3.0, "timeout_penalty": -2.0}
MODES = {"zero_sum": {}, "occlusion": OCCLUSION, "visibility": VISIBILITY}
ONE_SIDED = {
    "survival_bonus": lambda m, end: 0.5 * (end == "goes on"),
    "obstacle_contact": lambda m, end: (
        -0.5 * sum(m["contacts"][f"{r}_obstacle"] for r in ("pursuer", "evader"))
    ),
    "wall_contact": lambda m, end: -0.5 * sum(m["contacts"][f"{r}_wall"] for r in ("pursuer", "evader")),
    "search": lambda m, end: 0.5 * m["staleness"],
    "obstacle_approach": lambda m, end: (
        0.05 * (m["evader_gap_before_m"] - m["evader_gap_m"]) * (end == "goes on") * m["has_obstacles"]
    ),
}


@pytest.mark.parametrize("end", ENDS)
@given(MOMENTS)
def test_the_default_game_is_zero_sum_to_the_last_bit(end, at):
    pursuer, evader = paid(SHARED | P_SIGHT, **at, **ENDS[end])
    assert pursuer + evader == 0.0


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("end", ["captured", "timed out"])
@given(MOMENTS)
def test_ends_are_zero_sum_in_every_mode(end, mode, at):
    pursuer, evader = paid(SHARED | P_SIGHT | MODES[mode] | {"survival_bonus": 0.3}, **at, **ENDS[end])
    assert pursuer + evader == 0.0


@pytest.mark.parametrize("mode", ["occlusion", "visibility"])
@given(MOMENTS)
def test_between_the_ends_the_hiding_modes_are_not_zero_sum(mode, at):
    pursuer, evader = paid(SHARED | MODES[mode], **at)
    if mode == "occlusion":
        bonus = 0.2 * (not at["sight_clear"] and at["has_obstacles"])
        assert evader == pytest.approx(-pursuer + bonus, abs=1e-6)
    elif at["has_obstacles"]:
        assert evader == pytest.approx(-0.1 if at["sight_clear"] else 0.1, abs=1e-7)
    else:
        assert pursuer + evader == 0.0


@pytest.mark.parametrize("term", ONE_SIDED)
@given(MOMENTS, st.sampled_from(sorted(ENDS)))
def test_one_sided_terms_break_the_sum_by_exactly_what_they_pay(term, at, end):
    pursuer, evader = paid(SHARED | {term: 0.5}, **at, **ENDS[end])
    # Distances up to 20 m over 10 m with weights up to 3: sums of order ten, float32 spacing 1e-6.
    assert pursuer + evader == pytest.approx(ONE_SIDED[term](at, end), abs=5e-6)


@given(
    st.lists(st.floats(0.0, 14.0, width=32), min_size=2, max_size=80),
    st.sampled_from(["captured", "timed_out"]),
)
def test_the_potential_telescopes_to_what_the_start_was_worth(distances, end):
    total = 0.0
    for t, (before, after) in enumerate(itertools.pairwise(distances)):
        is_last = t == len(distances) - 2
        step = moment(
            distance_before_m=before, distance_m=after, diagonal_m=14.0, **({end: True} if is_last else {})
        )
        total += DISCOUNT**t * float(distance_potential(step, DISCOUNT))
    # Minus phi(start) = distance / diagonal. Each term rounds at 1e-7 and the discounts sum to ten.
    assert total == pytest.approx(distances[0] / 14.0, abs=2e-6)


POTENTIAL = Arena(arena(reward=SILENT | {"potential": 2.0}, level={"max_steps": 60}).config, discount=0.97)


@pytest.mark.parametrize(
    ("evader", "outcome"), [((2.0, 0.5, pi), Outcome.CAPTURE), ((-4.0, 3.0, 0.0), Outcome.TIMEOUT)]
)
def test_the_potential_telescopes_over_a_played_episode(evader, outcome):
    first = games.state(POTENTIAL, (0, 0, 0), evader)
    total, state = 0.0, first
    for t in range(60):
        state, (turn,) = play(POTENTIAL, state, (1.0, 0.2), (0.8, -0.1))
        assert float(turn.evader_reward) == -float(turn.pursuer_reward)
        total += 0.97**t * float(turn.pursuer_reward)
        if int(turn.outcome) != Outcome.RUNNING:
            break
    assert int(turn.outcome) == outcome
    assert total == pytest.approx(2.0 * float(first.distance_m) / np.hypot(10, 10), abs=1e-5)


SEEKING = arena(
    reward=SILENT
    | {"obstacle_approach": 10.0, "pursuer_visibility": 1.0}
    | {"obstacle_contact": 0.5, "wall_contact": 0.25},
    sensing={"mode": "partial", "radius_m": 3.0},
    obstacle_slots=2,
)


def test_the_world_measures_what_the_terms_look_at():
    diagonal = np.hypot(10, 10)
    # The evader drives 5 cm towards the nearer of two obstacles; the pursuer, out of range, pushes into a wall.
    far = games.state(SEEKING, (-4.85, 0, pi), (0, 0, 0), (2.0, 0.0, 0.5), (0.0, 4.0, 0.5))
    _, (turn,) = play(SEEKING, far, (1.0, 0.0), (1.0, 0.0))
    assert float(turn.pursuer_reward) == pytest.approx(-0.25, abs=1e-6)
    assert float(turn.evader_reward) == pytest.approx(10 * 0.05 / diagonal, abs=1e-5)
    # In range and in clear sight the pursuer is paid and the evader pays, beside its contact with the obstacle.
    near = games.state(SEEKING, (-1, 0, 0), (1.35, 0.0, 0.0), (2.0, 0.0, 0.5), (0.0, 4.0, 0.5))
    _, (turn,) = play(SEEKING, near, (0.0, 0.0), (1.0, 0.0))
    assert float(turn.pursuer_reward) == pytest.approx(1.0, abs=1e-6)
    # Pushed back to where it was: the gap, robot centre to surface, stays at 15 cm.
    assert float(turn.evader_reward) == pytest.approx(-1.5, abs=1e-5)
    hidden = games.state(SEEKING, (1.0, 0, 0), (3.0, 0.0, 0.0), (2.0, 0.0, 0.5))
    _, (turn,) = play(SEEKING, hidden)
    assert (float(turn.pursuer_reward), float(turn.evader_reward)) == (0.0, 0.0)


def test_without_obstacles_nothing_is_paid_for_nearing_one():
    _, (turn,) = play(SEEKING, games.state(SEEKING, (-4, 0, 0), (1, 0, 0)), evader=(1.0, 0.0))
    assert float(turn.evader_reward) == 0.0


def test_preparation_without_shaping():
    world = arena(reward=SILENT | {"distance_scale": 1.0, "prep_shaping": False}, level={"prep_steps": 1})
    first = games.state(world, (0, 0, 0), (3.0, 0, 0))
    state, (turn,) = play(world, first, evader=(1.0, 0.0))
    assert float(turn.pursuer_reward) == 0.0
    _, (turn,) = play(world, state, evader=(1.0, 0.0))
    assert float(turn.pursuer_reward) == pytest.approx(-0.05 / np.hypot(10, 10), abs=1e-6)


def test_search_pays_only_while_the_evader_is_out_of_view():
    world = arena(reward=SILENT | {"search": 1.0}, sensing={"mode": "partial", "radius_m": 3.0})
    state, (turn,) = play(world, games.state(world, (0, 0, 0), (2.0, 0, 0)))
    assert float(turn.pursuer_reward) == 0.0
    assert (np.asarray(state.last_seen) == -50).all()
    away = dataclasses.replace(state, evader=games.body(4.5, 4.5, 0.0))
    _, (turn,) = play(world, away)
    assert float(turn.pursuer_reward) == 1.0


def test_the_original_game_pays_hiding_more_than_it_charges_for_being_seen():
    # Section 3.12 of the specification: minus 0.08 a step when seen, plus 0.12 when hidden.
    original = RA_REWARD | {"distance_scale": 0.0}
    still = {"distance_m": 6.0, "evader_gap_m": 2.0}
    assert paid(original, **still)[1] == pytest.approx(-0.08, abs=1e-6)
    assert paid(original, **still, **HIDDEN)[1] == pytest.approx(0.12, abs=1e-6)

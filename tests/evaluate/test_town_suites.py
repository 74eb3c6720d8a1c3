"""The suites of the town: what they say, that they say it twice, and that training is not touched."""

import functools
import json

import jax
import numpy as np
import pytest
import residents

from outlast.evaluate import town_suites

GAMES = 32
SUITES = {"survival": town_suites.survival, "economy": town_suites.economy}


@functools.cache
def players(kind):
    """Return a program and its residents of two seeds, barely trained."""
    program = {
        "dqn": residents.tiny,
        "memory": residents.recurrent,
        "rule": lambda: residents.scripted("rule"),
    }[kind]()
    runs = [residents.runner(program).run(2, seed=seed)[0][-1] for seed in (0, 1)]
    return program, jax.tree.map(lambda *leaves: np.stack(leaves), *[program.policies(s) for s in runs])


@functools.cache
def document(suite, kind):
    return SUITES[suite](*players(kind), games=GAMES)


def numbers(document):
    """List every reported quantity by its path."""
    for name, value in document.items():
        if isinstance(value, dict) and "per_seed" not in value:
            yield from ((f"{name}/{inner}", found) for inner, found in numbers(value))
        else:
            yield name, value


@pytest.mark.parametrize("kind", ["dqn", "memory", "rule"])
@pytest.mark.parametrize("suite", SUITES)
def test_a_document_is_strict_json_with_a_value_per_seed(suite, kind):
    found = document(suite, kind)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert (found["suite"], found["games"], found["learner"]) == (
        suite,
        GAMES,
        players(kind)[0].config.learner,
    )
    for name, value in numbers(found):
        if isinstance(value, dict):
            assert len(value["per_seed"]) == 2, name


def test_survival_has_its_parts_within_their_ranges():
    found = document("survival", "dqn")
    assert found["limit"] == residents.LIMIT
    for suffix in ("", "_epsilon", "_new_layouts"):
        assert all(0 < steps <= residents.LIMIT for steps in found["survival_steps" + suffix]["per_seed"])
        causes = found["death_causes" + suffix]
        assert set(causes) == {"limit", "energy"}
        for seed in (0, 1):
            # Every life ends once: shares of 32.
            assert sum(cause["per_seed"][seed] for cause in causes.values()) == pytest.approx(1.0, abs=1e-6)
        assert found["episode_return" + suffix]["mean"] > 0
    assert set(found["residents"]) == {"random", "wait", "rule"}
    assert found["residents"]["rule"]["survival_steps"] == residents.LIMIT
    # Energy of 1, less 0.05 a tick, is gone in the twentieth; in float32 a tick later or not.
    assert found["residents"]["wait"]["survival_steps"] in (20, 21)


def test_the_suite_plays_at_full_difficulty_and_as_the_rule_would():
    """A rule's greedy lives are those of the rule: never dead, whichever the layout."""
    found = document("survival", "rule")
    for suffix in ("", "_epsilon", "_new_layouts"):
        assert found["survival_steps" + suffix]["per_seed"] == [residents.LIMIT] * 2
        assert found["death_causes" + suffix]["limit"]["per_seed"] == [1.0, 1.0]


def test_stages_do_not_soften_an_evaluation():
    """A resident that only waits lives five times as long in the first stage, but not here."""
    program = residents.scripted("wait", curriculum=residents.CLIMBING)
    state = residents.runner(program).init(0)
    one = jax.tree.map(lambda leaf: np.asarray(leaf)[None], program.policies(state))
    assert town_suites.survival(program, one, games=8)["survival_steps"]["per_seed"][0] in (20, 21)


@pytest.mark.parametrize("suite", SUITES)
def test_a_suite_says_the_same_twice(suite):
    assert SUITES[suite](*players("dqn"), games=GAMES) == document(suite, "dqn")


def test_epsilon_and_layout_make_other_lives():
    found = document("survival", "dqn")
    assert found["epsilon"] == players("dqn")[0].config.explore.epsilon_end > 0
    assert document("survival", "rule")["epsilon"] == 0.0
    returns = [found["episode_return" + suffix]["per_seed"] for suffix in ("", "_new_layouts")]
    assert returns[0] != returns[1]


def test_with_a_layout_for_every_life_there_is_no_second_case():
    program = residents.scripted("rule", {"layout": {"policy": "per_episode"}})
    state = residents.runner(program).init(0)
    one = jax.tree.map(lambda leaf: np.asarray(leaf)[None], program.policies(state))
    found = town_suites.survival(program, one, games=8)
    assert found["layouts"] == "new in every life"
    assert "survival_steps_new_layouts" not in found
    lives = town_suites.beginnings(program, town_suites.in_place(program, state.cells), 64)
    assert len({tuple(pair) for pair in np.asarray(lives.town.level.cells).T}) > 16


def test_the_lives_of_an_evaluation_are_held_out_and_the_same_for_everybody():
    program, found = players("dqn")
    a, b = (town_suites.beginnings(program, found["cells"][seed], 16) for seed in (0, 0))
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(x, y)
    trained = residents.runner(program).init(0).lives.town
    assert not np.array_equal(np.asarray(a.town.x)[:8], trained.x) or not np.array_equal(
        np.asarray(a.town.y)[:8], trained.y
    )


def test_an_evaluation_beside_training_is_pure_and_cheap():
    program = residents.tiny()
    state = residents.runner(program).init(0)
    before = [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state)]
    found = jax.jit(lambda s: town_suites.beside(program, s), compiler_options=residents.FAST)(state)
    assert 0 < float(found["survival_steps"]) <= residents.LIMIT
    assert [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state)] == before


# --- economy

POOR = {"meters": {"money": {"start": 0.0}}, "places": {"Bed": {"instant": {"cost": {"money": 0.15}}}}}


def test_the_rule_earns_before_it_spends_and_chance_does_not():
    program = residents.scripted("rule", POOR)
    state = residents.runner(program).init(0)
    one = jax.tree.map(lambda leaf: np.asarray(leaf)[None], program.policies(state))
    found = town_suites.economy(program, one, games=GAMES)
    assert found["worked_first_rate"]["per_seed"] == [1.0]
    assert found["refusals_per_100_ticks"]["per_seed"] == [0.0]
    assert found["errands_per_life"]["mean"] >= 1.0
    assert found["random"]["worked_first_rate"]["mean"] < 0.9
    assert found["random"]["refusals_per_100_ticks"]["mean"] > 0.0


def test_without_errands_there_is_no_rate():
    """Everything is free, so nobody is ever broke: null, not a number."""
    free = {"places": {"Bed": {"instant": {"cost": None}}}}
    program = residents.scripted("rule", free)
    state = residents.runner(program).init(0)
    one = jax.tree.map(lambda leaf: np.asarray(leaf)[None], program.policies(state))
    found = town_suites.economy(program, one, games=4)
    assert found["worked_first_rate"]["per_seed"] == [None]
    json.dumps(found, allow_nan=False)

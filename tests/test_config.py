"""Configuration: bounds on every number, one clear line for every mistake, canonical bytes, and a fingerprint."""

import json
import typing

import hypothesis.strategies as st
import pytest
from hypothesis import given

from outlast.config import (
    BadInput,
    RunSection,
    Section,
    canonical_json,
    fields,
    fingerprint,
    is_mapping,
    parse_override,
    preset_names,
    read_toml,
    validate,
)
from outlast.programs import PROGRAMS, config_model, from_json, from_preset
from outlast.programs.duel_config import DuelConfig

HUGE = 10**400


def infos(model, prefix=""):
    """List every leaf of a model with its field information."""
    for name, info in model.model_fields.items():
        if isinstance(info.annotation, type) and issubclass(info.annotation, Section):
            yield from infos(info.annotation, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", info


def bound(info, *kinds):
    return next((getattr(m, kind) for m in info.metadata for kind in kinds if hasattr(m, kind)), None)


LEAVES = dict(infos(DuelConfig))
NUMBERS = {path: info for path, info in LEAVES.items() if info.annotation in (int, float)}
# Numbers inside containers; each is bounded by its model, and `test_numbers_in_containers_are_bounded` holds it to it.
IN_CONTAINERS = {
    "opponents": [{"flee_away": -1.0}, {"flee_away": 1e7}, {"flee_away": 0.0}, {}],
    "ppo.network.hidden": [[], [0], [4097], [-8], [8] * 7],
}


def problem(document, model=DuelConfig):
    """Return the one line that refuses a document."""
    with pytest.raises(BadInput) as caught:
        validate(model, document, source="test")
    line = str(caught.value)
    assert "\n" not in line
    assert line.startswith("test: ")
    return line


def nested(path, value):
    """Return the document that sets one field, beside an opponent, which every duel needs."""
    document = {"opponents": {"flee_away": 1.0}}
    at = document
    *parents, leaf = path.split(".")
    for name in parents:
        at = at.setdefault(name, {})
    at[leaf] = value
    return document


def test_the_walk_finds_every_field():
    assert set(LEAVES) == {path for path, _ in fields(DuelConfig)}
    assert len(NUMBERS) > 40


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_program_has_a_number_without_bounds_or_a_field_without_words(program):
    for path, info in infos(PROGRAMS[program][0]):
        if info.annotation in (int, float):
            low, high = bound(info, "ge", "gt"), bound(info, "le", "lt")
            assert low < high, path
        if path != "program" and not path.endswith(".program"):
            assert len(info.description or "") > 5, path


@pytest.mark.parametrize("path", NUMBERS)
def test_every_number_has_two_bounds_and_keeps_them(path):
    info = NUMBERS[path]
    low, high = bound(info, "ge", "gt"), bound(info, "le", "lt")
    assert low is not None, f"{path} has no lower bound"
    assert high is not None, f"{path} has no upper bound"
    assert low < high
    step = 1 if info.annotation is int else max(abs(low), abs(high), 1.0) * 1e-3
    for value in (low - step, high + step):
        line = problem(nested(path, value))
        assert path in line
        assert json.dumps(value) in line
        assert f"(allowed: {low} to {high})" in line


# Lengths of phases and thresholds in tuples; tracked in the report of the tests until their model bounds them.
@pytest.mark.parametrize("path", [p for p, i in LEAVES.items() if p in IN_CONTAINERS])
def test_numbers_in_containers_are_bounded(path):
    for value in IN_CONTAINERS[path]:
        document = nested(path, value)
        document[path.split(".")[0]] = value if "." not in path else document[path.split(".")[0]]
        assert path.split(".")[0] in problem(document)


def test_no_container_of_numbers_is_forgotten():
    free = {
        path
        for path, info in LEAVES.items()
        if is_mapping(info.annotation) or typing.get_origin(info.annotation) in (tuple, list)
    }
    assert {path for path in free if not path.startswith("selfplay.")} == set(IN_CONTAINERS)


@pytest.mark.parametrize("path", LEAVES)
def test_every_field_says_what_it_is(path):
    if path != "program":
        assert LEAVES[path].description


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_is_named(value):
    line = problem(nested("ppo.clip", value))
    assert line == f"test: ppo.clip = {value} is not a finite number"


@pytest.mark.parametrize(
    ("path", "value", "parts"),
    [
        ("ppo.clip", "much", ['ppo.clip = "much"', "number"]),
        ("ppo.clip", True, ["ppo.clip = true", "number"]),
        ("ppo.epochs", 2.5, ["ppo.epochs = 2.5", "integer"]),
        ("ppo.epochs", "2", ['ppo.epochs = "2"', "integer"]),
        ("ppo.epochs", None, ["ppo.epochs", "integer"]),
        ("arena.fixed_speed", 1, ["arena.fixed_speed = 1", "allowed: true or false"]),
        ("learner", "predator", ['learner = "predator"', "allowed: pursuer, evader"]),
        ("arena.observation", "polar", ["allowed: absolute, egocentric"]),
        ("arena.level.width_m", -3.0, ["arena.level.width_m = -3.0", "allowed: 2.0 to 200.0"]),
        ("collect.worlds", 10**30, ["collect.worlds = 1" + "0" * 30, "allowed: 1 to 65536"]),
        ("opponents", 3, ["opponents = 3"]),
        ("arena", 3, ["arena = 3"]),
        ("ppo.network.hidden", [64, "x"], ["ppo.network.hidden.1"]),
        ("arena.levle", 3, ["arena.levle: no such field", "did you mean 'arena.level"]),
        ("learners", "both", ["learners: no such field", "did you mean 'learner'?"]),
        ("opponents", {"flee": 1.0}, ["opponents.flee: no such opponent of a pursuer", "flee_away"]),
    ],
)
def test_a_mistake_is_one_line_that_names_field_value_and_range(path, value, parts):
    line = problem(nested(path, value))
    for part in parts:
        assert part in line


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(sorted(LEAVES)), ANYTHING)
def test_any_value_in_any_field_is_taken_or_refused_in_one_line(path, value):
    try:
        config = validate(DuelConfig, nested(path, value), source="test")
    except BadInput as refusal:
        assert "\n" not in str(refusal)
    else:
        assert validate(DuelConfig, json.loads(canonical_json(config)), source="test") == config


# --- presets and overrides


@pytest.mark.parametrize("preset", preset_names())
def test_every_preset_is_valid_and_comes_back_from_its_own_json(preset):
    config = from_preset(preset, [])
    assert from_json(canonical_json(config), source="test") == config


def refused(preset, *overrides):
    with pytest.raises(BadInput) as caught:
        from_preset(preset, list(overrides))
    line = str(caught.value)
    assert "\n" not in line
    return line


def test_an_unknown_preset_is_told_with_a_suggestion():
    line = refused("chasse")
    assert "unknown preset 'chasse'" in line
    assert "did you mean 'chase'?" in line


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("ppo.clipp=0.1", ["--set ppo.clipp: no such field", "did you mean 'ppo.clip'?"]),
        ("discount=0.9", ["no such field", "did you mean 'ppo.discount'?"]),
        ("ppo=3", ["--set ppo: no such field"]),
        ("ppo.network.hidden.0=3", ["no such field"]),
        ("ppo.clip", ["write it as path.to.field=value"]),
        ("=3", ["write it as path.to.field=value"]),
        ("ppo.clip=nan", ["ppo.clip", "nan", "not a finite number"]),
        ("ppo.clip=inf", ["ppo.clip", "inf", "not a finite number"]),
        ("ppo.clip=1e999", ["ppo.clip", "not a finite number"]),
        ("ppo.clip=-1", ["ppo.clip = -1", "allowed: 0.01 to 10.0"]),
        (f"run.steps={'9' * 40}", ["run.steps", "allowed: 1 to"]),
        ("run.steps=many", ['run.steps = "many"']),
        ("program=chess", ["program = 'chess' is unknown", "allowed: duel"]),
        ("opponents.nobody=1", ["opponents.nobody: no such opponent"]),
        ("opponents.=1", ["opponents"]),
    ],
)
def test_a_bad_override_is_one_clear_line(override, parts):
    line = refused("chase", override)
    for part in parts:
        assert part in line


def test_a_list_with_a_number_that_is_not_finite_names_its_field():
    assert "ppo.network.hidden" in refused("chase", "ppo.network.hidden=[nan]")


@pytest.mark.parametrize("text", ["9" * 5000, "-" + "9" * 5000, "0x" + "f" * 5000])
def test_a_number_of_thousands_of_digits_is_bad_input(text):
    """Python refuses to convert such a number with an error of its own kind."""
    refused("chase", f"ppo.clip={text}")
    with pytest.raises(BadInput):
        read_toml(f"x = {text}", source="test")


def test_overrides_reach_the_config_and_later_ones_win():
    config = from_preset(
        "chase",
        [
            "ppo.clip=0.3",
            "ppo.network.hidden=[8, 4]",
            "opponents.orbit=0.75",
            "learner=pursuer",
            "ppo.clip=0.4",
        ],
    )
    assert (config.ppo.clip, config.ppo.network.hidden, config.opponents["orbit"]) == (0.4, (8, 4), 0.75)
    assert config.opponents["flee_away"] == from_preset("chase", []).opponents["flee_away"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a.b=3", 3),
        ("a.b = 3.5 ", 3.5),
        ("a.b=true", True),
        ("a.b=evader", "evader"),
        ('a.b="x=y"', "x=y"),
        ("a.b=[1, 2]", [1, 2]),
        ("a.b=1e-3", 1e-3),
        ("a.b=3 # not a comment", 3),
    ],
)
def test_override_values_are_toml_or_bare_words(text, value):
    path, got = parse_override(text)
    assert (path, got, type(got)) == ("a.b", value, type(value))


def test_broken_documents_are_bad_input():
    for text in ("{", "[1]", '"x"', "null", "[" * 100_000, '{"program": "chess"}', '{"program": []}'):
        with pytest.raises(BadInput):
            from_json(text, source="test")
    for text in ("=", "a = ", "a = 1\na = 2", "x" * 1_000_001, "a = " + "[" * 100_000):
        with pytest.raises(BadInput):
            read_toml(text, source="test")


# --- combinations that could do nothing


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"arena.level.spawn_min_m": 9.0, "arena.level.spawn_max_m": 5.0}, "spawn_min_m = 9.0 is above"),
        ({"arena.level.spawn_min_m": 14.0, "arena.level.spawn_max_m": 20.0}, "does not fit"),
        ({"arena.level.obstacles_max": 2}, "obstacle_slots"),
        ({"arena.obstacle_slots": 3, "arena.level.obstacles_min": 2}, "obstacles_min = 2 is above"),
        ({"arena.observed_obstacles": 1}, "observed_obstacles = 1"),
        ({"arena.obstacle_radius_min_m": 1.5}, "obstacle_radius_min_m"),
        ({"arena.sensing.radius_m": 3.0}, "radius_m has no effect"),
        ({"arena.sensing.evader_sees_all": True}, "evader_sees_all has no effect"),
        ({"arena.reward.hiding": 0.1}, "hiding and evader_mode belong together"),
        ({"arena.reward.evader_mode": "occlusion"}, "hiding and evader_mode belong together"),
        ({"arena.reward.prep_shaping": False}, "prep_shaping"),
        ({"arena.reward.stale_steps": 10}, "stale_steps"),
        ({"arena.reward.search": 0.1}, "search has no effect"),
        ({"arena.reward.obstacle_contact": 0.1}, "obstacle_slots = 0"),
        ({"arena.reward.obstacle_approach": 0.1}, "obstacle_slots = 0"),
        ({"arena.level.width_m": 2.0, "arena.robot_radius_m": 0.5}, "too small"),
        ({"ppo.learning_rate_final": 0.5}, "belong together"),
        ({"ppo.learning_rate_decay_steps": 5}, "belong together"),
        ({"ppo.minibatches": 7}, "ppo.minibatches = 7 does not divide"),
        ({"opponents": {}}, "opponents"),
        ({"opponents": {"orbit": 0.0}}, "above 0"),
        ({"opponents": {"lead": 1.0}}, "no such opponent of a pursuer"),
        ({"selfplay.league.capacity": 3}, "selfplay has no effect with learner = pursuer"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused_by_name(changes, part):
    document = {}
    for path, value in changes.items():
        one = nested(path, value)
        document = merged(document, one)
    assert part in problem(document)


def merged(a, b):
    both = dict(a)
    for name, value in b.items():
        deeper = isinstance(value, dict) and isinstance(a.get(name), dict) and name != "opponents"
        both[name] = merged(a[name], value) if deeper else value
    return both


def test_partial_sight_that_hides_nothing_is_refused():
    everything_seen = merged(
        nested("arena.sensing.mode", "partial"), nested("arena.sensing.line_of_sight", False)
    )
    assert "sensing" in problem(everything_seen)


# --- canonical form and fingerprint

BASE = validate(DuelConfig, {"opponents": {"flee_away": 1.0}}, source="test")


def test_canonical_json_has_one_form():
    same = {
        "ppo": {"clip": 0.2, "epochs": 2},
        "opponents": {"flee_away": 1},
        "arena": {"level": {"height_m": 10, "width_m": 10.0}},
    }
    backwards = {"arena": same["arena"], "opponents": same["opponents"], "ppo": {"epochs": 2, "clip": 0.20}}
    texts = {canonical_json(validate(DuelConfig, d, source="test")) for d in (same, backwards)}
    assert texts == {canonical_json(BASE)}
    text = texts.pop()
    assert json.dumps(json.loads(text), sort_keys=True, separators=(",", ":")) == text
    assert " " not in text


def test_the_order_of_opponents_is_part_of_a_run_only_where_it_decides_bits():
    """Opponents are numbered in the order given, so another order must not pass for the same run unless sorted."""
    pair = {"orbit": 0.5, "corner": 0.5}
    one = validate(DuelConfig, {"opponents": pair}, source="test")
    two = validate(DuelConfig, {"opponents": dict(reversed(pair.items()))}, source="test")
    orders_differ = list(one.scripted_shares(1)) != list(two.scripted_shares(1))
    assert (fingerprint(one) != fingerprint(two)) == orders_differ


CHANGED = {
    bool: lambda value, info: not value,
    int: lambda value, info: value + 1 if value + 1 <= bound(info, "le", "lt") else value - 1,
    float: lambda value, info: (value + bound(info, "le", "lt")) / 2,
}


def toggled(config, path, value):
    head, dot, rest = path.partition(".")
    inner = toggled(getattr(config, head), rest, value) if dot else value
    return config.model_copy(update={head: inner})  # unchecked: only the bytes matter here


@pytest.mark.parametrize("path", [p for p, i in LEAVES.items() if i.annotation in CHANGED])
def test_the_fingerprint_sees_every_field_but_those_of_run(path):
    info, value = LEAVES[path], BASE
    for name in path.split("."):
        value = getattr(value, name)
    new = CHANGED[info.annotation](value, info)
    if new == value:  # already at its upper bound
        new = bound(info, "ge", "gt")
    other = toggled(BASE, path, new)
    assert (fingerprint(other) == fingerprint(BASE)) == path.startswith("run.")
    assert canonical_json(other) != canonical_json(BASE)


def test_a_config_cannot_be_changed():
    with pytest.raises(ValueError, match="frozen"):
        BASE.ppo.clip = 0.5
    with pytest.raises(ValueError, match="frozen"):
        RunSection().steps = 3


def test_the_program_decides_the_model():
    assert config_model({"program": "duel"}, source="test") is DuelConfig
    with pytest.raises(BadInput, match="allowed: duel"):
        config_model({"program": "chess"}, source="test")

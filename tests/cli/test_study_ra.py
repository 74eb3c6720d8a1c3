"""The study of the originals' two runs: every variant is a configuration that can be trained."""

import pytest

from outlast.cli.study_ra import config_of, variants
from outlast.programs import from_preset

LISTED = {name: rest for name, *rest in variants()}


def built(name):
    return config_of(*LISTED[name], 1000)


@pytest.mark.parametrize("name", LISTED)
def test_every_variant_is_a_valid_configuration_of_its_own(name):
    config = built(name)
    assert config.run.steps == 1000
    others = [built(other) for other in LISTED if other != name]
    assert config not in others


def test_as_given_the_past_is_met_in_about_8_percent_of_a_learners_games():
    blocks = built("ra1 as given").blocks
    share = blocks.pursuer / (blocks.pursuer + blocks.both)
    assert 0.06 < share < 0.10  # re-simulated at 8 %; the number of games is rounded to whole worlds


def test_as_given_the_curriculum_of_ra2_never_reaches_training():
    stuck, wired = built("ra2 as given"), built("ra2 + curriculum wiring")
    assert stuck.selfplay.curriculum.kind == "none"
    assert (stuck.arena.level.spawn_min_m, stuck.arena.level.spawn_max_m) == (2.0, 5.0)
    assert wired.selfplay.curriculum == from_preset("ra2", []).selfplay.curriculum


@pytest.mark.parametrize("preset", ["ra1", "ra2"])
def test_the_last_variant_is_the_preset_repaired(preset):
    last = built(f"{preset} + schedule")
    assert last.selfplay.schedule.kind == "together"
    assert last.arena.reward.evader_mode == "zero_sum"
    assert last.selfplay.league.history == from_preset(preset, []).selfplay.league.history

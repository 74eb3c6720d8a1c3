"""How suites are called: what is not given is the suite's own to decide."""

import inspect

from outlast.cli.evaluation import STATE_SUITES, SUITES


def test_every_suite_knows_how_many_games_to_play():
    suites = [s for table in (SUITES, STATE_SUITES) for program in table.values() for s in program.values()]
    assert suites
    for suite in suites:
        games = inspect.signature(suite).parameters.get("games")
        assert games is None or games.default > 0, suite

"""The calibration study: every pair in every game, with intervals, as a page."""

from outlast.evaluate import calibration


def test_every_game_is_a_row_and_every_pair_a_column(monkeypatch):
    name = "10x10, 1.0"
    monkeypatch.setattr(calibration, "GAMES", {name: calibration.GAMES[name]})
    document = calibration.calibration(32)
    assert [(r["game"], r["pursuer"], r["evader"]) for r in document["rows"]] == [
        (name, *pair) for pair in calibration.PAIRS
    ]
    for row in document["rows"]:
        low, high = row["ci95"]
        assert row["games"] == 32 and low <= row["capture_rate"] <= high
    page = calibration.markdown(document).splitlines()
    assert page[-1].startswith(f"| {name} | ") and page[-1].count("[") == len(calibration.PAIRS)

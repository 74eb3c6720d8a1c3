"""Packs on the command line: listed, shown, refused in one line; and how the suites of the town look as tables."""

import sys
from pathlib import Path

import pytest

from outlast.worlds.town import pack_names

sys.path.insert(0, str(Path(__file__).parent.parent / "report"))

BAD = {
    "meter": ("[places.Bed.instant.effects]\nenrgy = 0.1", "places.Bed.instant.effects: no meter 'enrgy'"),
    "cost": ("[places.Bed.instant.cost]\nmoney = 1.5", "places.Bed.instant.cost.money: 1.5 is outside"),
    "hours": ("[places.Bed]\nhours = [25, 3]", "places.Bed.hours: 25 to 3 is not a stretch of a day"),
    "cascade": (
        'cascades = [{ source = "faith", target = "energy", strength = 0.1 }]',
        "cascades.0.source: no meter 'faith'",
    ),
    "no free cell": ("size = 3", "14 places leave no free cell on 9"),
    "huge": ("size = 1000000000", "size = 1000000000"),
    "no TOML": ("size = ", "not valid TOML"),
    "not a number": ("[meters.energy]\nstart = nan", "nan is not a finite number"),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("command", ["train", "presets"])
def test_a_bad_pack_is_one_line_with_exit_code_2(outlast, tmp_path, name, command):
    text, said = BAD[name]
    (tmp_path / "my.toml").write_text(f'base = "L1"\n{text}\n')
    train = ("train", "town-l1", "--set", "pack=my.toml", "--out", "new")
    ended = outlast(*(train if command == "train" else ("presets", "my.toml")))
    assert (ended.code, ended.out) == (2, ""), ended.err
    assert ended.err.count("\n") == 1 and "my.toml" in ended.err and said in ended.err
    assert [file.name for file in tmp_path.iterdir()] == ["my.toml"]


def test_a_missing_or_unknown_pack_is_one_line(outlast):
    for name, said in (("none.toml", "none.toml: cannot be read"), ("L7", "unknown pack 'L7'")):
        ended = outlast("train", "town-l1", "--set", f"pack={name}")
        assert ended.code == 2 and said in ended.err and ended.err.count("\n") == 1, ended.err


def test_packs_are_listed_and_shown(outlast, tmp_path):
    listed = outlast("presets").out
    assert all(f"\n{name} " in listed for name in pack_names())
    for name, words in {"L1": ("offsets", "76", "LuxuryBed"), "L3": ("window", "62", "18-28")}.items():
        shown = outlast("presets", name)
        assert shown.code == 0
        for word in (*words, "satiation", "sparse", "observation"):
            assert word in shown.out, word
    (tmp_path / "mine.toml").write_text('base = "L0.5"\ntitle = "my own"\n')
    assert "my own" in outlast("presets", "mine.toml").out


def test_the_suites_are_tables(capsys, monkeypatch):
    from made_towns import survival_suite

    from outlast.cli.tables import show
    from outlast.evaluate.statistics import summary

    monkeypatch.setenv("COLUMNS", "160")
    show(survival_suite([400, 410, 420]))
    text = capsys.readouterr().out
    assert "410.000 [385.159, 434.841]" in text and "scripted: rule" in text and "ticks of 500" in text
    rate = summary([0.5, 0.6])
    common = {"run": "runs/l", "games": 9}
    economy = {
        "suite": "economy",
        "learner": "dqn",
        "worked_first_rate": rate,
        "random": {"worked_first_rate": rate},
    }
    show(common | economy | {"worked_first_means": "the share of"})
    assert "worked first rate" in capsys.readouterr().out
    show(common | {"suite": "head-to-head", "sp": {"r": rate}, "buckets": [{"from_m": 1.0, "sr_p": rate}]})
    text = capsys.readouterr().out
    assert "sp, r" in text and "0.550" in text and "buckets" in text

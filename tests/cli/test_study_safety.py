"""The study of safety: every variant can be trained, and the page and the decision say what the data say."""

import json

import pytest

from outlast.cli import study_safety, study_safety_page
from outlast.cli.study_safety import EVADER, FAULTS, VARIANTS, config_of, faults
from outlast.evaluate.statistics import summary

LISTED = VARIANTS | {"evader": EVADER} | faults()


@pytest.mark.parametrize("name", LISTED)
def test_every_variant_is_a_valid_configuration_of_its_own(name):
    config = config_of(LISTED[name], 1000)
    assert config.run.steps == 1000
    assert config not in [config_of(fields, 1000) for other, fields in LISTED.items() if other != name]


def test_all_of_them_holds_every_fault():
    both = [
        json.loads(config_of(faults()[name], 1).model_dump_json()) for name in ("repaired", "all of them")
    ]
    for fields in FAULTS.values():
        for path, value in fields.items():
            found = list(both)
            for part in path.split("."):
                found = [at[part] for at in found]
            assert found[1] == value != found[0]


def cell(capture, contact, *, seeds=3):
    keys = [key for _, key in study_safety_page.COLUMNS] + ["contact_episode_rate"]
    values = {key: summary([0.25] * seeds) for key in keys}
    values["capture_rate"] = summary([capture + 0.01 * i for i in range(seeds)])
    values["contact_episode_rate"] = summary([contact] * seeds)
    return values


def mode(kappa, capture, contact):
    one = cell(capture, contact)
    gamma = None if kappa is None else kappa * 0.05
    opponents = {"flee_away": one, "trained": one}
    return {"kappa_per_s": kappa, "gamma": gamma, "mean": one, "opponents": opponents, "us_per_action": 1.5}


def document(**contacts):
    rows = {
        name: {
            "roles": {
                "pursuer": {
                    "bare": mode(None, 0.95, 0.4),
                    "shielded": mode(10.0, 0.78 + i / 40, contacts.get(name, 0.0)),
                }
            }
        }
        for i, name in enumerate(("no filter", "loop", "barriernet", "barriernet with gradient"))
    }
    points = [mode(kappa, 0.5 if kappa < 1 else 0.9, 0.0) for kappa in (0.1, 4.0, 10.0)]
    ablation = {name: mode(10.0, 0.9 - 0.1 * i, 0.0) for i, name in enumerate(faults())}
    return {
        "study": "safety",
        "seeds": 3,
        "steps": 1000,
        "games": 10,
        "rows": rows,
        "sweep": {"opponents": ["flee_away"], "points": points},
        "sweep-unchecked": {"opponents": ["flee_away"], "points": points[1:]},
        "ablation": ablation,
    }


def test_the_decision_follows_the_data():
    text = study_safety_page.decision(document())
    assert "**Use: barriernet with gradient, shielded" in text
    assert "4, 10 per second" in text
    assert "barriernet: capture of flee-away" in text and "is missed" in text and "is met" in text
    touching = study_safety_page.decision(document(**{"barriernet with gradient": 0.1}))
    assert "**Use: barriernet, shielded" in touching
    names = list(FAULTS)
    assert text.index(names[-1]) < text.index(names[0])  # the dearest fault first


def test_the_page_holds_every_setting_and_is_written_with_its_data(tmp_path):
    data = document()
    page = study_safety_page.write_page(data, tmp_path)
    text = page.read_text()
    for name in ("no filter", "filter after training", *study_safety_page.settings(data), *faults()):
        assert f"| {name} " in text or f"| {name} (" in text
    assert "gamma 0.5" in text and "| 0.1 | 0.005 |" in text
    assert json.loads((tmp_path / "safety.json").read_text()) == data
    assert (tmp_path / "safety.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "safety-decision.md").exists()


def test_what_is_measured_is_measured_once(tmp_path):
    calls = []

    def measure():
        calls.append(1)
        return {"value": 3}

    for _ in range(2):
        assert study_safety.kept(tmp_path, "some", measure) == {"value": 3}
    assert len(calls) == 1

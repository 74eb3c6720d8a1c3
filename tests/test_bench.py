"""The benchmarks' bookkeeping: what is measured by turns, what is judged, and the page that is made of it."""

import json

from bench.__main__ import FIRST, benchmarks_page, document, names, written
from bench.measure import Answer, Table, at_least, at_most, interleaved, ratios

FACTS = {
    "processor": "a processor",
    "cores": 2,
    "memory_gib": 1.0,
    "system": "Linux",
    "python": "3",
    "load_before": 0.5,
    "packages": {"jax": "1"},
}


def test_contenders_run_by_turns_and_the_order_rotates():
    seen = []

    def contender(name, rate):
        def window(seconds):
            seen.append(name)
            return rate * (seconds or 1.0), seconds or 1.0

        return window

    rates = interleaved({"a": contender("a", 6.0), "b": contender("b", 2.0)}, rounds=2, seconds=0.5)
    assert seen == ["a", "b", "a", "b", "b", "a"]
    assert ratios(rates["a"], rates["b"]) == [3.0, 3.0]


def test_every_benchmark_that_gives_an_answer_is_run():
    assert names()[: len(FIRST)] == FIRST
    assert not {"measure", "sb3_worlds"} & set(names())


def test_an_unknown_value_passes_nothing():
    assert at_least("x", None, 1.0).passed is None
    assert at_least("x", 1.0, 1.0).passed and not at_least("x", 0.9, 1.0).passed
    assert at_most("x", 1.0, 1.0).passed and not at_most("x", 1.1, 1.0).passed


def test_the_page_is_made_from_the_json_and_says_what_was_missed():
    answer = Answer(
        question="How fast?",
        tables=[Table("Speed", ["who", "rate"], [["ours", "5"]], "A note.")],
        criteria=[at_least("speed", 5.0, 6.0, unit=" m/s"), at_most("cost", 0.5, 1.0)],
        raw={"rates": [5.0]},
        notes=["Another note."],
    )
    found = document("world", answer, FACTS, 3.2, quick=False)
    again = json.loads(written(found))
    assert again == found
    page = benchmarks_page([again])
    for line in (
        "| speed | at least 6 m/s | 5 | **missed** |",
        "| cost | at most 1 | 0.5 | met |",
        "| ours | 5 |",
        "A note.",
        "Another note.",
    ):
        assert f"\n{line}\n" in page
    assert "load before 0.5; took 3 s" in page and "smoke test" not in page and "Other work" not in page
    assert "Other work" in benchmarks_page([again | {"machine": FACTS | {"load_before": 7.0}}])

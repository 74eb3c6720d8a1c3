"""The report of a run: a figure with something in it, a page that is self-contained, a strict document."""

import io
import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from made_runs import write_group
from rich.console import Console

from outlast.evaluate import statistics
from outlast.report import plots, report, table
from outlast.report.read import read_run
from outlast.run.errors import Refused, RunProblem

HOSTILE = "<script>alert(1)</script>\"'&$\\frac{$_日"
VOID = {"meta", "br", "link", "img"}


class Page(HTMLParser):
    """The tags, attributes and visible text of a page; fails on tags that do not nest."""

    def __init__(self, html):
        super().__init__()
        self.open, self.tags, self.attributes, self.text = [], [], [], ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        self.open += [tag] * (tag not in VOID)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.text += data if self.open[-1:] != ["style"] else ""


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    """Report one run once; the tests below only look at it."""
    path = tmp_path_factory.mktemp("runs") / "chase"
    write_group(path / "group-0", [0, 1])
    write_group(path / "group-1", [2, 3])
    document = report([path])
    return path, document, Page((path / "report/report.html").read_text())


def test_the_document_is_strict_json_and_is_kept(reported):
    path, document, _ = reported
    text = json.dumps(document, allow_nan=False)
    assert json.loads(text) == document == json.loads((path / "report/report.json").read_text())
    assert document["files"] == [
        str(path / "report" / n) for n in ("curves.png", "report.html", "report.json")
    ]
    run = document["runs"][0]
    assert (run["run"], run["program"], run["learner"]) == (str(path), "duel", "pursuer")
    assert (run["seeds"], run["steps"]) == ([0, 1, 2, 3], 123 * 16_384)
    for quantity in run["curves"].values():
        assert len(quantity["per_seed"]) == 4
        assert quantity["ci95"][0] <= quantity["mean"] <= quantity["ci95"][1]
    assert [set(line) for line in run["criteria"]] == [{"name", "target", "value", "pass"}] * 4


def test_the_picture_shows_something_in_every_panel(reported):
    import matplotlib.image

    pixels = matplotlib.image.imread(io.BytesIO((reported[0] / "report/curves.png").read_bytes()))[..., :3]
    height, width, _ = pixels.shape
    assert width == 14 * 150
    assert height == int((3 * 2.75 + 0.8) * 150)
    blue = (pixels[..., 2] - pixels[..., 0]) > 0.3
    rows = np.array_split(blue[round(0.8 * 150) :], 3)
    panels = [
        panel for row, n in zip(rows, (4, 4, 5), strict=True) for panel in np.array_split(row, n, axis=1)
    ]
    # The thinnest line, that of the speed, fills at least 2 pixels across the 295 of its panel; empty has none.
    assert min(panel.sum() for panel in panels) > 500


def test_equal_runs_give_equal_bytes(reported, tmp_path):
    path, _, _ = reported
    report([path], tmp_path / "again")
    for name in ("curves.png", "report.html"):
        assert (tmp_path / "again" / name).read_bytes() == (path / "report" / name).read_bytes()


def test_the_page_needs_nothing_else(reported):
    path, _, page = reported
    html = (path / "report/report.html").read_text()
    assert not re.search(r"https?:|//[a-z]|@import|url\((?!#)", html)
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert all(v.startswith("#") for name, v in page.attributes if name in ("href", "xlink:href", "src"))
    assert "prefers-color-scheme: dark" in html


def test_the_page_shows_results_with_their_intervals(reported):
    _, document, page = reported
    rate = document["runs"][0]["evaluations"]["panel"]["capture_rate"]["flee_away"]
    low, high = rate["ci95"]
    assert f"{rate['mean']:.3f}" in page.text
    assert f"{low:.3f} to {high:.3f}" in page.text
    for shown in ("4 of 4 criteria", "look_ahead", "Role by role", "ppo.discount", "0.10.2", "resumed"):
        assert shown in page.text
    assert page.text.count("✓ pass") == 5


def test_colours_of_the_figure_follow_the_page(run):
    figure = plots.svg([read_run(run)])
    assert "var(--c0)" in figure
    assert "currentColor" in figure
    assert not re.search(r"#[0-9a-f]{6}\b", figure)


def test_a_hostile_run_is_shown_as_text(tmp_path):
    path = tmp_path / HOSTILE.replace("/", "∕")
    write_group(path, [0, 1], config={"note": HOSTILE, HOSTILE: 1, "learner": HOSTILE})
    for name, old in (
        ("metrics.jsonl", "orbit"),
        ("evaluations/panel.json", "orbit"),
        ("events.jsonl", "resumed"),
    ):
        file = path / name
        file.write_text(file.read_text().replace(old, json.dumps(HOSTILE)[1:-1]))
    document = report([path])
    page = Page((path / "report/report.html").read_text())
    assert "script" not in page.tags
    assert page.text.count(HOSTILE) >= 4
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    console = Console(file=io.StringIO(), width=300)
    console.print(table(document))
    assert HOSTILE in console.file.getvalue()


def test_terminal_markup_in_a_name_is_shown_as_text(tmp_path):
    write_group(tmp_path / "[red]run[", [0])
    console = Console(file=io.StringIO(), width=300)
    console.print(table(report([tmp_path / "[red]run["])))
    assert "[red]run[" in console.file.getvalue()


def test_several_runs_are_overlaid_and_compared(run, tmp_path):
    other = tmp_path / "slow"
    write_group(other, [0, 1, 2, 3], config={"ppo": {"discount": 0.5, "learning_rate": 1e-3}}, speed=0.6)
    document = report([run, other], tmp_path / "out")
    assert [file.name for file in sorted((tmp_path / "out").iterdir())] == [
        "curves.png",
        "report.html",
        "report.json",
    ]
    assert not (run / "report").exists()
    page = Page((tmp_path / "out/report.html").read_text())
    assert "difference to the first" in page.text
    before_all_fields = page.text.split("Configuration")[1].split("All ")[0]
    assert "ppo.discount" in before_all_fields
    assert "ppo.learning_rate" not in before_all_fields
    first, second = (r["curves"]["capture_rate"]["mean"] for r in document["runs"])
    assert f"{second - first:.3f}" in page.text
    console = Console(file=io.StringIO(), width=200)
    console.print(table(document))
    assert "training/capture_rate" in console.file.getvalue()


def test_a_run_without_evaluations_or_lines_is_reported(run):
    for group in ("group-0", "group-1"):
        shutil.rmtree(run / group / "evaluations")
    report([run])
    assert "None yet" in Page((run / "report/report.html").read_text()).text
    for group in ("group-0", "group-1"):
        (run / group / "metrics.jsonl").unlink()
    document = report([run])
    assert document["runs"][0]["curves"] == {}
    assert [line["pass"] for line in document["runs"][0]["criteria"]] == [False]


def test_one_seed_has_values_without_intervals(tmp_path):
    write_group(tmp_path / "one", [5])
    document = report([tmp_path / "one"])
    assert document["runs"][0]["curves"]["capture_rate"]["ci95"] == [None, None]
    assert "no interval" in Page((tmp_path / "one/report/report.html").read_text()).text


def test_an_aggregate_over_the_panel_is_shown(reported):
    iqm = reported[1]["runs"][0]["panel_iqm"]
    # Rates 0.93, 0.7, 0.8, 0.4 plus 0.01 per seed: the middle half are the eight of look_ahead and corner.
    assert iqm["iqm"] == pytest.approx(0.765)


def test_a_folder_that_cannot_be_written_is_one_line(run, tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(RunProblem, match="cannot write"):
        report([run], tmp_path / "taken")
    with pytest.raises(Refused, match="at least one run"):
        report([])


ALONE = "package = types.ModuleType('outlast.evaluate'); package.__path__ = [sys.argv[1]]; "
ALONE += "sys.modules['outlast.evaluate'] = package; "


@pytest.mark.parametrize(
    "before",
    [
        pytest.param(ALONE, id="report"),
        pytest.param(
            "", id="with evaluate", marks=pytest.mark.xfail(reason="outlast.evaluate imports its suites")
        ),
    ],
)
def test_reports_do_not_wait_for_the_trainer(before):
    code = f"import sys, types; {before}import outlast.report, outlast.report.plots, outlast.report.page; "
    code += "print('jax' in sys.modules, 'matplotlib' in sys.modules)"
    command = [sys.executable, "-c", code, str(Path(statistics.__file__).parent)]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False", "False"]

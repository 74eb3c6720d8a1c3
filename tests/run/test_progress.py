"""What is shown while a run goes on, on a clock of the test's own."""

from outlast.run import progress


def test_the_speed_leaves_out_the_time_before_the_first_step(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    display = progress.Display("run", 1000, 0)
    for seconds, done in ((100.0, 0), (110.0, 100), (121.0, 500)):
        now[0] = seconds
        display.show(done, "capture 0.50" if done else "")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "run: 0/1,000 steps, compiling"
    assert lines[-1] == "run: 500/1,000 steps, 24 steps/s, 21 s left, capture 0.50"


def test_a_quiet_display_says_nothing(monkeypatch, capsys):
    display = progress.Display("run", 10, 0, quiet=True)
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.0)
    display.show(5, "")
    assert capsys.readouterr().err == ""

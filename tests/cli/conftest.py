"""What the tests of the command line share: a place of their own and a way to run commands."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "run"))


@pytest.fixture
def outlast(monkeypatch, capsys, tmp_path):
    """Give a function that runs a command in an empty directory, in this process."""
    from outlast.cli import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OUTLAST_CACHE", jax.config.jax_compilation_cache_dir)
    monkeypatch.setenv("XLA_FLAGS", os.environ.get("XLA_FLAGS", ""))

    def run(*arguments):
        capsys.readouterr()
        try:
            code = main([str(a) for a in arguments])
        except SystemExit as left:
            code = left.code
        captured = capsys.readouterr()
        return SimpleNamespace(code=code, out=captured.out, err=captured.err)

    return run

"""What holds the code together: imports go one way, everything is small, and nothing foreign is committed."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "outlast"
ORDER = """
core config keys nets presets worlds safety learners selfplay programs evaluate run report viewer deploy adapters cli
"""
RANK = {name: rank for rank, name in enumerate(ORDER.split())}
FUNCTION_LINES, FILE_LINES = 80, 500
FOREIGN_CODE = {"pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib"}
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:home|root|Users|work|mnt)/\w|\b[A-Z]:\\\\?\w")
REGISTRY = re.compile(
    r"https?://[^\s\"'<>]*(?:pypi|pythonhosted|npmjs|yarnpkg|conda|artifactory|nexus|mirror|crates\.io|gcr\.io|docker)"
)


def tracked(*endings):
    """List the files of the repository that git knows or would take."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    paths = (ROOT / name for name in listed.stdout.split("\0") if name.endswith(endings or ("",)))
    return sorted(path for path in paths if path.is_file())


def imported(tree):
    """Name every module that a file imports, wherever in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def part_of(module):
    """Return the part of the package that a module belongs to, if any."""
    parts = module.split(".")
    return parts[1] if parts[0] == "outlast" and len(parts) > 1 and parts[1] in RANK else None


def wrong_imports(name, text):
    """List the imports of a file that go against the order."""
    own = name.removesuffix(".py").split("/")[0]
    found = {part_of(module) for module in imported(ast.parse(text))} - {None, own}
    return [part for part in sorted(found) if RANK[part] >= RANK.get(own, len(RANK))]


def depth(node, inside=0):
    """Count the levels of functions inside functions; a method is not inside anything."""
    deeper = inside + isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    return max([deeper, *(depth(child, deeper) for child in ast.iter_child_nodes(node))])


def functions(tree):
    """Yield every function with its number of lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.end_lineno - node.lineno + 1


def dangers(tree):
    """List the calls and imports that can run what a file says."""
    called = {n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    return sorted(called & {"eval", "exec", "compile"} | {m for m in imported(tree) if m in FOREIGN_CODE})


def test_every_part_of_the_package_has_its_place_in_the_order():
    parts = {path.name.removesuffix(".py") for path in SOURCE.iterdir()} - {
        "__init__",
        "__main__",
        "__pycache__",
    }
    assert parts <= set(RANK)


@pytest.mark.parametrize("path", tracked(".py"), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_is_small_safe_and_imports_one_way(path):
    text = path.read_text()
    tree = ast.parse(text)
    assert text.count("\n") <= FILE_LINES
    assert [found for found in functions(tree) if found[1] > FUNCTION_LINES] == []
    if path.is_relative_to(SOURCE):
        assert wrong_imports(path.relative_to(SOURCE).as_posix(), text) == []
        assert depth(tree) <= 2
    if not path.is_relative_to(ROOT / "tests"):
        assert dangers(tree) == []


def test_no_committed_text_names_a_machine_or_a_registry():
    found = []
    for path in tracked():
        try:
            lines = path.read_text().splitlines()
        except UnicodeDecodeError:
            continue
        if path != Path(__file__):
            found += [
                f"{path.relative_to(ROOT)}:{number}"
                for number, line in enumerate(lines, start=1)
                if MACHINE_PATH.search(line) or REGISTRY.search(line)
            ]
    assert found == []


def test_the_checks_see_what_they_are_for():
    assert wrong_imports("worlds/arena/world.py", "from outlast import keys, run") == ["run"]
    assert wrong_imports("worlds/arena/world.py", "def f():\n from outlast.learners import ppo") == [
        "learners"
    ]
    assert wrong_imports("keys.py", "import outlast.nets") == ["nets"]
    assert (
        wrong_imports("cli/commands.py", "from outlast.report import report\nimport outlast.run.loop") == []
    )
    assert depth(ast.parse("class A:\n def f(self):\n  def g():\n   def h(): pass")) == 3
    assert dangers(ast.parse("import pickle\neval('1')\njax.eval_shape(f)")) == ["eval", "pickle"]
    assert MACHINE_PATH.search('open("/home/me/x")') and MACHINE_PATH.search("C:\\\\Users")
    assert not MACHINE_PATH.search("runs/home/x or tests/root/y")
    assert REGISTRY.search("index = https://pypi.org/simple") and not REGISTRY.search(
        "http://www.w3.org/2000/svg"
    )

"""What importing costs: next to nothing, and never the terminal's or the plots' libraries."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import crfield

HEAVY = ("typer", "rich", "matplotlib", "pandas", "torch")
BASE = "import numpy, scipy.sparse, scipy.optimize, sklearn.base"
LIMIT = 0.3
ROUNDS = 4


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def loaded_after(code: str) -> set[str]:
    return set(run(f"import sys\n{code}\nprint(*{{name.split('.')[0] for name in sys.modules}})").split())


# Notes every package that a module of ours asks for, be it installed here or not.
WATCH = """
import sys
asked = set()
class Watch:
    def find_spec(self, name, path=None, target=None):
        frame = sys._getframe(1)
        while frame.f_globals["__name__"].startswith(("importlib", "_frozen_importlib")):
            frame = frame.f_back
        if frame.f_globals["__name__"].split(".")[0] == "crfield":
            asked.add(name.split(".")[0])
sys.meta_path.insert(0, Watch())
"""


def asked_by_us(code: str) -> set[str]:
    return set(run(f"{WATCH}\n{code}\nprint(*asked)").split())


def cheap(code: str, *, after_base: bool) -> tuple[bool, float, float]:
    """Whether the code costs at most LIMIT of the CPU time of the base libraries, in fresh processes.

    The best of several rounds counts; as noise only ever adds, the first round that is cheap enough ends it.
    """
    timed = "import time\nbegan = time.process_time()\n{}\nprint(time.process_time() - began)"
    cost = base = float("inf")
    for _ in range(ROUNDS):
        if after_base:
            both = [float(part) for part in run(f"{timed.format(BASE)}\n{timed.format(code)}").split()]
        else:
            both = [float(run(timed.format(part))) for part in (BASE, code)]
        base, cost = min(base, both[0]), min(cost, both[1])
        if cost <= LIMIT * base:
            return True, cost, base
    return False, cost, base


def test_import_loads_the_standard_library_alone() -> None:
    """Not the terminal's libraries, not those of plots, not even numpy."""
    new = loaded_after("import crfield") - loaded_after("pass") - sys.stdlib_module_names
    assert new == {"crfield"}
    assert asked_by_us("import crfield") <= sys.stdlib_module_names | {"crfield"}


TRAINING = """
import crfield
model = crfield.ChainCRF(verbose=1).fit([[["a"], ["b"]]], [["A", "B"]])
model.predict([[["a"]]]), repr(model.transitions_), repr(model.top_features())
"""


def test_training_loads_no_libraries_of_the_terminal_or_of_plots() -> None:
    """A progress line on a terminal needs rich; a fit in a script does not. What scikit-learn loads is its own."""
    assert not (loaded_after(TRAINING) - loaded_after(BASE)) & set(HEAVY)
    assert not asked_by_us(TRAINING) & set(HEAVY)


def test_the_watch_sees_what_is_asked_for() -> None:
    """A package that is not installed, asked for within try, must turn the tests above red as well."""
    for name in ("typer", "not_there_at_all"):
        planted = f"exec('try: import {name}\\nexcept ImportError: pass', {{'__name__': 'crfield.planted'}})"
        assert asked_by_us(planted) == {name}
        assert not asked_by_us(planted.replace("crfield.planted", "somebody.else"))


def test_import_is_cheap() -> None:
    ok, cost, base = cheap("import crfield", after_base=False)
    assert ok, f"import crfield takes {cost:.3f} s of CPU time, the base libraries {base:.3f} s"


def test_our_own_modules_are_cheap_beside_the_base_libraries() -> None:
    """Names are loaded lazily, which must not merely hide the cost: here the estimator is asked for."""
    ok, cost, base = cheap("import crfield\ncrfield.ChainCRF\ncrfield.load", after_base=True)
    assert ok, f"crfield.ChainCRF takes {cost:.3f} s of CPU time, the base libraries {base:.3f} s"


def test_a_name_loads_only_what_it_needs() -> None:
    """Reading a file of columns needs neither scipy nor scikit-learn."""
    assert not loaded_after("import crfield\ncrfield.read_columns\ncrfield.Template") & {"scipy", "sklearn", *HEAVY}


@pytest.mark.parametrize("words", ["--version", "--help"])
def test_the_command_line_starts_without_the_libraries(words: str) -> None:
    started = f"from crfield.cli.main import app\napp(['{words}'], standalone_mode=False)"
    assert not set(run(f"import sys\n{started}\nprint(*sys.modules)").split()) & {"numpy", "scipy", "sklearn", "rich"}


VERBS = ("tag -m {0} {1}", "evaluate -m {0} {1}", "explain -m {0} {1}", "inspect {0}")


@pytest.mark.parametrize("words", VERBS, ids=lambda words: words.split()[0])
def test_verbs_import_only_what_they_use(words: str, tmp_path: Path) -> None:
    """Loading a model and asking it needs numpy; scikit-learn, rich and plots are for verbs that use them."""
    data, model = tmp_path / "data.txt", tmp_path / "model.crfield"
    data.write_text("a x A\nb y B\n\na x A\n")
    crfield.ChainCRF(template="U0:%x[0,0]").fit([[("a", "x"), ("b", "y")]], [["A", "B"]]).save(model)
    started = f"from crfield.cli.main import app\napp({words.format(model, data).split()!r}, standalone_mode=False)"
    came = run(f"import sys\n{started}\nprint(); print(*sys.modules)").splitlines()[-1].split()
    assert "crfield.estimators.chain.crf" in came
    assert not set(came) & {"sklearn", "scipy.stats", "rich", "matplotlib", "pandas"}


def test_the_table_of_verbs_is_what_the_verbs_say() -> None:
    from crfield.cli.main import VERBS, loaded

    for name, (_, line) in VERBS.items():
        assert loaded(name).help.split("\n")[0] == line, name

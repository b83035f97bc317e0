"""What importing costs: next to nothing, and never the terminal's or the plots' libraries."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("typer", "rich", "matplotlib", "pandas")
BASE = "import numpy, scipy.sparse, scipy.optimize, sklearn.base"
LIMIT = 0.3
ROUNDS = 4


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def loaded_after(code: str) -> set[str]:
    return set(run(f"import sys\n{code}\nprint(*{{name.split('.')[0] for name in sys.modules}})").split())


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


def test_import_loads_no_libraries_of_the_terminal_or_of_plots() -> None:
    assert not loaded_after("import crfield") & set(HEAVY)


def test_training_loads_none_either() -> None:
    """A progress line on a terminal needs rich; a fit in a script does not."""
    code = (
        "import crfield\n"
        "model = crfield.ChainCRF(verbose=1).fit([[['a'], ['b']]], [['A', 'B']])\n"
        "model.predict([[['a']]]), repr(model.transitions_), repr(model.top_features())"
    )
    assert not loaded_after(code) & set(HEAVY)


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

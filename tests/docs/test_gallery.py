"""The gallery: every script runs in a process of its own, quickly, and draws one picture."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "gallery"
SCRIPTS = sorted(FOLDER.rglob("*.py"))
SECONDS = 60  # on a busy machine; alone each takes less than ten
# What is drawn is told of at the end, so that a script without a picture, or with an empty one, is seen.
TOLD = """
import json, runpy, sys
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
runpy.run_path(sys.argv[1], run_name="__main__")
figures = [plt.figure(number) for number in plt.get_fignums()]
print(json.dumps([[len(figure.axes), figure.get_figwidth()] for figure in figures]))
"""

each_script = pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: f"{path.parent.name}/{path.stem}")


@pytest.mark.slow
@each_script
def test_a_script_runs_and_draws_one_picture(script: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    done = subprocess.run(
        [sys.executable, "-W", "ignore:FigureCanvasAgg", "-c", TOLD, str(script)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=tmp_path,
        timeout=SECONDS,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUTF8": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    drawn = json.loads(done.stdout.splitlines()[-1])
    assert len(drawn) == 1, f"one picture is wanted, got {len(drawn)}"
    panels, width = drawn[0]
    assert panels > 0
    assert width <= 7, "wider than a page"
    assert not list(tmp_path.iterdir()), "it left a file behind"


@each_script
def test_a_script_is_a_short_page(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    told = ast.get_docstring(ast.parse(text)) or ""
    title, rule, *rest = told.splitlines()
    assert set(rule) == {"="}, "a title, underlined, comes first"
    assert len(rule) >= len(title)
    assert len(" ".join(rest).split()) >= 40, "say what it is about"
    assert "\n# %%\n" in text
    assert len(text.splitlines()) <= 120
    assert "random_state" in text or "seed" in text or "Random(" in text or "default_rng(" in text


def test_there_are_enough() -> None:
    assert len(SCRIPTS) >= 15
    for folder in {script.parent for script in SCRIPTS}:
        assert (folder / "GALLERY_HEADER.rst").exists(), f"{folder.name} has no words of its own"

"""Tables and lines for people: they line up, survive odd names, and the progress line knows its place."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from crfield.errors import LabelError, ShapeError
from crfield.estimators.base import progress as progress_module
from crfield.estimators.base.progress import Progress
from crfield.report.alignment import width
from crfield.report.marginals import SequenceMarginals
from crfield.report.weights import FeatureList, FeatureWeight, TransitionTable

ODD = ["plain", "日本語", "tab\there", "line\nend", "\x1b[31mred", "lone \ud800", ("B", 1), 3]


def test_transition_table_lines_up() -> None:
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(8, 8)) * 10
    weights[2, :] = np.nan
    weights[3, 4] = np.nan
    lines = str(TransitionTable(ODD, weights)).split("\n")
    assert len(lines) == 10
    assert len({width(line) for line in lines[:-1]}) == 1
    assert all(line.isprintable() for line in lines)
    assert sum(line.count("*") for line in lines[1:9]) == 7
    for row, line in enumerate(lines[1:9]):
        if row != 2:
            assert f"*{np.nanmax(weights[row]):.2f}" in line
    assert lines[3].count("·") == 8
    assert "· no weight" in lines[-1]


def test_transition_table_of_many_labels_lists_pairs() -> None:
    weights = np.arange(441.0).reshape(21, 21)
    table = TransitionTable([f"L{k}" for k in range(21)], weights)
    lines = str(table).split("\n")
    assert lines[0] == "21 labels, 441 transitions with a weight"
    assert lines[2].split() == ["L20", "→", "L20", "440.00"]
    assert lines[13].split() == ["L0", "→", "L0", "0.00"]
    assert len(lines) == 23
    sparse = np.full((21, 21), np.nan)
    sparse[0, 1] = 1
    assert "weakest" not in str(TransitionTable(list(range(21)), sparse))
    assert repr(table) == str(table)


def test_transition_table_answers() -> None:
    table = TransitionTable(np.array(["A", "B"]), np.array([[1, np.nan], [3, -2]]))
    assert table.top(2) == [("B", "A", 3.0), ("A", "A", 1.0)]
    assert table.bottom(1) == [("B", "B", -2.0)]
    assert table.top(99) == table.bottom(99)[::-1]
    assert table.top(0) == []
    assert table.to_dict() == {("A", "A"): 1.0, ("B", "A"): 3.0, ("B", "B"): -2.0}
    assert type(table.top(1)[0].source) is str
    assert str(TransitionTable([], np.zeros((0, 0)))) == "no labels"
    with pytest.raises(ShapeError, match=r"2 labels must be \(2, 2\), got \(2, 3\)"):
        TransitionTable(["A", "B"], np.zeros((2, 3)))


def test_transition_table_keeps_its_own_numbers() -> None:
    weights = np.zeros((1, 1))
    table = TransitionTable(["A"], weights)
    weights[0, 0] = 5
    assert table.top(1)[0].weight == 0


def test_feature_list() -> None:
    features = FeatureList.from_arrays([str(name) for name in ODD], ODD, np.arange(-4.0, 4))
    lines = str(features).split("\n")
    assert len(lines) == len(ODD)
    assert all(line.isprintable() for line in lines)
    assert [item.weight for item in features.top(2)] == [3, 2]
    assert [item.weight for item in features.bottom(2)] == [-4, -3]
    assert features.for_label(("B", 1))[0].weight == 2
    assert isinstance(features[1:3], FeatureList)
    assert features[-1] == FeatureWeight("3", 3, 3.0)
    assert features.to_dicts()[0] == {"name": "plain", "label": "plain", "weight": -4.0}
    assert str(FeatureList([])) == "no features"
    with pytest.raises(ValueError):
        FeatureList.from_arrays(["a"], ["A", "B"], [1.0])


def test_marginals_show_the_chosen_label_and_the_runner_up() -> None:
    probabilities = np.array([[0.2, 0.5, 0.3], [1.0, 0.0, 0.0]])
    lines = SequenceMarginals(["x", "y"], ["A", "B", "C"], probabilities).text(bar=10).split("\n")
    assert lines[0].split() == ["x", "B", "0.500", "█████", "C", "0.300"]
    assert lines[1].split()[:4] == ["y", "A", "1.000", "██████████"]
    lines = str(SequenceMarginals(["x", "y"], ["A", "B", "C"], probabilities, ["C", "A"])).split("\n")
    assert lines[0].split()[1:3] == ["C", "0.300"]
    assert lines[0].split()[-2:] == ["B", "0.500"]


def test_marginals_line_up_with_odd_tokens() -> None:
    rng = np.random.default_rng(0)
    steps = SequenceMarginals(ODD, ["A", "日本", "x" * 50], rng.dirichlet(np.ones(3), len(ODD)))
    assert len({width(line) for line in str(steps).split("\n")}) == 1
    plain = steps.text(ascii_only=True)
    assert plain.isascii()
    assert len({len(line) for line in plain.split("\n")}) == 1


def test_marginals_at_the_edges() -> None:
    assert str(SequenceMarginals([], ["A"], np.zeros((0, 1)))) == "empty sequence"
    assert str(SequenceMarginals(["x"], ["A"], np.ones((1, 1)))).split() == ["x", "A", "1.000", "█" * 20]
    with pytest.raises(ShapeError, match=r"must be \(1, 2\), got \(2, 1\)"):
        SequenceMarginals(["x"], ["A", "B"], np.ones((2, 1)))
    with pytest.raises(ShapeError, match="as many predicted labels, got 2"):
        SequenceMarginals(["x"], ["A"], np.ones((1, 1)), ["A", "A"])
    with pytest.raises(LabelError, match="'Z' of step 0"):
        str(SequenceMarginals(["x"], ["A"], np.ones((1, 1)), ["Z"]))


def step(number: int) -> Any:
    return SimpleNamespace(n_iter=number, value=1e6 / number, gradient_norm=0.5, n_active=1234, seconds=0.5)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_silent_unless_asked() -> None:
    stream = io.StringIO()
    for verbose in (False, 0):
        with Progress(verbose, stream=stream) as progress:
            progress.update(step(1))
    assert stream.getvalue() == ""


def test_progress_in_a_log_is_sparse_and_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: clock[0])
    stream = io.StringIO()
    with Progress(True, stream=stream) as progress:
        for number in range(1, 24):
            clock[0] += 1
            progress.update(step(number))
    progress.update(step(99))
    lines = stream.getvalue().splitlines()
    assert [line.split()[2] for line in lines] == ["5", "10", "15", "20", "23"]
    assert lines[0] == "training: step 5  objective 200,000.00  gradient 5.0e-01  weights 1.2k  0.5 s"


def test_progress_shows_the_last_step_even_after_an_error() -> None:
    stream = io.StringIO()

    def interrupted() -> None:
        with Progress(True, stream=stream) as progress:
            progress.update(step(1))
            progress.update(step(2))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert stream.getvalue().count("\n") == 1
    assert "step 2" in stream.getvalue()


def test_progress_by_step() -> None:
    stream = Terminal()
    with Progress(2, stream=stream) as progress:
        for number in (1, 2, 3):
            progress.update(step(number))
    assert len(stream.getvalue().splitlines()) == 3


@pytest.mark.parametrize("total", [None, 10])
def test_progress_on_a_terminal(monkeypatch: pytest.MonkeyPatch, total: int | None) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Terminal()
    with Progress(1, total, "fitting [a]", stream=stream) as progress:
        progress.update(step(1))
        with Progress(1, stream=stream) as inner:
            inner.update(step(3))
        progress.update(step(2))
    assert "step 2" in stream.getvalue()
    assert "fitting [a]" in stream.getvalue()
    assert "step 3" in stream.getvalue()
    assert "\x1b[" in stream.getvalue()


@pytest.mark.parametrize("columns", [80, 40, 12])
@pytest.mark.parametrize("value", [1.5, 123_456_789.123456, -1e300, float("inf")])
def test_the_progress_line_fits(monkeypatch: pytest.MonkeyPatch, columns: int, value: float) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(columns))
    large = SimpleNamespace(n_iter=12_345, value=value, gradient_norm=1e-300, n_active=987_654_321, seconds=123_456.7)
    for description in ("ChainCRF", "DiscriminativeRandomField"):
        for total in (None, 20_000):
            live, log = Terminal(), io.StringIO()
            with Progress(1, total, description, stream=live) as progress, Progress(2, stream=log) as plain:
                progress.update(large)
                plain.update(large)
            lines = re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", live.getvalue()))
            assert all(width(line.rstrip()) <= columns for line in lines)
            if columns == 80:
                assert "step 12345  objective " in lines[-2]  # whole, and not cut at the edge
                assert "…" not in lines[-2]
            assert len(log.getvalue().rstrip()) <= 80


def test_progress_on_a_dumb_terminal_is_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    stream = Terminal()
    with Progress(1, stream=stream) as progress:
        progress.update(step(1))
    assert stream.getvalue().startswith("training: step 1")
    assert "\x1b" not in stream.getvalue()


def test_a_broken_stream_does_not_stop_training(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    stream = io.StringIO()
    stream.close()
    with Progress(2, stream=stream) as progress:
        progress.update(step(1))
        progress.update(step(2))
    monkeypatch.setattr(sys, "stderr", None)
    with Progress(2) as progress:
        progress.update(step(1))
    assert capsys.readouterr().out == ""


def test_rich_is_imported_only_for_a_terminal() -> None:
    code = (
        "import sys\nfrom crfield.estimators.base.progress import Progress\n"
        "from types import SimpleNamespace as S\n"
        "with Progress(True) as p:\n"
        "    p.update(S(n_iter=1, value=1, gradient_norm=1, n_active=1, seconds=1))\n"
        "print('rich' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    assert done.stdout == "False\n"
    assert done.stderr.startswith("training: step 1 ")

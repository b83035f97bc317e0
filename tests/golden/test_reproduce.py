"""`crfield reproduce`: the machinery on a study of coins, and the quick forms of the studies of boosting."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from crfield.errors import CrfieldError, InputError
from crfield.experiments import reproductions
from crfield.experiments.findings import Claim, Findings, mean_interval
from crfield.experiments.repetitions import Reproduced, Study, by_seed, curve, run_study, settings_of
from crfield.experiments.reproductions import Record, study_named, study_names
from crfield.report.displays_curves import Chart, Curve, plot_charts
from crfield.training.parallel import run_each
from tests.golden.cli_cases import run, works

# ------------------------------------------------------------------------------------------------- a study of coins

THROWN: list[Any] = []


def coins() -> Study:
    def throw(settings: Any, case: Any) -> dict[str, float]:
        THROWN.append(case)
        return {"heads": (case["seed"] * 7 + case["coin"] * 3) % 10 / 10}

    def report(settings: Any, outcomes: Any) -> Reproduced:
        coins = range(settings["coins"])
        heads = [by_seed(outcomes, lambda outcome: outcome["heads"], coin=coin) for coin in coins]
        rows = tuple((f"coin {coin}", mean_interval(heads[coin])) for coin in coins)
        chart = Chart("coins", "coin", "heads", (curve("all", list(coins), heads),))
        return Reproduced(Findings("coins", ("coin", "heads"), rows, (Claim("fair", False, "no"),)), (chart,))

    return Study(
        "throws of coins",
        {"seeds": [1, 2, 3], "coins": 2},
        {"seeds": [1, 2], "coins": 2},
        lambda settings: [
            {"seed": seed, "coin": coin} for seed in settings["seeds"] for coin in range(settings["coins"])
        ],
        throw,
        report,
    )


@pytest.fixture
def with_coins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "thrown_coins", SimpleNamespace(STUDY=coins(), __spec__=object()))
    modules = {**reproductions.MODULES, "coins": "thrown_coins"}
    monkeypatch.setattr(reproductions, "MODULES", modules)
    THROWN.clear()


@pytest.mark.usefixtures("with_coins")
def test_table_charts_and_json(tmp_path: Path) -> None:
    result = works("reproduce", "coins", "--out", tmp_path / "new")
    assert "coin 0" in result.stdout
    assert "1 of 1 claims do not hold: fair" in result.stdout
    told = json.loads((tmp_path / "new" / "coins.json").read_text(encoding="utf-8"))
    assert told["command"] == "crfield reproduce coins"
    assert told["seeds"] == [1, 2, 3]
    assert {"crfield", "numpy", "python"} <= set(told["versions"])
    assert told["rows"][0]["heads"]["low"] < told["rows"][0]["heads"]["mean"] < told["rows"][0]["heads"]["high"]
    assert told["cases"][0] == {"seed": 1, "coin": 0, "heads": 0.7}
    assert len(told["cases"]) == 6
    assert (tmp_path / "new" / "coins.png").read_bytes().startswith(b"\x89PNG")
    assert "coin 0" in (tmp_path / "new" / "coins.txt").read_text(encoding="utf-8")
    assert {path.suffix for path in (tmp_path / "new").iterdir()} == {".txt", ".json", ".png"}


@pytest.mark.usefixtures("with_coins")
def test_options(tmp_path: Path) -> None:
    works("reproduce", "coins", "--quick", "--repetitions", 4, "--seed", 5, "--out", tmp_path)
    told = json.loads((tmp_path / "coins-quick.json").read_text(encoding="utf-8"))
    assert told["seeds"] == [5, 6, 7, 8]
    assert told["command"] == "crfield reproduce coins --quick --repetitions 4 --seed 5"
    shown = json.loads(works("reproduce", "coins", "--json", "--out", tmp_path).stdout)
    assert shown["rows"][1]["coin"] == "coin 1"
    assert "throws of coins" in works("reproduce", "--list").stdout


@pytest.mark.usefixtures("with_coins")
def test_without_matplotlib_all_but_the_picture_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = works("reproduce", "coins", "--out", tmp_path)
    assert "not drawn: pictures need matplotlib" in result.output
    assert not (tmp_path / "coins.png").exists()
    assert (tmp_path / "coins.json").exists()


@pytest.mark.usefixtures("with_coins")
def test_a_run_goes_on_where_it_stood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproductions, "_SAVED_EVERY", 0.0)
    study = coins()
    settings = settings_of(study)
    record = Record(str(tmp_path), "coins", settings)
    keep = record.saver({})

    class Stop(Exception): ...

    def after(name: str, outcome: Any, done: int, total: int) -> None:
        keep(name, outcome)
        if done == 4:
            raise Stop

    with pytest.raises(Stop):
        run_study(study, settings, after=after)
    assert len(record.known()) == 4
    assert Record(str(tmp_path), "coins", {**settings, "coins": 3}).known() == {}, "other settings, other numbers"
    THROWN.clear()
    assert "4 cases are done" in works("reproduce", "coins", "--out", tmp_path).output
    assert len(THROWN) == 2
    assert not (tmp_path / "coins.partial.json").exists()
    assert len(json.loads((tmp_path / "coins.json").read_text(encoding="utf-8"))["cases"]) == 6
    (tmp_path / "coins.partial.json").write_text("{ damaged")
    assert record.known() == {}


def test_the_command_names_what_is_wrong(tmp_path: Path) -> None:
    assert run("reproduce", "roses").exit_code == 2
    assert run("reproduce").exit_code == 2
    assert run("reproduce", "veb-fig1a", "--repetitions", 0).exit_code == 2
    with pytest.raises(InputError, match="there is no study"):
        study_named("roses")
    with pytest.raises(InputError, match="at least one repetition"):
        settings_of(coins(), repetitions=0)
    with pytest.raises(InputError, match="equally many"):
        Curve("mine", (1,), (0.5, 0.5), (0.5,), (0.5,))
    with pytest.raises(InputError, match="at least one chart"):
        plot_charts([])


# ---------------------------------------------------------------------------------------------------------- processes


def test_processes_give_what_one_process_gives() -> None:
    numbers = [(number, 3) for number in range(6)]
    assert sorted(run_each(divmod, numbers, n_jobs=2)) == sorted(run_each(divmod, numbers))


def test_an_error_in_a_process_reaches_the_caller() -> None:
    with pytest.raises(ZeroDivisionError):
        list(run_each(divmod, [(1, 1), (1, 0), (2, 1)], n_jobs=2))
    with pytest.raises(CrfieldError, match="n_jobs"):
        list(run_each(divmod, [(1, 1)], n_jobs=0))


# --------------------------------------------------------------------------------------------------------- charts


def test_charts_of_numbers_and_of_names() -> None:
    lines = Chart("a", "p", "right", (Curve("m", (1, 2), (0.5, 0.6), (float("nan"), 0.5), (float("nan"), 0.7)),))
    rows = Chart("b", "method", "right", (Curve("m", ("x", "y"), (0.5, 0.6), (0.4, 0.5), (0.6, 0.7)),))
    figure = plot_charts([lines, rows])
    assert [axes.get_title() for axes in figure.axes] == ["a", "b"]
    assert [label.get_text() for label in figure.axes[1].get_yticklabels()] == ["x", "y"]
    assert json.loads(json.dumps(lines.to_dict(), allow_nan=False))["curves"][0]["low"] == [None, 0.5]


# -------------------------------------------------------------------------------------------------------- the studies


@pytest.mark.parametrize("name", study_names())
def test_every_study_is_whole(name: str) -> None:
    """Both forms have cases, which are plain and all different, and the whole form has five repetitions or more."""
    study = study_named(name)
    assert study.summary
    assert len(study.full["seeds"]) >= 5
    for settings in (study.full, study.quick):
        cases = study.cases(settings)
        assert json.loads(json.dumps([settings, cases])) == [dict(settings), cases]
        assert len({json.dumps(case) for case in cases}) == len(cases) > 0
        assert all(case["seed"] in settings["seeds"] for case in cases)

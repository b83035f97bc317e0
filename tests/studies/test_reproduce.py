"""`crfield reproduce`: the machinery on a study of coins, and the quick forms of the studies of boosting."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from crfield.errors import CrfieldError, InputError
from crfield.report.displays.curves import Chart, Curve, plot_charts
from crfield.report.findings import Claim, Findings, Interval, mean_interval
from crfield.training.parallel import run_each
from studies import catalogue
from studies import record as records
from studies.catalogue import CATALOGUE, Entry, study_named
from studies.draw_again import draw_again
from studies.framework import Study, above, by_seed, curve, run_study
from studies.judge_again import claims_of, judge_again
from studies.record import Record, summary
from studies.virtual_evidence import chains
from tests.cases.command_line import run, works

DOCS = Path(__file__).parents[2] / "docs"

# ------------------------------------------------------------------------------------------------- a study of coins

THROWN: list[Any] = []


def coins() -> Study:
    def throw(settings: Any, case: Any) -> dict[str, float]:
        THROWN.append(case)
        return {"heads": (case["seed"] * 7 + case["coin"] * 3) % 10 / 10}

    def report(settings: Any, outcomes: Any) -> Findings:
        coins = range(settings["coins"])
        heads = [by_seed(outcomes, lambda outcome: outcome["heads"], coin=coin) for coin in coins]
        rows = tuple((f"coin {coin}", mean_interval(heads[coin])) for coin in coins)
        chart = Chart("coins", "coin", "heads", (curve("all", list(coins), heads),))
        return Findings("coins", ("coin", "heads"), rows, charts=(chart,))

    return Study(
        {"seeds": [1, 2, 3], "coins": 2},
        {"seeds": [1, 2], "coins": 2},
        lambda settings: [
            {"seed": seed, "coin": coin} for seed in settings["seeds"] for coin in range(settings["coins"])
        ],
        throw,
        report,
        lambda settings, outcomes: [Claim("fair", False, "no")],
    )


@pytest.fixture
def with_coins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "studies.thrown_coins", SimpleNamespace(STUDY=coins(), __spec__=object()))
    entries = {**CATALOGUE, "coins": Entry("thrown_coins", "throws of coins", "no time")}
    monkeypatch.setattr(catalogue, "CATALOGUE", entries)
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
    assert "not drawn: plots need matplotlib" in result.output
    assert not (tmp_path / "coins.png").exists()
    assert (tmp_path / "coins.json").exists()


@pytest.mark.usefixtures("with_coins")
@pytest.mark.parametrize("every", [0.0, 60.0])
def test_a_run_goes_on_where_it_stood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: float) -> None:
    monkeypatch.setattr(records, "_SAVED_EVERY", every)
    study = coins()
    settings = study.settings()
    record = Record(str(tmp_path), "coins", settings)

    def after(name: str, outcome: Any, done: int, total: int) -> None:
        keep(name, outcome)
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), record.keeping({}) as keep:
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
        coins().settings(repetitions=0)
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


def test_nobody_waits_for_what_is_no_longer_wanted() -> None:
    cases = run_each(time.sleep, [(0,), (300,), (300,), (300,)], n_jobs=2)
    assert next(cases) == (0, None)
    began = time.monotonic()
    cases.close()  # type: ignore[attr-defined]
    assert time.monotonic() - began < 60


# --------------------------------------------------------------------------------------------------------- charts


def test_charts_of_numbers_and_of_names() -> None:
    lines = Chart("a", "p", "right", (Curve("m", (1, 2), (0.5, 0.6), (float("nan"), 0.5), (float("nan"), 0.7)),))
    rows = Chart("b", "method", "right", (Curve("m", ("x", "y"), (0.5, 0.6), (0.4, 0.5), (0.6, 0.7)),))
    figure = plot_charts([lines, rows])
    assert [axes.get_title() for axes in figure.axes] == ["a", "b"]
    assert [label.get_text() for label in figure.axes[1].get_yticklabels()] == ["x", "y"]
    assert json.loads(json.dumps(lines.to_dict(), allow_nan=False))["curves"][0]["low"] == [None, 0.5]


def test_numbers_far_apart_have_logarithmic_axes_and_charts_stand_in_rows() -> None:
    far = Curve("m", (1, 1000), (5.0, 0.001), (4.0, float("nan")), (6.0, float("nan")))
    near = Curve("m", (1, 100), (0.0, 1.0), (0.0, 0.9), (0.1, 1.0))
    names = Curve("m", ("x", "y"), (0.5, 0.6), (0.4, 0.5), (0.6, 0.7))
    charts = [Chart(str(k), "p", "q", (curve,)) for k, curve in enumerate((far, near, names, names, near))]
    figure = plot_charts(charts)
    assert [axes.get_xscale() for axes in figure.axes[:2]] == ["log", "linear"]
    assert [axes.get_yscale() for axes in figure.axes[:2]] == ["log", "linear"]
    right = [bool(axes.get_position().x0 > 0.4) for axes in figure.axes]
    assert right == [False, True, False, True, False]
    assert figure.get_figwidth() < 9
    assert not any(label.get_visible() for label in figure.axes[3].get_yticklabels()), "told once in a row"
    assert [Chart.from_dict(chart.to_dict()).to_dict() for chart in charts] == [chart.to_dict() for chart in charts]


def test_pictures_are_drawn_again_from_what_is_stored(tmp_path: Path) -> None:
    results = Path(__file__).parents[2] / "docs" / "results"
    (tmp_path / "veb-fig1b.json").write_bytes((results / "veb-fig1b.json").read_bytes())
    (tmp_path / "letters.json").write_bytes((results / "letters.json").read_bytes())
    (tmp_path / "veb-fig1b.png").write_bytes(b"old")
    assert draw_again(tmp_path) == [tmp_path / "veb-fig1b.png"]
    assert (tmp_path / "veb-fig1b.png").read_bytes()[:4] == b"\x89PNG"


# -------------------------------------------------------------------------------------------------------- the studies


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_study_is_whole(name: str) -> None:
    """Both forms have cases, which are plain and all different; repetitions of the whole form are enough."""
    study = study_named(name)
    assert len(study.full.get("seeds", range(5))) >= (3 if name == "hidden-labels" else 5)
    for settings in (study.full, study.quick):
        cases = study.cases(settings)
        assert json.loads(json.dumps([settings, cases])) == [dict(settings), cases]
        assert len({json.dumps(case) for case in cases}) == len(cases) > 0
        assert {case.get("seed") for case in cases} <= {None, *settings.get("seeds", ())}


SMALL = {
    "veb-fig1a": {"p": [0.97], "seeds": [1, 2], "folds": 1, "n_chains": 5, "length": 400},
    "veb-fig1b": {"k": [3], "seeds": [1, 2], "folds": 1, "n_chains": 4, "length": 120, "bethe": [[1, 0]]},
    "veb-activities": {"features": [12], "seeds": [1, 2], "folds": 1, "n_days": 4},
    "veb-contexts": {"seeds": [1, 2], "folds": 1, "n_episodes": 3, "length": 60},
}


@pytest.fixture(scope="module")
def small() -> dict[str, tuple[list[tuple[Any, Any]], Findings]]:
    """Every study of virtual evidence on very little data."""
    found = {}
    for name, settings in SMALL.items():
        study = study_named(name)
        outcomes = run_study(study, settings)
        found[name] = (outcomes, study.found(settings, outcomes))
    return found


@pytest.mark.parametrize("name", SMALL)
def test_studies_of_virtual_evidence(name: str, small: Any) -> None:
    outcomes, found = small[name]
    assert len(outcomes) == len(study_named(name).cases(SMALL[name]))
    assert json.loads(json.dumps(outcomes)) == [list(pair) for pair in outcomes], "plain values, for the JSON"
    methods = {row[0].split(",")[0].split(":")[0] for row in found.rows}
    assert {"VEB", "LogitBoost"} & methods
    assert found.claims
    assert {claim.sentence.split(",")[0].split(":")[0] for claim in found.claims} == {"paper", "ours"}
    assert "claims of the paper hold" in summary(found)
    assert plot_charts(found.charts).axes
    for row in found.rows:
        for cell in row:
            assert not isinstance(cell, Interval) or -1 <= cell.mean <= 1


def test_coupling_is_used_and_the_ceiling_is_above(small: Any) -> None:
    """At p = .97 whoever sees neighbours is above who does not, and the true model is above all (by node)."""
    outcomes, _ = small["veb-fig1a"]

    def mean(name: str) -> float:
        return sum(by_seed(outcomes, lambda outcome: outcome[name][chains.MPM])) / 2

    for name in (chains.EXACT, chains.VERIFIED, chains.ML):
        assert mean(chains.ALONE) + 0.1 < mean(name) < mean(chains.CEILING)


def test_the_true_relation_is_picked(small: Any) -> None:
    outcomes, found = small["veb-fig1b"]
    for _, outcome in outcomes:
        assert outcome["picks"]["VEB, verified"] == {"+1": 0, "+2": 0, "+3": 1, "+4": 0, "+5": 0}
        assert outcome["picks"]["VEB, exact"]["+3"] > 0
    assert found["VEB, verified: accepted at distance k", "k = 3"] == "1.0"
    assert [("ML, Bethe" in outcome) for _, outcome in outcomes] == [True, False]


@pytest.mark.parametrize("path", sorted((DOCS / "results").glob("*.json")), ids=lambda path: path.stem)
def test_stored_verdicts_are_those_of_today(path: Path) -> None:
    """The claims of a result are judged as the study judges them now; `studies.judge_again` writes them anew."""
    told = json.loads(path.read_text(encoding="utf-8"))
    judged = Findings(told["title"], ("",), (), claims_of(path.stem, told)).to_dict()
    assert told["claims"] == judged["claims"]
    assert told["verdict"] == judged["verdict"]


def test_results_are_judged_again(tmp_path: Path) -> None:
    """JSON, text and page get the verdict open; numbers stay."""
    found = Findings("coins", ("coin", "heads"), (("fair", 0.5),), (above("mine", [0.5, 0.7], [0.6, 0.5]),))
    record = Record(str(tmp_path), "veb-fig1a", {})
    assert found.claims[0].holds is None
    assert summary(found) == "1 of 1 claims are open: mine"
    wrong = Findings(found.title, found.columns, found.rows, (Claim("mine", False, found.claims[0].found),))
    record.write(wrong, [], command="crfield experiment coins", cpu_seconds=0.0)
    told = json.loads((tmp_path / "veb-fig1a.json").read_text(encoding="utf-8"))
    del told["cases"]
    (tmp_path / "veb-fig1a.json").write_text(json.dumps(told, indent=2))
    page = tmp_path / "page.md"
    page.write_text(f"so:\n{wrong.claims[0]}\n")
    assert judge_again(tmp_path / "veb-fig1a.json", [page])
    assert json.loads((tmp_path / "veb-fig1a.json").read_text(encoding="utf-8"))["claims"][0]["holds"] is None
    assert "\nopen mine: +0.050" in (tmp_path / "veb-fig1a.txt").read_text(encoding="utf-8")
    assert page.read_text() == f"so:\n{found.claims[0]}\n"
    assert not judge_again(tmp_path / "veb-fig1a.json", [page]), "once is enough"


def test_the_pages_show_what_was_found() -> None:
    """Every text in docs/results stands in the page of its method or in a guide, as it is."""
    pages = "\n".join(page.read_text(encoding="utf-8") for page in sorted(DOCS.rglob("*.md")))
    texts = sorted((DOCS / "results").glob("*.txt"))
    assert texts
    for text in texts:
        assert text.read_text(encoding="utf-8") in pages, f"{text.name} is not what the page shows"
        told = json.loads(text.with_suffix(".json").read_text(encoding="utf-8"))
        assert told["command"] in pages or told["command"].removesuffix(" --json") in pages

"""Engines compared on the same scores: numbers, verdicts, pictures, the command."""

from __future__ import annotations

import io
import itertools
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crfield
from crfield import HMM, GridCRF
from crfield.core.beliefs import Beliefs
from crfield.core.graphs import Graphs
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.topology import Chains
from crfield.errors import CrfieldError, InputError, ShapeError
from crfield.inference.chain import ChainEngine
from crfield.inference.graphs.brute import BruteEngine
from crfield.inference.graphs.catalogue import ENGINES
from crfield.inference.labellings import path_scores
from crfield.report.comparisons.inference import InferenceComparison, InferenceRow, compare_inference
from crfield.report.comparisons.verdict import verdict
from crfield.report.displays.inference import plot_inference_comparison, plot_marginals_grid
from crfield.simulate.fields import make_potts_grid
from tests.cases.command_line import run, works

EXACT_ON_SMALL_GRAPHS = ("junction_tree", "brute")
MAP_ONLY = ("icm", "annealing", "cuts", "expansion")


def grid(height: int, width: int, *, seed: int = 0, coupling: float = 0.8) -> tuple[Potentials, np.ndarray]:
    """A small noisy grid with its truth."""
    made = make_potts_grid((height, width), coupling=coupling, noise=0.8, n_sweeps=50, random_state=seed)
    graphs = Graphs(np.array([0, height * width]), made.pairs[:, 0], made.pairs[:, 1])
    return Potentials(made.node, made.edge[None], graphs), made.labels.ravel()


@dataclass(frozen=True)
class Wrong:
    """The exact marginals with a share of the nodes turned round; the rest is as the oracle says."""

    share: float
    seed: int = 0

    def infer(self, potentials: Potentials, semiring: Semiring) -> Beliefs:
        beliefs = ChainEngine().infer(potentials, semiring)
        turned = np.random.default_rng(self.seed).random(len(beliefs.node)) < self.share
        node = np.where(turned[:, None], beliefs.node[:, ::-1], beliefs.node)
        return replace(beliefs, node=node, exact=False, bound="estimate", converged=False, sweeps=7)


@dataclass(frozen=True)
class Unwilling:
    """Refuses both questions."""

    def infer(self, potentials: Potentials, semiring: Semiring) -> Beliefs:
        raise InputError("not today.")


@dataclass(frozen=True)
class Broken:
    """Fails as no engine may."""

    def infer(self, potentials: Potentials, semiring: Semiring) -> Beliefs:
        raise ZeroDivisionError


# ----------------------------------------------------------------------------------------------- the comparison


def test_all_engines_on_a_small_grid() -> None:
    scores, truth = grid(3, 4, seed=5)
    comparison = compare_inference(scores, truth=truth)
    assert [row.name for row in comparison.rows] == list(ENGINES)
    assert not comparison["chain"].ran
    assert not comparison["forest"].ran
    oracle = BruteEngine().infer(scores, Semiring.LOG)
    best = BruteEngine().infer(scores, Semiring.MAX)
    assert comparison.reference == "junction_tree"
    for name in EXACT_ON_SMALL_GRAPHS:
        row = comparison[name]
        assert row.total == pytest.approx(oracle.total.sum(), abs=1e-9)
        assert row.map_score == pytest.approx(best.total.sum(), abs=1e-9)
        assert (row.exact, row.bound, row.converged, row.loss) == (True, "exact", True, 0.0)
        assert row.max_error is not None
        assert row.max_error < 1e-9
    for row in comparison.rows:
        if not row.ran:
            continue
        assert row.map_gap is not None
        assert row.map_gap >= 0
        assert row.seconds is not None
        if row.name in MAP_ONLY:
            assert (row.mpm_accuracy, row.total, row.mean_error) == (None, None, None)
            continue
        node = comparison.marginals[row.name]
        assert row.mpm_accuracy == np.mean(node.argmax(axis=1) == truth)
        assert row.mean_error == pytest.approx(np.abs(node - oracle.node).mean(), abs=1e-12)
        assert row.max_error == pytest.approx(np.abs(node - oracle.node).max(), abs=1e-12)
        assert row.total_gap == pytest.approx(row.total - oracle.total.sum(), abs=1e-9)
    assert comparison["tree_reweighted"].bound == "upper"
    assert comparison["tree_reweighted"].total_gap > -1e-6  # type: ignore[operator]
    assert comparison["mean_field"].bound == "lower"
    assert comparison["mean_field"].total_gap < 1e-6  # type: ignore[operator]
    assert comparison["cuts"].map_gap == pytest.approx(0.0, abs=1e-6)


def test_map_accuracy_is_that_of_the_labelling() -> None:
    scores, truth = grid(3, 4, seed=2)
    best = BruteEngine().infer(scores, Semiring.MAX).node.argmax(axis=1)
    row = compare_inference(scores, truth=truth, engines=["brute"])["brute"]
    assert row.map_accuracy == np.mean(best == truth)
    assert row.map_score == pytest.approx(path_scores(scores, best).sum())


def chain_case(length: int = 4_000) -> tuple[Potentials, np.ndarray]:
    """A long chain and a truth drawn from its exact marginals, which are therefore as good as they think."""
    rng = np.random.default_rng(8)
    scores = Potentials(rng.normal(size=(length, 2)), np.eye(2)[None], Chains.from_lengths([length]))
    sure = ChainEngine().infer(scores, Semiring.LOG).node[:, 1]
    return scores, (rng.random(length) < sure).astype(np.int64)


def test_losses_are_counted_on_the_nodes_that_differ() -> None:
    scores, truth = chain_case()
    comparison = compare_inference(scores, truth=truth, engines={"chain": ChainEngine(), "wrong": Wrong(0.2)})
    right = {name: comparison.marginals[name].argmax(axis=1) == truth for name in ("chain", "wrong")}
    apart = right["chain"].astype(float) - right["wrong"]
    row = comparison["wrong"]
    assert row.loss == pytest.approx(comparison["chain"].mpm_accuracy - row.mpm_accuracy)
    assert row.loss_error == pytest.approx(np.sqrt(apart.var() / len(truth)))
    assert (row.converged, row.sweeps, row.exact) == (False, 7, False)


def test_an_exact_engine_is_added_where_one_applies() -> None:
    scores, truth = chain_case(200)
    comparison = compare_inference(scores, truth=truth, engines=[Wrong(0.3)])
    assert [row.name for row in comparison.rows] == ["Wrong(share=0.3, seed=0)", "chain"]
    assert comparison.reference == "chain"


def test_nodes_of_unknown_label_are_not_judged_and_strange_labels_are_never_right() -> None:
    scores, _ = grid(2, 3)
    best = BruteEngine().infer(scores, Semiring.LOG).node.argmax(axis=1)
    truth = best.copy()
    truth[0], truth[1] = -1, 9
    comparison = compare_inference(scores, truth=truth, engines=["brute"])
    assert comparison.n_judged == 5
    assert comparison["brute"].mpm_accuracy == 0.8
    nothing = compare_inference(scores, truth=np.full(6, -1), engines=["brute"])
    assert (nothing.n_judged, nothing["brute"].mpm_accuracy) == (0, None)


def test_impossible_graphs_and_empty_ones() -> None:
    node = np.full((3, 2), -np.inf)
    node[2] = 0.0
    scores = Potentials(node, np.zeros((1, 2, 2)), Chains.from_lengths([2, 0, 1]))
    comparison = compare_inference(scores, truth=np.zeros(3, int), engines=["chain", "brute"])
    assert comparison["brute"].total_gap == 0.0
    assert comparison["brute"].map_gap == 0.0
    text = json.dumps(comparison.to_dict(), allow_nan=False)
    assert json.loads(text)["engines"][0]["total"] is None
    empty = Potentials(np.zeros((0, 2)), np.zeros((1, 2, 2)), Chains.from_lengths([]))
    assert compare_inference(empty, truth=np.zeros(0, int))["chain"].mean_error == 0.0


def test_refusals_have_their_reason_and_bugs_are_not_hidden() -> None:
    scores, truth = chain_case(20)
    comparison = compare_inference(scores, truth=truth, engines={"one": Unwilling(), "chain": ChainEngine()})
    assert comparison["one"].reason == "not today."
    assert "not run\n  one: not today." in str(comparison)
    with pytest.raises(ZeroDivisionError):
        compare_inference(scores, engines={"bad": Broken()})


def test_enumeration_is_not_begun_where_it_would_take_hours() -> None:
    scores = Potentials(np.zeros((60, 3)), np.zeros((1, 3, 3)), Chains.from_lengths([10] * 6))
    row = compare_inference(scores, engines=["brute", "chain"])["brute"]
    assert row.reason == "3.54e+05 labellings are too many to write out."


def test_the_time_limit_keeps_further_engines_from_being_started(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = itertools.count()  # the clock of a process with a limit of its own (`ulimit -t`) goes in ticks
    monkeypatch.setattr("time.process_time", lambda: float(next(seconds)))
    scores, truth = chain_case(2_000)
    rows = compare_inference(scores, truth=truth, engines=["chain", "brute"], time_limit=0.0).rows
    assert rows[0].ran
    assert rows[1].reason == "not started: the time limit of 0 s was used up before it."


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"truth": np.zeros(3, int)}, ShapeError, "for each of 6 nodes"),
        ({"truth": np.zeros(6)}, ShapeError, "an integer"),
        ({"truth": ["a"] * 6}, ShapeError, "Encode the labels"),
        ({"engines": ["lopy"]}, InputError, "Did you mean 'loopy'"),
        ({"engines": []}, InputError, "no engine to compare"),
        ({"engines": [3]}, InputError, "a method infer"),
    ],
)
def test_what_cannot_be_compared(options: dict[str, Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        compare_inference(grid(2, 3)[0], **options)


def test_the_table_lines_up() -> None:
    scores, truth = grid(3, 3)
    text = compare_inference(scores, truth=truth, engines=["brute", "junction_tree"]).table()
    head, *lines = text.splitlines()
    words = "engine MPM MAP mean error max error log Z gap MAP score gap converged sweeps CPU s"
    assert " ".join(head.split()) == words
    assert [line.split()[0] for line in lines] == ["brute", "junction_tree"]
    assert {len(line) for line in lines} == {len(head)}
    bare = compare_inference(scores, engines=["brute"])
    assert "MPM" not in bare.table()
    assert "no truth given" in repr(bare)
    with pytest.raises(InputError, match="no engine 'loopy'; it has brute"):
        bare["loopy"]


# -------------------------------------------------------------------------------------------------- the verdict


def row(name: str, **facts: Any) -> InferenceRow:
    return InferenceRow(name, **{"converged": True, **facts})


EXACT = row("exact", mpm_accuracy=0.8, map_accuracy=0.8, exact=True, bound="exact", loss=0.0, loss_error=0.0)


@pytest.mark.parametrize(
    ("others", "says"),
    [
        ([], "The other 20.0 % are the fault of the model or of the data: better inference there is none."),
        (
            [row("a", mpm_accuracy=0.797, loss=0.003, loss_error=1e-4)],
            "no other engine does noticeably better or worse",
        ),
        ([row("a", mpm_accuracy=0.7, loss=0.1, loss_error=0.04)], "no other engine does noticeably better or worse"),
        (
            [
                row("a", mpm_accuracy=0.7, loss=0.1, loss_error=0.01),
                row("b", map_accuracy=0.6, loss=0.2, loss_error=0.0),
            ],
            "Inference is at fault where it loses: 20.0 points with b and 10.0 points with a.",
        ),
        (
            [row("a", mpm_accuracy=0.9, loss=-0.1, loss_error=0.01)],
            "gains 10.0 points with a, so the model is at fault",
        ),
        ([row("a", map_accuracy=0.9, loss=-0.1, loss_error=0.01)], "no other engine does noticeably better or worse"),
        ([InferenceRow("a", reason="no")], "better inference there is none"),
    ],
)
def test_who_is_to_blame(others: list[InferenceRow], says: str) -> None:
    said = verdict([EXACT, *others], "exact")
    assert said.startswith("Exact inference (exact) labels 80.0 % of the nodes right.")
    assert says in said


def test_the_verdict_without_an_exact_engine() -> None:
    best, near, far = (row(name, mpm_accuracy=share) for name, share in (("a", 0.9), ("b", 0.899), ("c", 0.7)))
    assert "cannot be told apart" in verdict([best], None)
    assert "the model is the likelier fault" in verdict([best, near], None)
    assert "20.0 points more than c: inference matters" in verdict([best, far], None)
    bounds = [row("m", total=1.0, bound="lower"), row("t", total=2.5, bound="upper")]
    assert verdict(bounds, None).endswith("no truth given. log Z lies between 1.0000 and 2.5000.")
    assert "lies between" not in verdict([bounds[0], replace(bounds[1], converged=False)], None)
    assert verdict([InferenceRow("a", reason="no")], None) == "No engine could be run, so nothing can be said."


def test_the_verdict_without_a_truth() -> None:
    exact = row("exact", exact=True, mean_error=0.0)
    assert "nothing to compare" in verdict([exact], "exact")
    said = verdict([exact, row("a", mean_error=1e-3), row("b", mean_error=0.2)], "exact")
    assert (
        said
        == "Against exact inference (exact) the marginals of a are off by 1.0e-03 on average, those of b by 2.0e-01."
    )


# ------------------------------------------------------------------------------------------ pictures and command


def test_pictures_are_drawn() -> None:
    scores, truth = grid(3, 3)
    comparison = compare_inference(scores, truth=truth, engines=["brute", "junction_tree", "icm", "mean_field"])
    figure = plot_inference_comparison(comparison)
    assert [axes.get_title() for axes in figure.axes] == ["accuracy", "error of marginals", "log Z", "CPU seconds"]
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert names == ["brute", "junction_tree", "icm", "mean_field"]
    stream = io.BytesIO()
    figure.savefig(stream, format="png")
    assert stream.getvalue().startswith(b"\x89PNG")
    marginals = {name: node[:, 1].reshape(3, 3) for name, node in comparison.marginals.items()}
    grids = plot_marginals_grid({"truth": truth.reshape(3, 3), **marginals}, columns=2)
    assert [axes.get_title() for axes in grids.axes] == ["truth", "brute", "junction_tree", "mean_field"]


def test_pictures_that_cannot_be_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = InferenceComparison((InferenceRow("a", reason="no"),), None, 1, 1, 0, 2, 0)
    with pytest.raises(InputError, match="nothing to draw"):
        plot_inference_comparison(refused)
    with pytest.raises(ShapeError, match=r"\(height, width\), got \(3,\) for 'a'"):
        plot_marginals_grid({"a": np.zeros(3)})
    with pytest.raises(InputError, match="at least one picture"):
        plot_marginals_grid({})
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(CrfieldError, match=r"pip install 'crfield\[plots\]'"):
        plot_marginals_grid({"a": np.eye(2)})


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, float]:
    """A small model, labelled data with a label that it has never seen, and its accuracy node by node."""
    folder = tmp_path_factory.mktemp("compare")
    made = crfield.make_phrases(30, random_state=1)
    X = [[[f"w={word}", f"first={word[0]}"] for word in tokens] for tokens in made.tokens]
    model = crfield.ChainCRF(tol=1e-2, decode="marginal").fit(X[:20], made.labels[:20])
    model.save(folder / "model.crfield")
    labels = [list(labels) for labels in made.labels[20:]]
    labels[0][0] = "B-SURPRISE"
    crfield.write_crfsuite(folder / "test.crfsuite", X[20:], labels)
    predicted = model.predict(X[20:])
    right = np.mean([a == b for gold, found in zip(labels, predicted) for a, b in zip(gold, found)])
    return folder / "model.crfield", folder / "test.crfsuite", float(right)


def test_a_saved_model_is_compared(saved: tuple[Path, Path, float], tmp_path: Path) -> None:
    model, data, accuracy = saved
    picture = tmp_path / "engines.svg"
    shown = works(
        "compare-inference", model, data, "--engines", "chain, forest,brute,loopy", "--json", "--plot", picture
    )
    facts = json.loads(shown.stdout)
    rows = {row["name"]: row for row in facts["engines"]}
    assert list(rows) == ["chain", "forest", "brute", "loopy"]
    assert rows["chain"]["mpm_accuracy"] == pytest.approx(accuracy)
    assert rows["forest"]["max_error"] < 1e-9
    assert rows["loopy"]["max_error"] < 1e-6
    assert "too many to write out" in rows["brute"]["reason"]
    assert facts["judged"] == facts["nodes"]
    assert picture.read_bytes().lstrip().startswith(b"<?xml")


def test_the_demo_shows_the_textbooks_case() -> None:
    """The model is right by construction, and one engine makes it look wrong."""
    shown = works("compare-inference", "--demo", "grid", "--engines", "junction_tree,cuts,mean_field").stdout
    assert shown.startswith("20 graphs, 2,400 nodes")
    assert "Exact inference (junction_tree) labels" in shown
    assert "Inference is at fault where it loses: " in shown
    assert "points with mean_field" in shown
    assert "model is at fault" not in shown


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ((), 2, "give a model and labelled data"),
        (("model.crfield",), 2, "give a model and labelled data"),
        (("model.crfield", "data", "--demo", "grid"), 2, "stands alone"),
        (("--demo", "grid", "--plot", "engines.txt"), 2, "ends in none of them"),
        (("--demo", "grid", "--engines", "lopy"), 1, "Did you mean 'loopy'?"),
        (("nowhere.crfield", "nowhere.txt"), 1, "nowhere.crfield"),
    ],
)
def test_wrong_commands(arguments: tuple[str, ...], code: int, says: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("compare-inference", *arguments)
    assert result.exit_code == code
    assert says in " ".join(result.output.replace("│", " ").split())


# ------------------------------------------------------------------------------------------------ models and data


def test_a_model_with_its_data_is_its_scores_with_codes() -> None:
    rng = np.random.default_rng(0)
    y: list[list[Any]] = [rng.choice(["a", "b"], 15).tolist() for _ in range(4)]
    X = [rng.normal(size=(15, 2)) + (np.array(labels) == "b")[:, None] for labels in y]
    y[3][2] = None
    model = HMM().fit(X[:2], y[:2])
    found = compare_inference(model, X[2:], y[2:], engines=["chain", "mean_field"])
    codes = [-1 if label is None else model.classes_.tolist().index(label) for label in y[2] + y[3]]
    wanted = compare_inference(model.potentials(X[2:]), truth=np.array(codes), engines=["chain", "mean_field"])
    assert found.n_judged == wanted.n_judged == 29
    assert [row.mpm_accuracy for row in found.rows] == [row.mpm_accuracy for row in wanted.rows]
    assert found["chain"].mpm_accuracy == pytest.approx(model.score(X[2:], y[2:]))
    assert compare_inference(model, X[2:], engines=["chain"]).n_judged == 0
    image = np.random.default_rng(0).normal(size=(3, 4))
    grid_model = GridCRF(max_iter=3, tol=1.0).fit([image[:, :, None]], [image > 0])
    told = compare_inference(grid_model, [image[:, :, None]], [image > 0], engines=["junction_tree"])
    assert told["junction_tree"].map_accuracy == pytest.approx(grid_model.score([image[:, :, None]], [image > 0]))


def test_models_that_cannot_be_compared() -> None:
    scores, truth = chain_case(6)
    X, y = [[[0.0], [1.0], [1.2], [0.1]]], [["a", "b", "b", "a"]]
    lasting = HMM(min_duration={"b": 2}).fit(X, y)
    for call, words in [
        (lambda: compare_inference(scores, X, y), "go with a model"),
        (lambda: compare_inference(HMM().fit(X, y)), "needs data to score"),
        (lambda: compare_inference(HMM().fit(X, y), X, y, truth=truth), "both say what is true"),
        (lambda: compare_inference(3, X, y), "takes a fitted model of chains or graphs"),  # type: ignore[arg-type]
        (lambda: compare_inference(lasting, X, y), "are of states"),
    ]:
        with pytest.raises(InputError, match=words):
            call()
    assert compare_inference(lasting, X, engines=["chain"]).n_labels == 3

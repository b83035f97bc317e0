"""SemiMarkovCRF: what it is with segments of one step, its gradient, labels in and out, texts, lengths, files."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crfield
from crfield import ChainCRF, SemiMarkovCRF
from crfield.core.segments import Segmentation
from crfield.core.semiring import Semiring
from crfield.core.topology import Chains
from crfield.data.batch import Batch, Columns
from crfield.errors import (
    ConvergenceWarning,
    DataWarning,
    FeatureError,
    InputError,
    LabelError,
    ModelFileError,
    ShapeError,
)
from crfield.estimators.segments import model as semi_markov_model
from crfield.features.columns.segment_features import Trie, marks_of
from crfield.inference.segments import SegmentEngine, segmentation_scores
from crfield.kernels.segments import Marks
from crfield.scoring.segments import SegmentData, SegmentLayout, SegmentScorer
from crfield.training.segments import FusedSegments
from tests.cases.estimators import (
    TEMPLATE,
    as_arrays,
    as_columns,
    as_csr,
    as_dicts,
    as_raw,
    as_rows,
    as_strings,
    near,
    same,
    same_word,
    word,
    world,
)
from tests.cases.model_file_fuzz import edited

NAMES = ["Ann saw New York", "New York saw Ann Lee", "he saw Ann", "Ann Lee saw him", "Bob saw New York City"]
TAGS = [
    ["B-PER", "O", "B-LOC", "I-LOC"],
    ["B-LOC", "I-LOC", "O", "B-PER", "I-PER"],
    ["O", "O", "B-PER"],
    ["B-PER", "I-PER", "O", "O"],
    ["B-PER", "O", "B-LOC", "I-LOC", "I-LOC"],
]


def sentences() -> list[list[dict[str, str]]]:
    return [[{"word": w, "upper": str(w[0].isupper())} for w in text.split()] for text in NAMES]


def named(**options: Any) -> SemiMarkovCRF:
    return SemiMarkovCRF(**{"max_length": 3, "scheme": "iob2", "l2": 0.1, **options}).fit(sentences(), TAGS)


# ------------------------------------------------------------------------ segments of one step are a chain


@pytest.mark.filterwarnings(
    "ignore::crfield.errors.ConvergenceWarning"
)  # asked for the last digit, both may stop short
@pytest.mark.parametrize(
    ("write", "options"),
    [
        (as_strings, {"transition_features": "all"}),
        (as_dicts, {"standardize": True, "transition_features": ("speed", "vector")}),
        (as_arrays, {}),
        (as_csr, {"transition_pairs": "all"}),
        (as_rows, {"template": TEMPLATE}),
        (as_columns, {"template": TEMPLATE, "feature_pairs": "all"}),
        (as_raw, {"functions": (word, near), "transition_functions": (same_word,)}),
        (as_strings, {"intercept": False, "boundaries": False, "transition_pairs": "none"}),
    ],
    ids=["strings", "dicts", "arrays", "csr", "rows", "columns", "functions", "bare"],
)
def test_segments_of_one_step_are_a_chain(write: Any, options: dict[str, Any]) -> None:
    raw, y = world(12)
    X = write(raw)
    chain = ChainCRF(tol=1e-12, max_iter=3000, **options)
    segments = SemiMarkovCRF(
        max_length=1, step_features=("sum",), length_features="none", tol=1e-12, max_iter=3000, **options
    )
    chain.fit(X, y)
    segments.fit(X, y)
    assert segments.objective_ == pytest.approx(chain.objective_, rel=1e-10)
    assert len(segments.coef_) == len(chain.coef_)
    # The same weights, in another order: with these both give the same answers to the last digits.
    inner, layout = chain._fitted, segments._model.layout
    part = inner.layout.part  # type: ignore[union-attr]
    moved = np.concatenate(
        [inner.weights[part["node"]], inner.weights[part["dense"]], inner.weights[part["bias"].start :]]
    )
    object.__setattr__(segments._model, "weights", moved)
    assert layout.n_weights == len(moved)
    for one, other in zip(segments.predict_proba(X), chain.predict_proba(X), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-10)
    np.testing.assert_allclose(segments.log_prob(X, y), chain.log_prob(X, y), rtol=0, atol=1e-10)
    assert same(segments.predict(X), chain.predict(X))


# --------------------------------------------------------------------------------------- value and gradient


def small_problem(**options: Any) -> tuple[FusedSegments, Segmentation, SegmentData]:
    rng = np.random.default_rng(0)
    chains = Chains.from_lengths([5, 1, 0, 4])
    node = Columns(
        np.arange(0, 21, 2), rng.integers(0, 4, 20), 4, rng.standard_normal(20), rng.standard_normal((10, 2))
    )
    edge = Columns(np.arange(8), rng.integers(0, 2, 7), 2)
    batch = Batch(chains, node, edge if options.pop("edges", False) else None)
    gold = Segmentation(chains, [0, 2, 3, 5, 6, 9], [2, 3, 5, 6, 9, 10], [0, 1, 0, 1, 1, 0])
    X = [[{"w": "abcab"[t]} for t in range(5)], [{"w": "c"}], [], [{"w": "bcaa"[t]} for t in range(4)]]
    trie, columns = Trie.learn([step["w"] for x in X for step in x], gold)
    layout = SegmentLayout.observe(
        batch,
        gold,
        limit=np.array([2, 3]),
        bins=np.array([0, 1, 1], np.int32),
        texts=(columns[None], trie.n_columns),
        **options,
    )
    marks = marks_of([trie], ["w"], X, chains, most=3, items=(layout.item_ptr, layout.item_label))
    data = SegmentData(batch, marks)
    return FusedSegments(layout, data, gold, weight=np.array([1.0, 2.0, 1.0, 0.5])), gold, data


CASES: list[dict[str, Any]] = [
    {"roles": ("sum", "mean", "first", "last")},
    {"roles": ("first",), "edges": True},
    {"roles": (), "bias": False},
    {"roles": ("mean", "sum"), "feature_pairs": "all", "transition_pairs": "all", "edges": True},
]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_value_and_gradient(body: str, case: int) -> None:
    problem, gold, data = small_problem(**CASES[case])
    rng = np.random.default_rng(case)
    weights, gradient = rng.standard_normal(problem.n_weights), np.empty(problem.n_weights)
    value = problem.evaluate(weights, gradient)
    scores = problem.scorer.score(weights, data)
    total = SegmentEngine().infer(scores, Semiring.LOG).total
    own = total - segmentation_scores(scores, gold)
    assert value == pytest.approx(float(problem.weight @ own), rel=1e-12)
    spare = np.empty(problem.n_weights)
    part = problem.scorer.layout.part
    for own in (slice(None), *part.values()):
        for _ in range(3):
            step = np.zeros(problem.n_weights)
            step[own] = rng.standard_normal(len(step[own]))
            ends = [problem.evaluate(weights + sign * 1e-5 * step, spare) for sign in (1, -1)]
            assert gradient @ step == pytest.approx((ends[0] - ends[1]) / 2e-5, abs=1e-7)


def test_problems_that_do_not_fit_are_refused() -> None:
    problem, gold, data = small_problem(roles=("sum",))
    layout = problem.scorer.layout
    short = SegmentLayout(layout.roles, layout.steps, layout.base, np.array([1, 3], np.int32), layout.bins)
    with pytest.raises(LabelError, match="Cut it first"):
        FusedSegments(short, SegmentData(data.batch, Marks.none(10)), gold)
    with pytest.raises(InputError, match="of the data"):
        FusedSegments(layout, data, Segmentation(Chains.from_lengths([1]), [0], [1], [0]))
    with pytest.raises(InputError, match="step features"):
        SegmentLayout.observe(data.batch, gold, limit=np.array([2, 3]), bins=layout.bins, roles=("middle",))
    assert SegmentScorer(layout).n_weights == layout.n_weights


# ------------------------------------------------------------------------------------------ labels in and out


def test_tags_and_segments_say_the_same() -> None:
    by_tags = named()
    spans = [crfield.metrics.spans(tags) for tags in TAGS]
    by_spans = SemiMarkovCRF(max_length=3, scheme="iob2", l2=0.1).fit(sentences(), spans)
    assert by_tags.coef_.tolist() == by_spans.coef_.tolist()
    assert by_tags.predict_segments(sentences()) == spans
    assert [tags.tolist() for tags in by_spans.predict(sentences())] == TAGS
    assert by_tags.score(sentences(), TAGS) == by_tags.score(sentences(), spans) == 1.0
    np.testing.assert_array_equal(by_tags.log_prob(sentences(), TAGS), by_tags.log_prob(sentences(), spans))
    bioes = [crfield.metrics.convert(tags, "iob2", "bioes") for tags in TAGS]
    other = SemiMarkovCRF(max_length=3, scheme="BIOES", l2=0.1).fit(sentences(), bioes)
    assert [tags.tolist() for tags in other.predict(sentences())] == bioes
    assert by_tags.classes_.tolist() == ["LOC", "O", "PER"]


def test_segments_of_one_label_may_touch() -> None:
    """Neighbours of one label are told apart where y tells them apart, and are one where it says labels of steps."""
    X = [[["a1"], ["a2"], ["a1"], ["a2"], ["b"]]] * 3
    cut = [[(0, 2, "A"), (2, 4, "A"), (4, 5, "B")]] * 3
    options: dict[str, Any] = {"max_length": 4, "l2": 0.01}
    assert SemiMarkovCRF(**options).fit(X, cut).predict_segments(X) == cut
    assert SemiMarkovCRF(decode="marginal", **options).fit(X, cut).predict_segments(X) == cut
    runs = SemiMarkovCRF(**options).fit(X, [list("AAAAB")] * 3)
    assert runs.predict_segments(X) == [[(0, 4, "A"), (4, 5, "B")]] * 3
    with pytest.warns(DataWarning, match="3 of 6 gold segments are longer than max_length=2"):
        short = SemiMarkovCRF(max_length=2, l2=0.01).fit(X, [list("AAAAB")] * 3)
    assert short.n_split_ == 3
    assert short.predict_segments(X) == [[(0, 4, "A"), (4, 5, "B")]] * 3


def test_long_spans_are_cut_and_counted() -> None:
    with pytest.warns(DataWarning, match="1 of 15 gold segments"):
        model = named(max_length=2)
    assert model.n_split_ == 1
    assert max(b - a for found in model.predict_segments(sentences()) for a, b, _ in found) == 2
    assert (model.log_prob(sentences(), TAGS) < 0).all()


def test_limits_for_each_label() -> None:
    assert named()._model.layout.limit.tolist() == [3, 1, 3]
    model = named(max_length={"PER": 2, "LOC": 3})
    assert model._model.layout.limit.tolist() == [3, 1, 2]
    assert np.isneginf(model.lengths_).sum(axis=0).tolist() == [0, 2, 1]
    with pytest.raises(InputError, match="says nothing of the label 'LOC'"):
        named(max_length={"PER": 2})


def test_what_labels_are_refused() -> None:
    X = sentences()[:1]
    fit = SemiMarkovCRF(scheme="iob2").fit
    for y, error, words in (
        ([["B-PER", None, "O", "O"]], LabelError, "step 1 is None"),
        ([["B-PER", "O"]], ShapeError, "4 steps and y has 2"),
        ([[(0, 2, "PER"), (1, 3, "LOC")]], ShapeError, "not overlap"),
        ([[(0, 9, "PER")]], ShapeError, "within the 4 steps"),
        ([[(0, 1, "O")]], LabelError, "Rename it"),
        ([["PER"] * 4], LabelError, "PER"),
        ([[(0, 1, "PER")], []], ShapeError, "1 sequences and y has 2"),
    ):
        with pytest.raises(error, match=words):
            fit(X, y)
    with pytest.raises(LabelError, match="none covers sequence 0, step 1"):
        SemiMarkovCRF().fit(X, [[(0, 1, "PER"), (2, 4, "LOC")]])
    with pytest.raises(LabelError, match="every step must have one label"):
        SemiMarkovCRF().fit(X, [["a", {"a", "b"}, "b", "b"]])
    with pytest.raises(LabelError, match="unknown label 'ORG'"):
        named().log_prob(X, [["B-ORG", "O", "O", "O"]])


# ------------------------------------------------------------------------------------- lengths, texts, answers


def test_length_decides_where_nothing_else_can() -> None:
    """One label lasts one step or three, the other two, and columns only tell where segments begin."""
    rng = np.random.default_rng(0)
    X, y = [], []
    for _ in range(20):
        cut, end = [], 0
        for size in rng.integers(1, 4, 8).tolist():
            cut.append((end, end + size, "even" if size == 2 else "odd"))
            end += size
        begins = {start for start, _, _ in cut}
        X.append([["begin" if t in begins else "on"] for t in range(end)])
        y.append(cut)
    options: dict[str, Any] = {"max_length": 3, "step_features": ("sum", "first"), "l2": 0.01}
    with_lengths = SemiMarkovCRF(**options).fit(X, y)
    without = SemiMarkovCRF(length_features="none", **options).fit(X, y)
    assert with_lengths.score(X, y) == 1.0
    assert without.score(X, y) < 0.8
    assert with_lengths.lengths_.argmax(axis=1).tolist() == [1, 0, 1]


def test_texts_of_segments() -> None:
    plain, with_texts = named(), named(segment_text=["word", lambda x, t: x[t]["word"][0].isupper()])
    texts = {text: label for text, label, _ in with_texts.top_texts(99)}
    assert texts["New York City"] == "LOC"
    assert texts["Ann Lee"] == "PER"
    assert "True True" in texts
    assert with_texts.log_prob(sentences(), TAGS).sum() > plain.log_prob(sentences(), TAGS).sum()
    assert len(with_texts.top_texts(2)) == 2
    assert [text for text, _, _ in named(segment_text=["word"], min_count=3).top_texts(99)] == ["saw"]
    with pytest.raises(FeatureError, match="sequence 0, step 0"):
        SemiMarkovCRF(segment_text=["word"]).fit([[["a"]]], [["x"]])


def test_marginals_of_segments() -> None:
    model, X = named(segment_text=["word"]), sentences()
    tables, steps = model.segment_marginals(X), model.predict_proba(X)
    for table, step in zip(tables, steps, strict=True):
        assert table.shape == (len(step), 3, 3)
        carried = np.zeros_like(step)
        for n in range(len(step)):
            for d in range(3):
                if d <= n:
                    carried[n - d : n + 1] += table[n, d]
        np.testing.assert_allclose(carried, step, atol=1e-12)
    found = model.predict_segments(X)
    chances = model.segment_proba(X, found)
    assert chances[1][0] == pytest.approx(float(tables[1][1, 1, 0]))
    assert all(0.3 < p <= 1 for row in chances for p in row)
    assert model.segment_proba(X[:1], [[(0, 4, "PER")]]) == [[0.0]]
    with pytest.raises(InputError, match="is no segment"):
        model.segment_proba(X[:1], [[(0, 9, "PER")]])
    with pytest.raises(InputError, match="5 sequences and segments has 1"):
        model.segment_proba(X, [[]])


def test_small_runs_of_sequences_give_the_same_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    raw, y = world(12)
    X = as_strings(raw)
    model = SemiMarkovCRF(max_length=4, transition_features="all").fit(X, y)
    wanted = model.predict_proba(X), model.log_prob(X, y), model.predict(X)
    monkeypatch.setattr(semi_markov_model, "MOST_NUMBERS", 60)
    for one, other in zip(model.predict_proba(X), wanted[0], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-13)
    np.testing.assert_allclose(model.log_prob(X, y), wanted[1], atol=1e-12)
    assert same(model.predict(X), wanted[2])


@pytest.mark.parametrize("scheme", ["runs", "iob2"])
def test_threads_empty_and_single_sequences(scheme: str) -> None:
    X, y = [[], *sentences(), [{"word": "Ann"}]], [[], *TAGS, ["B-PER"]]
    one = SemiMarkovCRF(max_length=3, scheme=scheme, n_jobs=1).fit(X, y)
    two = SemiMarkovCRF(max_length=3, scheme=scheme, n_jobs=2).fit(X, y)
    again = SemiMarkovCRF(max_length=3, scheme=scheme, n_jobs=2).fit(X, y)
    assert two.coef_.tobytes() == again.coef_.tobytes()
    np.testing.assert_allclose(one.coef_, two.coef_, atol=1e-6)
    assert [len(tags) for tags in two.predict(X)] == [len(tags) for tags in y]
    assert one.predict_segments([[]]) == [[]]
    marginal = one.set_params(decode="marginal").predict(X)
    assert [len(tags) for tags in marginal] == [len(tags) for tags in y]
    alone = SemiMarkovCRF(scheme=scheme).fit([[{"a": 1}]], [["O"]])
    assert alone.predict([[{"a": 1}, {}, {}]])[0].tolist() == ["O"] * 3


def test_parameters_that_are_refused() -> None:
    for options, words in (
        ({"max_length": 0}, "max_length"),
        ({"max_length": {"a": 0}}, "max_length"),
        ({"scheme": "words"}, "scheme"),
        ({"scheme": 3}, "scheme"),
        ({"step_features": "sum"}, "step_features"),
        ({"step_features": ("middle",)}, "step_features"),
        ({"step_features": ("sum", "sum")}, "twice"),
        ({"length_features": "all"}, "length_features"),
        ({"length_features": (0,)}, "length_features"),
        ({"segment_text": "word"}, "Write"),
        ({"segment_text": [None]}, "segment_text"),
        ({"decode": "best"}, "decode"),
        ({"l2": -1.0}, "l2"),
        ({"transition_pairs": "some"}, "transition_pairs"),
        ({"boundaries": 1}, "boundaries"),
    ):
        with pytest.raises(InputError, match=words):
            SemiMarkovCRF(**options).fit(sentences(), TAGS)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no steps at all"):
        SemiMarkovCRF(template="U00:%x[0,0]\nB").fit([[]], [[]])
    with pytest.raises(FeatureError, match="nan"):
        SemiMarkovCRF().fit([np.array([[np.nan]])], [["a"]])
    stopped = SemiMarkovCRF(callback=lambda step, weights: step.n_iter >= 2).fit(sentences(), TAGS)
    assert stopped.n_iter_ == 2
    assert stopped.stop_reason_ == "callback"
    with pytest.warns(ConvergenceWarning, match="Raise max_iter"):
        SemiMarkovCRF(max_iter=1).fit(sentences(), TAGS)


# ------------------------------------------------------------------------------------------------ model files


def test_files_hold_everything(tmp_path: Path) -> None:
    model = named(segment_text=["word", "upper"], max_length={"PER": 2, "LOC": 3}, length_features=(1, 3))
    path = tmp_path / "names.crfield"
    model.save(path)
    copy = crfield.load(path)
    assert copy.get_params() == model.get_params() | {"length_features": [1, 3], "segment_text": ("word", "upper")}
    assert copy.coef_.tolist() == model.coef_.tolist()
    assert copy.predict_segments(sentences()) == model.predict_segments(sentences())
    assert copy.top_texts(5) == model.top_texts(5)
    assert copy.n_split_ == 0
    assert repr(copy.transitions_) == repr(model.transitions_)
    with pytest.raises(InputError, match="joblib"):
        named(segment_text=[lambda x, t: "a"]).save(path)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "names.crfield"
    named(segment_text=["word"], max_length={"PER": 2, "LOC": 3}).save(path)
    rng, refused = random.Random(0), 0
    for _ in range(150):
        data = edited(path.read_bytes(), rng)
        if data is None:
            continue
        try:
            model = crfield.load(io.BytesIO(data))
        except ModelFileError:
            refused += 1
            continue
        for X in (sentences(), []):
            model.predict(X)
            model.predict_segments(X)
        model.top_texts(50)
        repr((model, model.transitions_, model.lengths_))
        model.save(io.BytesIO())
    assert refused > 60


def test_a_trie_read_from_a_file_is_checked() -> None:
    chains = Chains.from_lengths([3])
    trie, _ = Trie.learn(["a", "b", "a"], Segmentation(chains, [0, 2], [2, 3], [0, 0]))
    arrays = trie.to_arrays()
    assert Trie.from_arrays(arrays).text(1) == "a b"
    for name, value in (
        ("keys", arrays["keys"][::-1].copy()),
        ("keys", arrays["keys"] + 100),
        ("column", arrays["column"][:-1]),
        ("column", arrays["column"] + np.int32(1)),
        ("column", arrays["column"].astype(np.int64)),
        ("ends", arrays["ends"][::-1].copy()),
    ):
        with pytest.raises(ModelFileError):
            Trie.from_arrays({**arrays, name: value})
    with pytest.raises(ModelFileError):
        Trie.from_arrays({})
    with pytest.raises(IndexError):
        trie.text(9)

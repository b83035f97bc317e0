"""Learning that goes on: partial_fit, and features and labels that join later, for every form of input."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import crfield
from crfield import MEMM, ChainCRF
from crfield.data.labels import LabelCoder
from crfield.errors import InputError, LabelError, ShapeError
from crfield.features.detect import encoder_for
from crfield.features.growth import grow
from crfield.kernels.dual import PrimalDual, Table
from crfield.optimize.basis import second_derivative
from crfield.scoring.layout import Layout
from crfield.scoring.layout_growth import carried, joined
from crfield.training.chain import remembered_passes
from crfield.training.drawn_curvature import drawn_curvature
from tests.cases.chains import needs_native
from tests.cases.estimators import KINDS, Kind, as_csr, as_strings, exact, world

COLUMNS = [kind for kind in KINDS if kind.name != "label_functions"]
CSR_EDGES = Kind("csr_edges", as_csr, (("transition_features", "all"),))
each_kind = pytest.mark.parametrize("kind", COLUMNS, ids=lambda kind: kind.name)
some_kinds = pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if kind.name in ("dicts_scaled", "columns")], ids=lambda kind: kind.name
)


def objective(model: ChainCRF, X: Any, y: Any) -> float:
    return float(0.5 * model.coef_ @ model.coef_ - model.log_prob(X, y).sum())


def part(X: Any, numbers: range) -> Any:
    return X[np.array(numbers)] if hasattr(X, "shape") else [X[k] for k in numbers]


# ------------------------------------------------------------------------- growth


@each_kind
def test_columns_of_parts_are_those_of_the_whole(kind: Kind) -> None:
    """Every column of the whole data is found by the parts, under the same name; the last part is encoded alike."""
    X, _ = kind.data(20)
    options = {k: v for k, v in kind.options if k in ("template", "functions", "transition_features")}
    options |= {k: v for k, v in kind.options if k == "transition_functions"}
    whole = encoder_for(X, **options)
    batch = whole.fit(X)
    encoder = encoder_for(X, **options)
    encoder.fit(part(X, range(8)))
    before = [encoder.node_name(k) for k in range(encoder.encode([]).node.width)]
    grown = grow(encoder, part(X, range(8, 20)))
    made = grown.encoder
    now = made.encode(X)
    assert [made.node_name(int(grown.node[k])) for k in range(len(before))] == before
    assert sorted(made.node_name(k) for k in range(now.node.width)) == sorted(
        whole.node_name(k) for k in range(batch.node.width)
    )
    for rows, mine, encoders in ((batch.node, now.node, (whole, made)), (batch.edge, now.edge, (whole, made))):
        if rows is None or mine is None:
            assert rows is mine
            continue
        name = "node_name" if rows is batch.node else "edge_name"
        for row in range(rows.n_rows):
            sides = []
            for columns, one in ((rows, encoders[0]), (mine, encoders[1])):
                span = slice(columns.indptr[row], columns.indptr[row + 1])
                values = np.ones(span.stop - span.start) if columns.values is None else columns.values[span]
                sides.append(sorted(zip((getattr(one, name)(int(k)) for k in columns.indices[span]), values)))
            assert sides[0] == sides[1]
    assert [encoder.node_name(k) for k in range(encoder.encode([]).node.width)] == before  # left as it was
    state = crfield.features.detect.encoder_from_state(*made.state()) if kind.name != "functions" else made
    again = state.encode(X) if kind.name != "functions" else now
    assert again.node.indices.tolist() == now.node.indices.tolist()


def test_scales_are_those_of_the_part_that_brought_the_column() -> None:
    first = [[{"a": 1.0}, {"a": 3.0}]]
    second = [[{"a": 11.0, "b": 5.0}, {"a": 13.0, "b": 7.0}]]
    encoder = encoder_for(first, standardize=True)
    encoder.fit(first)
    grown = grow(encoder, second)
    np.testing.assert_allclose(grown.batch.node.values, [9.0, -1.0, 11.0, 1.0])
    np.testing.assert_allclose(grown.encoder.encode(first).node.values, [-1.0, 1.0])


def test_rare_new_columns_are_dropped() -> None:
    encoder = encoder_for([[["a"]]])
    encoder.fit([[["a"]]])
    grown = grow(encoder, [[["b", "a"], ["c"], ["c"]]], min_count=2)
    assert [grown.encoder.node_name(k) for k in range(grown.batch.node.width)] == ["a", "c"]
    assert grown.batch.node.indices.tolist() == [0, 1, 1]


@pytest.mark.parametrize("kind", [*COLUMNS, CSR_EDGES], ids=lambda kind: kind.name)
@pytest.mark.parametrize("count", [2, 5])
def test_rare_new_columns_are_dropped_in_every_form(kind: Kind, count: int) -> None:
    """What joins is what the new data alone would have had, and it is encoded as in them."""
    X, _ = kind.data(20)
    options = {k: v for k, v in kind.options if k in ("template", "functions", "transition_features")}
    options |= {k: v for k, v in kind.options if k == "transition_functions"}
    encoder, alone = encoder_for(X, **options), encoder_for(X, **options)
    old = encoder.fit(part(X, range(4)))
    new = alone.fit(part(X, range(4, 20)), min_count=count)
    grown = grow(encoder, part(X, range(4, 20)), min_count=count)
    for node in (True, False):
        rows, first, mine = (batch.node if node else batch.edge for batch in (new, old, grown.batch))
        if rows is None or first is None or mine is None:
            assert rows is first is mine
            continue
        of = "node_name" if node else "edge_name"
        names = [
            {getattr(one, of)(k) for k in range(columns.width)}
            for one, columns in ((encoder, first), (alone, rows), (grown.encoder, mine))
        ]
        assert names[2] == names[0] | names[1]
        kept = {name: k for k, name in enumerate(getattr(alone, of)(k) for k in range(rows.width))}
        for row in range(rows.n_rows):
            said = [getattr(grown.encoder, of)(int(k)) for k in mine.indices[mine.indptr[row] : mine.indptr[row + 1]]]
            assert sorted(kept[name] for name in said if name in kept) == sorted(
                rows.indices[rows.indptr[row] : rows.indptr[row + 1]].tolist()
            )


@pytest.mark.parametrize("pairs", ["observed", "all"])
def test_weights_follow_their_features(pairs: str) -> None:
    """A grown layout scores old data as before, whatever moved: columns, labels, edges."""
    raw, y = world(12)
    X = as_strings(raw)
    model = exact(feature_pairs=pairs, transition_pairs=pairs, transition_features="all").fit(X, y)
    before, labels = model.potentials(X), model.predict(X)
    more, other = as_strings(world(9, seed=5)[0]), world(9, seed=5)[1]
    more[0][0] = [*more[0][0], "never seen"]
    other[0][0] = "D"
    warm = pickle.loads(pickle.dumps(model)).set_params(warm_start=True, max_iter=1, l2=1e9)
    coder = LabelCoder.from_classes(["A", "B", "C", "D"])
    grown, _, _, _ = warm.read_training(coder, more, other, None, model._fitted)
    assert grown.layout.n_labels == 4
    after = grown.potentials(X, n_jobs=1)
    np.testing.assert_allclose(after.node[:, :3], before.node, atol=1e-12)
    np.testing.assert_allclose(after.edge[:, :3, :3], before.edge, atol=1e-12)
    assert all((a == b).all() for a, b in zip(labels, model.predict(X)))


def test_layouts_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ShapeError, match="cannot be carried over"):
        joined(Layout(3, 2), Layout(2, 2))
    with pytest.raises(ShapeError, match="cannot be carried over"):
        carried(np.zeros(4), Layout(2, 2), Layout(2, 3), {"node": np.array([0, 3])})
    with pytest.raises(ShapeError, match="cannot be carried over"):
        joined(Layout(2, 2), Layout(2, 3), {"node": np.array([1, 1])})
    with pytest.raises(ShapeError, match=r"weights must have shape \(4,\)"):
        carried(np.zeros(3), Layout(2, 2), Layout(2, 3))


# -------------------------------------------------------------------- partial_fit


@some_kinds
def test_parts_end_close_to_fit(kind: Kind) -> None:
    X, y = kind.data(40)
    best = kind.model(tol=1e-8).fit(X, y)
    model = kind.model()
    first_turn = np.inf
    for turn in range(8):
        for first in range(0, 40, 10):
            numbers = range(first, first + 10)
            model.partial_fit(part(X, numbers), part(y, numbers), classes=["A", "B", "C"], n_sequences=40)
        if turn == 0:
            first_turn = objective(model, X, y)
    after = objective(model, X, y)
    assert best.objective_ <= after * (1 + 1e-9)
    assert after < 1.1 * best.objective_
    assert after < first_turn
    assert model.stop_reason_ == "partial_fit"
    assert model.n_seen_ == 320
    assert model.n_iter_ == len(model.history_) == 32


def test_a_label_first_seen_in_the_third_part() -> None:
    parts = [
        ([[["sun"], ["sun"]], [["rain"]]], [["walk", "walk"], ["read"]]),
        ([[["rain"], ["sun"]]], [["read", "walk"]]),
        ([[["snow"], ["snow"], ["sun"]]] * 3, [["ski", "ski", "walk"]] * 3),
    ]
    model = ChainCRF(l2=0.1)
    for _ in range(3):
        for X, y in parts:
            model.partial_fit(X, y)
    assert model.classes_.tolist() == ["read", "walk", "ski"]
    assert model.predict([[["snow"], ["sun"]]])[0].tolist() == ["ski", "walk"]
    assert model.predict([[["rain"]]])[0].tolist() == ["read"]


def test_old_predictions_stay_when_a_feature_joins_at_zero() -> None:
    raw, y = world(15)
    X = as_strings(raw)
    model = exact().fit(X, y)
    before = model.predict_proba(X)
    # A part of weight next to nothing: what it brings joins, and no weight moves to speak of.
    model.partial_fit([[["never seen"]]], [["A"]], sample_weight=[1e-12], n_sequences=1e12)
    assert "never seen" in [model._fitted.encoder.node_name(k) for k in range(model._fitted.layout.n_columns)]
    for a, b in zip(before, model.predict_proba(X)):
        np.testing.assert_allclose(a, b, atol=1e-9)


def test_a_fitted_model_goes_on_gently() -> None:
    raw, y = world(60)
    X = as_strings(raw)
    whole = exact().fit(X, y)
    model = exact().fit(X[:50], y[:50])
    assert model.n_seen_ == 50
    before = objective(model, X, y)
    model.partial_fit(X[50:], y[50:])
    assert whole.objective_ < objective(model, X, y) < before
    assert model.n_seen_ == 60


def test_the_same_seed_gives_the_same_bits_and_pickles_go_on() -> None:
    raw, y = world(20)
    X = as_strings(raw)
    one, two = (ChainCRF(random_state=3).partial_fit(X[:10], y[:10]) for _ in range(2))
    two = pickle.loads(pickle.dumps(two))
    one.partial_fit(X[10:], y[10:])
    two.partial_fit(X[10:], y[10:])
    assert one.coef_.tobytes() == two.coef_.tobytes()
    other = ChainCRF(random_state=4).partial_fit(X[:10], y[:10]).partial_fit(X[10:], y[10:])
    assert one.coef_.tobytes() != other.coef_.tobytes()


def test_a_bad_part_changes_nothing() -> None:
    raw, y = world(12)
    X = as_strings(raw)
    model = ChainCRF().partial_fit(X, y)
    before, n = model.coef_.copy(), model.n_seen_
    with pytest.raises(LabelError):
        model.partial_fit([[["new"]]], [[["unhashable"]]])
    with pytest.raises(ShapeError):
        model.partial_fit([[["new"]]], [["A", "B"]])
    with pytest.raises(InputError, match="n_sequences must be a number > 0"):
        model.partial_fit(X, y, n_sequences=0)
    assert model.coef_.tobytes() == before.tobytes()
    assert model.n_seen_ == n
    assert model.predict(X).shape == (12,)


def test_other_objectives_penalties_and_rules_go_on_too() -> None:
    raw, y = world(30)
    X = as_strings(raw)
    sparse = ChainCRF(l1=1.5, l2=0.0)
    soft = ChainCRF(class_weight={"A": 3.0})
    local = MEMM()
    ruled = ChainCRF(constraints=[("A", "D")])
    for model in (sparse, soft, local, ruled):
        for first in (0, 10, 20) * 4:
            numbers = slice(first, first + 10)
            model.partial_fit(X[numbers], y[numbers], classes=["A", "B", "C", "D"], n_sequences=30)
        assert model.score(X, y) > 0.6
    assert (sparse.coef_ == 0).mean() > 0.1
    with pytest.raises(InputError, match="functions of two labels"):
        ChainCRF(label_functions=[lambda before, label, x, t: 1.0]).partial_fit(X, y)
    assert not hasattr(crfield.MEstimatedCRF(), "partial_fit")  # it needs the counts of all data at once


def test_a_loaded_model_goes_on_like_the_one_that_was_saved(tmp_path: Any) -> None:
    raw, y = world(60)
    X = as_strings(raw)
    model = exact().fit(X[:50], y[:50])
    model.save(tmp_path / "model")
    loaded = crfield.load(tmp_path / "model")
    assert loaded.n_seen_ == 50
    model.partial_fit(X[50:], y[50:])
    loaded.partial_fit(X[50:], y[50:])
    assert loaded.coef_.tobytes() == model.coef_.tobytes()


# ------------------------------------------------------------------------------------ numeric data that come again


def recordings(n: int, seed: int = 0) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Four columns, two of which nearly say the same, and labels that last."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        labels = np.repeat(rng.integers(0, 3, 5), 4)
        rows = rng.normal(size=(len(labels), 4)) + labels[:, None] * [1.0, 0.5, 0.0, 0.3]
        rows[:, 3] = rows[:, 0] + 0.05 * rows[:, 3]
        X.append(rows)
        y.append(labels)
    return X, y


def in_passes(model: ChainCRF, X: Any, y: Any, *, parts: int, passes: int, shuffled: bool = False) -> ChainCRF:
    rng = np.random.default_rng(1)
    order = rng.permutation(len(X))
    for _ in range(passes):
        order = rng.permutation(len(X)) if shuffled else order
        for part in np.array_split(order, parts):
            model.partial_fit([X[i] for i in part], [y[i] for i in part], n_sequences=len(X))
    return model


@pytest.mark.parametrize(("parts", "shuffled"), [(1, False), (4, False), (10, False), (10, True), (24, False)])
def test_ten_passes_over_numbers_end_within_one_per_cent_of_fit(parts: int, shuffled: bool) -> None:
    X, y = recordings(24)
    best = ChainCRF(tol=1e-8).fit(X, y)
    model = in_passes(ChainCRF(), X, y, parts=parts, passes=10, shuffled=shuffled)
    assert best.objective_ * (1 - 1e-9) <= objective(model, X, y) < 1.01 * best.objective_


def test_the_curvature_of_draws_is_about_the_second_derivative() -> None:
    X, y = recordings(10)
    model = ChainCRF(l2=0.3)
    labels = LabelCoder().fit(y)
    fitted, batch, target, _ = model.read_training(labels, X, y, None, None)
    problem = model._parts(fitted, batch, target).problem("likelihood")
    weights = 0.3 * np.random.default_rng(3).normal(size=problem.n_weights)

    def slope(there: np.ndarray) -> np.ndarray:
        found = np.empty(len(there))
        problem.evaluate(there, found)
        return found

    exact = second_derivative(slope, weights, slope(weights))
    about = drawn_curvature(fitted.layout, batch, None, weights, np.random.default_rng(0), draws=3000)
    size = np.sqrt(np.maximum(np.diag(exact), 1e-3))
    np.testing.assert_allclose(about / np.outer(size, size), exact / np.outer(size, size), atol=0.12)


def test_newton_passes_have_the_same_bits_and_pickles_go_on() -> None:
    X, y = recordings(12)
    one, two = (in_passes(ChainCRF(random_state=3), X, y, parts=3, passes=3) for _ in range(2))
    assert one._pass is not None
    assert one._pass.newton is not None
    two = pickle.loads(pickle.dumps(two))
    one, two = (in_passes(model, X, y, parts=3, passes=2) for model in (one, two))
    assert one.coef_.tobytes() == two.coef_.tobytes()


def test_a_label_that_joins_ends_newton_passes_and_they_begin_again() -> None:
    X, y = recordings(12)
    model = in_passes(ChainCRF(), X, y, parts=3, passes=4)
    y = [np.where(np.arange(len(labels)) < 2, 7, labels) for labels in y]
    model.partial_fit(X[:4], y[:4], n_sequences=12)
    assert model.classes_.tolist() == [0, 1, 2, 7]
    assert model._pass is not None
    assert model._pass.newton is None
    best = ChainCRF(tol=1e-8).fit(X, y)
    model = in_passes(model, X, y, parts=3, passes=12)
    assert objective(model, X, y) < 1.01 * best.objective_


def test_text_and_parts_that_come_once_have_no_newton_passes() -> None:
    raw, y = world(12)
    model = ChainCRF()
    for _ in range(3):
        model.partial_fit(as_strings(raw), y, n_sequences=12)
    assert model._pass is not None
    assert model._pass.newton is None
    X, labels = recordings(12)
    once = ChainCRF()
    for _ in range(3):
        once.partial_fit(X, labels)
    assert once._pass is not None
    assert once._pass.newton is None


# ------------------------------------------------------------------------------------------ text that comes again


def sentences(n: int, seed: int = 0) -> tuple[list[list[list[str]]], list[list[str]]]:
    """Words, their endings and their neighbours, most of them rare; some sentences are there twice."""
    made = crfield.make_phrases(n - n // 10, random_state=seed)
    X = [
        [
            [f"{k}={tokens[t + k]}" for k in (-1, 0, 1) if 0 <= t + k < len(tokens)] + [f"ending={tokens[t][-2:]}"]
            for t in range(len(tokens))
        ]
        for tokens in made.tokens
    ]
    y = [list(labels) for labels in made.labels]
    return X + X[: n // 10], y + y[: n // 10]


def remembered(model: ChainCRF) -> Any:
    """The memory of a model that has one."""
    assert model._pass is not None
    assert model._pass.memory is not None
    return model._pass.memory


@needs_native
@pytest.mark.parametrize(("parts", "shuffled"), [(1, False), (4, False), (10, False), (10, True)])
def test_ten_passes_over_text_end_within_one_per_cent_of_fit(parts: int, shuffled: bool) -> None:
    X, y = sentences(200)
    best = ChainCRF(tol=1e-8).fit(X, y)
    model = in_passes(ChainCRF(), X, y, parts=parts, passes=10, shuffled=shuffled)
    assert not remembered(model).lost
    assert "remember each sequence" in str(model.plan_)
    assert best.objective_ * (1 - 1e-9) <= objective(model, X, y) < 1.01 * best.objective_
    assert model.n_seen_ == 2000


@needs_native
def test_a_part_is_swept_twice_which_leaves_less_than_once(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = sentences(200)
    best = ChainCRF(tol=1e-8).fit(X, y).objective_
    twice = objective(in_passes(ChainCRF(), X, y, parts=5, passes=6), X, y) - best
    monkeypatch.setattr(remembered_passes, "SWEEPS", 1)
    monkeypatch.setattr(remembered_passes, "DRIFT", 1.0)
    once = objective(in_passes(ChainCRF(), X, y, parts=5, passes=6), X, y) - best
    assert 0 < twice < 0.75 * once


@needs_native
def test_the_sum_of_the_table_is_what_it_comes_to() -> None:
    X, y = sentences(60)
    model = in_passes(ChainCRF(), X, y, parts=4, passes=5)
    memory = remembered(model)
    fitted, batch, target, _ = model.read_training(model._fitted.labels, X, y, None, model._fitted)
    problem = model._parts(fitted, batch, target).problem("likelihood")
    whole = PrimalDual(problem.compiled, width=1)
    places = memory.find(remembered_passes.digests(batch, target))
    own, lengths = places[whole.sequences()], batch.topology.lengths[whole.sequences()]
    assert sorted(own) == list(range(60))
    node = np.concatenate([memory.node[a : a + n] for a, n in zip(memory.first[own], lengths)])
    whole.restore(memory.weights, memory.dual, memory.steps, Table(node, memory.pairs[own], memory.told[own]))
    np.testing.assert_allclose(whole.plane()[0], memory.dual, atol=1e-4)
    np.testing.assert_array_equal(whole.counts(), memory.counts)
    twice = next(key for key, rows in memory.rows.items() if len(rows) == 2)  # equal ones take their rows in turn
    assert sorted(int(memory.find([twice])[0]) for _ in range(2)) == sorted(memory.rows[twice])


@needs_native
def test_remembered_passes_have_the_same_bits_and_pickles_go_on() -> None:
    X, y = sentences(40)
    one, two = (in_passes(ChainCRF(random_state=3), X, y, parts=3, passes=3) for _ in range(2))
    assert remembered(one).filled
    two = pickle.loads(pickle.dumps(two))
    one, two = (in_passes(model, X, y, parts=3, passes=2) for model in (one, two))
    assert remembered(two).filled
    assert one.coef_.tobytes() == two.coef_.tobytes()


@needs_native
def test_a_feature_that_joins_makes_the_memory_begin_anew() -> None:
    X, y = sentences(60)
    model = in_passes(ChainCRF(), X, y, parts=3, passes=4)
    assert remembered(model).filled
    X, y = [*X, [["never seen"], ["nor this"]]], [*y, y[0][:2]]
    model.partial_fit(X[-1:], y[-1:], n_sequences=61)
    assert model._pass is not None
    assert model._pass.memory is None
    in_passes(model, X, y, parts=3, passes=6)
    assert remembered(model).filled
    best = ChainCRF(tol=1e-8).fit(X, y)
    assert best.objective_ * (1 - 1e-9) <= objective(model, X, y) < 1.02 * best.objective_


@needs_native
def test_a_stream_that_does_not_come_again_is_not_remembered() -> None:
    X, y = sentences(120)
    model = in_passes(ChainCRF(), X[:60], y[:60], parts=2, passes=3)
    assert remembered(model).filled
    model.partial_fit([X[0], X[0], X[0]], [y[0], y[0], y[0]], n_sequences=60)  # more often than it was there
    assert remembered(model).lost
    assert len(pickle.dumps(remembered(model))) < 2000
    before = objective(model, X[:60], y[:60])
    in_passes(model, X[:60], y[:60], parts=2, passes=3)
    assert objective(model, X[:60], y[:60]) < 1.2 * before
    model.partial_fit(X[:30], y[:30], n_sequences=120)  # it says something else now
    assert not remembered(model).lost


def test_memory_is_for_what_fits_and_what_it_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = sentences(30)
    weighted = ChainCRF(l2=0.1), ChainCRF(l1=0.1), MEMM()
    for model in weighted:
        assert in_passes(model, X, y, parts=2, passes=3)._pass.memory is None  # type: ignore[union-attr]
    monkeypatch.setattr(remembered_passes, "LARGEST", 100)
    model = in_passes(ChainCRF(), X, y, parts=2, passes=3)
    assert model._pass is not None
    assert model._pass.memory is None

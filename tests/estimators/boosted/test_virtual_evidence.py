"""Virtual evidence boosting: its weak learners, its rounds, its three modes, and what it must not do."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crfield
from crfield import BoostedRandomField, Edges, Graph, VirtualEvidenceBoosting, chain, compare_inference, layers
from crfield.boosting.virtual_evidence.couplings import POTENTIALS, Group, Sums, fit_couplings, table_step
from crfield.boosting.virtual_evidence.messages import VirtualEvidence
from crfield.boosting.weak_learners.candidates import Candidates
from crfield.boosting.weak_learners.responses import centred, working_responses
from crfield.boosting.weak_learners.stumps import best_stump
from crfield.errors import ConvergenceWarning, DataWarning, InputError
from crfield.features.graphs.encoder import GraphEncoder
from crfield.kernels import virtual
from crfield.simulate.order_chains import make_order_chains
from tests.cases.estimators import as_dicts, some_layers, world

NEAR = Group(0, 0, 0, True, True)


def pairs_of_hard_labels(weight: np.ndarray, labels: np.ndarray, neighbours: list[np.ndarray]) -> Any:
    """What `listen` finds for nodes whose neighbours' labels are known: node n hears ``neighbours[k][n]``."""
    n, size = weight.shape
    far = len(neighbours)
    tails = np.concatenate([np.arange(n) + n * (k + 1) for k in range(far)])
    wiring = virtual.wire(n * (far + 1), tails, np.tile(np.arange(n), far), np.zeros(n * far), np.zeros(n * far))
    local = np.full((n * (far + 1), size), 1.0 / size)
    local[n:] = np.concatenate([np.eye(size)[some] for some in neighbours])
    truth = np.concatenate([labels, np.full(n * far, -1)])
    messages = np.full((wiring.n_messages, size), 1.0 / size)
    return virtual.listen(
        wiring, local, local, messages, np.zeros((1, size, size)), truth, np.ones(len(local)), squares=True
    )


@pytest.mark.parametrize("size", [2, 3])
def test_a_point_mass_is_classical_logitboost(body: str, size: int) -> None:
    """Virtual evidence that is certain is an attribute: the coupling is the learner on that discrete column."""
    rng = np.random.default_rng(size)
    labels, neighbour = rng.integers(0, size, (2, 200))
    weight, response = working_responses(np.full((200, size), 1.0 / size), labels)
    column = Candidates.of(neighbour[:, None].astype(float), discrete=[0])
    attribute = best_stump(column, weight, response)
    assert attribute is not None
    heard = pairs_of_hard_labels(weight, labels, [neighbour])
    for square in (None, heard.square):  # with one neighbour equation 9 is exact
        found = fit_couplings(Sums(heard.moment, heard.mass, square), [NEAR], (size,))[0]
        np.testing.assert_allclose(found.values.T, attribute.values[:size], rtol=0, atol=1e-12)
        assert found.gain == pytest.approx(attribute.gain, abs=1e-10)


def test_exact_couplings_minimise_and_equation_9_counts_twice(body: str) -> None:
    """With two neighbours the exact normal equations are least squares on counts; equation 9 is not."""
    rng = np.random.default_rng(0)
    labels, one, other = rng.integers(0, 2, (3, 300))
    weight, response = working_responses(np.full((300, 2), 0.5), labels)
    heard = pairs_of_hard_labels(weight, labels, [one, other])
    exact = fit_couplings(Sums(heard.moment, heard.mass, heard.square), [NEAR], (2,))[0]
    counts = np.eye(2)[one] + np.eye(2)[other]
    for c in range(2):
        wanted = np.linalg.lstsq(counts * weight[:, [c]] ** 0.5, response[:, c] * weight[:, c] ** 0.5, rcond=None)[0]
        np.testing.assert_allclose(exact.values[c], wanted, atol=1e-10)
    explained = sum((weight[:, c] * response[:, c] * (counts @ exact.values[c])).sum() for c in range(2))
    assert exact.gain == pytest.approx(explained, rel=1e-10)
    paper = fit_couplings(Sums(heard.moment, heard.mass, None), [NEAR], (2,))[0]
    total = (weight * response**2).sum()
    assert exact.gain < total
    assert not np.allclose(paper.values, exact.values)


def test_forms_of_the_potential() -> None:
    rng = np.random.default_rng(0)
    alpha = rng.normal(size=(3, 3))
    step = 2 / 3 * (alpha - alpha.mean(axis=0))
    tables = {form: table_step(alpha, NEAR, (3,), form) for form in POTENTIALS}
    np.testing.assert_allclose(tables["patch"], step.T)
    np.testing.assert_allclose(tables["sum"], step + step.T)
    np.testing.assert_allclose(tables["avg"], tables["sum"] / 2)
    bias = step.mean(axis=1)
    np.testing.assert_allclose(tables["joint"], tables["pure"] + bias[:, None] + bias)
    np.testing.assert_allclose(tables["pure"].sum(), 0.0, atol=1e-12)
    for form in ("joint", "avg", "sum", "pure"):
        np.testing.assert_allclose(tables[form], tables[form].T)
    directed = Group(0, 0, 1, True, False)
    assert table_step(np.ones((3, 3)) * [1.0, 2.0, 0.0], directed, (3, 2), "joint")[2].tolist() == [0.0, 0.0, 0.0]
    with pytest.raises(InputError, match="potential"):
        table_step(alpha, NEAR, (3,), "halved")


@pytest.mark.parametrize("labels", [2, 3])
def test_without_relations_it_is_logitboost(labels: int) -> None:
    """Rounds written out in NumPy, scores to 1e-12."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(300, 4))
    y = (np.digitize(x[:, 0] + 0.5 * x[:, 1] + rng.normal(size=300), [0.0, 1.0][: labels - 1])).astype(int)
    model = VirtualEvidenceBoosting(mode="paper", n_rounds=12, relations=(), max_bins=16).fit([x], [y])
    scores, cut = np.zeros((300, labels)), Candidates.of(x, max_bins=16)
    for _ in range(12):
        powers = np.exp(scores)
        stump = best_stump(cut, *working_responses(powers / powers.sum(axis=1, keepdims=True), y))
        assert stump is not None
        scores += centred(stump.values)[stump.leaves(x)]
    np.testing.assert_allclose(model.potentials([x]).node, scores, rtol=0, atol=1e-12)
    assert model.accepted_relations_ == []
    assert model.potentials([x]).topology.n_edges == 0


# ------------------------------------------------------------------------------------------- no collapse


def unequal(seed: int, n: int = 12, length: int = 120) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Chains with one label in nine of ten steps, and features that know little."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        labels = np.zeros(length, int)
        labels[0] = rng.random() < 0.1
        for t in range(1, length):
            labels[t] = labels[t - 1] if rng.random() < 0.95 else rng.random() < 0.1
        X.append(rng.normal(size=(length, 6)) + 0.3 * labels[:, None])
        y.append(labels)
    return X, y


def test_unequal_labels_do_not_end_in_one_label() -> None:
    """Equation 9 counts a constant once for each neighbour, and without a prior there is a constant to explain.

    Messages that know nothing are (½, ½) from either side: both sides together then carry twice the gain that a
    constant has for the node itself, so the first round of the paper's algorithm goes to the relation, and its bias
    counts again at every neighbour. Exact normal equations give a constant its own gain, and a start from the prior
    leaves none.
    """
    rng = np.random.default_rng(0)
    labels = (rng.random(400) < 0.1).astype(int)
    ring = virtual.wire(400, np.arange(400), (np.arange(400) + 1) % 400, np.zeros(400), np.zeros(400))
    local, none = np.full((400, 2), 0.5), np.zeros((1, 2, 2))
    heard = virtual.listen(ring, local, local, np.full((800, 2), 0.5), none, labels, np.ones(400), squares=True)
    w, moved = heard.pairs[0].sum(axis=0)
    constant = 2 * moved**2 / w
    paper = fit_couplings(Sums(heard.moment, heard.mass, None), [NEAR], (2,))[0]
    exact = fit_couplings(Sums(heard.moment, heard.mass, heard.square), [NEAR], (2,))[0]
    assert paper.gain == pytest.approx(2 * constant, rel=1e-10)
    assert exact.gain == pytest.approx(constant, rel=1e-10)
    share = labels.mean()
    prior = np.tile([1 - share, share], (400, 1))
    heard = virtual.listen(
        ring, prior, prior, np.full((800, 2), 0.5), none, labels, np.ones(400), limit=50.0, squares=True
    )
    informed = fit_couplings(Sums(heard.moment, heard.mass, heard.square), [NEAR], (2,))[0]
    assert informed.gain < 1e-9 * constant

    X, y = unequal(1)
    held, truth = unequal(101)
    flat = np.concatenate(truth)
    with pytest.warns(DataWarning, match="start='prior'"):
        letter = VirtualEvidenceBoosting(mode="paper").fit(X, y)
    ours = VirtualEvidenceBoosting().fit(X, y)
    assert letter.rounds_[0].kind == "relation"
    assert ours.rounds_[0].kind == "feature"
    shares = [np.concatenate(model.predict(held)).mean() for model in (letter, ours)]
    assert shares[0] < 0.2 * flat.mean()
    assert 0.5 * flat.mean() < shares[1] < 1.5 * flat.mean()


def test_a_clip_below_the_prior_is_not_the_default() -> None:
    """A label of share s asks for responses of 1 / s: cut at less, all rounds push it further down."""
    X, y = unequal(1)
    loss = [
        VirtualEvidenceBoosting(relations=(), n_rounds=3, response_limit=limit, learning_rate=0.5).fit(X, y).rounds_
        for limit in (None, 4.0)
    ]
    assert loss[0][2].nll < loss[0][0].nll
    assert loss[1][2].nll > loss[0][2].nll


# ----------------------------------------------------------------------------------------- stopping, weights


def test_rounds_are_told_and_rolled_back() -> None:
    X, y = unequal(3)
    model = VirtualEvidenceBoosting(validation=0.3, patience=3, n_rounds=60, learning_rate=1.0).fit(X, y)
    outside = [one.held_out for one in model.rounds_]
    assert all(value is not None for value in outside)
    best = int(np.argmin(outside)) + 1
    assert model.n_rounds_ == best
    assert [one.kept for one in model.rounds_] == [number <= best for number in range(1, len(outside) + 1)]
    assert len(outside) == best + 3 or len(outside) == 60
    assert "held out" in repr(model.rounds_)
    assert model.rounds_.rows()[0]["pick"] == model.rounds_.picks[0]
    with pytest.raises(InputError, match="one only"):
        VirtualEvidenceBoosting(validation=0.3).fit(X[:1], y[:1])


def test_a_rising_loss_stops_training() -> None:
    data = make_order_chains(0.95, n_chains=3, length=400, n_features=8, random_state=2)
    model = VirtualEvidenceBoosting(n_rounds=400, learning_rate=1.0, patience=2).fit(data.features, data.labels)
    assert model.stop_reason_ == "the loss has risen for 2 rounds"
    losses = [one.nll for one in model.rounds_]
    assert losses[-1] > losses[-2] > losses[-3]
    assert model.n_rounds_ == int(np.argmin(losses)) + 1


def test_weights_are_repetitions() -> None:
    X, y = unequal(4, n=4)
    X = [np.round(x) for x in X]  # few values: quantiles of the rows would move with copies
    options = {"mode": "paper", "start": "prior", "n_rounds": 15}
    heavy = VirtualEvidenceBoosting(**options).fit(X, y, sample_weight=[2, 1, 1, 3])
    copied = VirtualEvidenceBoosting(**options).fit([X[0], *X, X[3], X[3]], [y[0], *y, y[3], y[3]])
    assert heavy.rounds_.picks == copied.rounds_.picks
    np.testing.assert_allclose(heavy.potentials(X).node, copied.potentials(X).node, atol=1e-9)
    np.testing.assert_allclose(heavy.potentials(X).edge, copied.potentials(X).edge, atol=1e-9)


def test_unknown_labels_teach_nothing() -> None:
    X, y = unequal(5, n=4)
    some = [labels.tolist() for labels in y]
    some[1] = [None] * len(some[1])
    options = {"mode": "paper", "start": "prior", "n_rounds": 10, "relations": ()}
    hidden = VirtualEvidenceBoosting(**options).fit(X, some)
    without = VirtualEvidenceBoosting(**options).fit([X[0], *X[2:]], [some[0], *some[2:]])
    assert hidden.rounds_[0].gain == pytest.approx(without.rounds_[0].gain, rel=0.2)
    verified = VirtualEvidenceBoosting(mode="verified", n_rounds=4).fit(X, some)
    assert 0.5 < verified.score(X, some) <= 1


@pytest.fixture
def listens() -> Iterator[None]:
    """Ctrl-C interrupts, whatever the shell that started the tests has told us."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("listens")
def test_ctrl_c_keeps_the_rounds_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = unequal(6, n=3)
    for mode, calls in (("exact", 7), ("verified", 7)):
        seen = {"left": calls}
        original = virtual.listen

        def listen(*args: Any, seen: Any = seen, original: Any = original, **options: Any) -> Any:
            seen["left"] -= 1
            if not seen["left"]:
                signal.raise_signal(signal.SIGINT)
            return original(*args, **options)

        with monkeypatch.context() as patch:
            patch.setattr(virtual, "listen", listen)
            with pytest.warns(ConvergenceWarning, match="interrupted"):
                model = VirtualEvidenceBoosting(mode=mode, n_rounds=50).fit(X, y)
        assert not model.converged_
        assert model.stop_reason_ == "interrupted"
        assert 0 < len(model.rounds_) < 50
        assert model.score(X, y) > 0.5


# ------------------------------------------------------------------------------------------------- graphs


def two_layers(n: int = 12, seed: int = 0) -> tuple[list[Graph], list[dict[str, list[str]]]]:
    X, y = some_layers(n, seed)
    labels = [{"motion": a[:, 0].tolist(), "place": a[:, 1].tolist()} for a in y]
    return [layers({"motion": x, "place": len(x)}) for x in X], labels


@pytest.mark.parametrize("mode", ["exact", "paper", "verified"])
def test_kinds_with_labels_of_their_own(mode: str, tmp_path: Path) -> None:
    """Places have no features: all that is known of them comes through the relations."""
    graphs, y = two_layers(60)
    model = VirtualEvidenceBoosting(mode=mode).fit(graphs, y)
    assert "motion-place" in model.accepted_relations_
    places = [labels["place"] for labels in y]
    found = [graph_labels[len(labels) :] for graph_labels, labels in zip(model.predict(graphs), places, strict=True)]
    right = np.concatenate([np.asarray(a) == np.asarray(b) for a, b in zip(found, places, strict=True)]).mean()
    common = max(np.mean(np.concatenate(places) == name) for name in ("in", "out"))
    assert right > common + 0.03
    assert model.relation_weights("motion-place").weights.shape == (3, 2)
    twin, columns = model.to_crf(), model.transform(graphs)
    for one, other in zip(twin.predict_proba(columns), model.predict_proba(graphs), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-9)
    model.save(tmp_path / "layers.crfield")
    copy = crfield.load(tmp_path / "layers.crfield")
    assert copy.rounds_ == model.rounds_
    for one, other in zip(copy.predict_proba(graphs), model.predict_proba(graphs), strict=True):
        assert np.array_equal(one, other)


def test_directed_relations_learn_an_order() -> None:
    """Labels that go round, a → b → c → a: no symmetric table can say so."""
    rng = np.random.default_rng(0)
    y = [(np.arange(90) + rng.integers(3)) % 3 for _ in range(6)]
    X = [np.eye(3)[labels] + rng.normal(scale=1.2, size=(90, 3)) for labels in y]
    shares = {
        (directed, mode): VirtualEvidenceBoosting(mode=mode, directed=directed).fit(X[1:], y[1:]).score(X[:1], y[:1])
        for directed in (False, True)
        for mode in ("exact", "verified")
    }
    for mode in ("exact", "verified"):
        assert shares[True, mode] > 0.97
        assert shares[False, mode] < 0.9
    model = VirtualEvidenceBoosting(directed=True).fit(X, y)
    table = model.relation_weights("+1").weights
    assert table.argmax(axis=1).tolist() == [1, 2, 0]


def test_both_ends_read_one_table() -> None:
    """Pairs of steps, of which one end alone is seen: what the coupling learnt at one end serves the other."""
    encoder = GraphEncoder()
    batch = encoder.fit([Graph(2, {"to": [(0, 1)]})])
    state = VirtualEvidence(batch, encoder.schema, np.full((2, 3), 1 / 3), labels=np.array([0, 1]), weight=np.ones(2))
    step = np.arange(9.0).reshape(3, 3) / 2
    for number in (0, 1):
        state.add_table(number, step)
    assert [group.to_head for group in state.groups] == [True, False]
    np.testing.assert_array_equal(state.tables[0], step + step.T)
    np.testing.assert_array_equal(state.tables[1], state.tables[0].T)
    state.add_table(0, np.full((3, 3), -100.0))
    assert state.tables.min() == -15.0


def test_what_does_not_pay_is_not_accepted() -> None:
    data = make_order_chains(0.5, n_chains=4, length=300, n_features=8, random_state=1)
    for proposals in ("virtual", "independent"):
        model = VirtualEvidenceBoosting(mode="verified", relations=(1, 2), n_rounds=12, proposals=proposals)
        model.fit(data.features, data.labels)
        assert model.accepted_relations_ == []
        asked = [one for one in model.rounds_ if one.kind == "relation"]
        assert {one.pick for one in asked} == {"+1", "+2"}
        assert not any(one.kept for one in asked)
        assert max(one.gain for one in asked) < 5


def test_relations_that_may_be_picked() -> None:
    data = make_order_chains(0.95, 2, n_chains=3, length=300, n_features=8, random_state=1)
    X = [chain(x.astype(float), distances=(1, 2), symmetric=True) for x in data.features]
    model = VirtualEvidenceBoosting(relations=["+1"]).fit(X, data.labels)
    assert set(model.rounds_.relations) <= {"+1"}
    both = VirtualEvidenceBoosting(relations=(1, 2)).fit(data.features, data.labels)
    assert both.rounds_.relations.get("+2", 0) > both.rounds_.relations.get("+1", 0)
    same = VirtualEvidenceBoosting().fit(X, data.labels)
    assert same.rounds_ == both.rounds_
    with pytest.raises(InputError, match="'\\+9'"):
        VirtualEvidenceBoosting(relations=["+9"]).fit(X, data.labels)
    with pytest.raises(InputError, match="distances"):
        VirtualEvidenceBoosting(relations=["near"]).fit(data.features, data.labels)
    featured = [Graph(np.ones((2, 1)), {"near": Edges([(0, 1)], features=[[1.0]], symmetric=True)})]
    with pytest.raises(InputError, match="edge features"):
        VirtualEvidenceBoosting().fit(featured, [[0, 1]])


def test_every_engine_may_answer() -> None:
    data = make_order_chains(0.9, n_chains=2, length=8, n_features=6, random_state=1)
    model = VirtualEvidenceBoosting(relations=(1, 2), n_rounds=20).fit(data.features, data.labels)
    exact = np.concatenate(model.predict_proba(data.features))
    for engine in ("brute", "junction_tree"):
        other = np.concatenate(model.set_params(engine=engine).predict_proba(data.features))
        np.testing.assert_allclose(other, exact, atol=1e-9)
    compared = compare_inference(model.potentials(data.features), engines=["loopy", "mean_field", "brute"])
    assert "mean_field" in repr(compared)


# ---------------------------------------------------------------------------------- columns of every kind


def test_features_numbers_and_categories_compete() -> None:
    rng = np.random.default_rng(0)
    kinds = rng.integers(0, 5, (8, 40))
    y = [np.isin(row, [1, 3]).astype(int) ^ (rng.random(40) < 0.1) for row in kinds]
    X = [np.stack([rng.normal(size=40), row.astype(float)], axis=1) for row in kinds]
    plain = VirtualEvidenceBoosting(n_rounds=1, relations=()).fit(X, y)
    told = VirtualEvidenceBoosting(n_rounds=1, relations=(), discrete=(1,)).fit(X, y)
    assert told.rounds_.picks == ["x[1] = …"]
    assert told.rounds_[0].gain > plain.rounds_[0].gain
    assert told.score(X, y) > 0.85 > plain.score(X, y)
    assert any("x[1] = 3" in feature.name for feature in told.top_features(5))
    strange = [np.array([[0.0, 77.0]])]
    assert len(told.predict(strange)[0]) == 1
    records = as_dicts(world(14)[0])
    mixed = VirtualEvidenceBoosting(n_rounds=40).fit(records, world(14)[1])
    picks = " ".join(mixed.rounds_.picks)
    assert "word=" in picks
    assert "vector[" in picks
    trees = VirtualEvidenceBoosting(n_rounds=10, learner="tree").fit(records, world(14)[1])
    assert "&" in trees.rounds_[0].pick
    with pytest.raises(InputError, match="column 9"):
        VirtualEvidenceBoosting(discrete=(9,)).fit(X, y)


def test_small_and_empty_cases() -> None:
    X = [np.array([[0.0], [1.0]]), np.zeros((0, 1)), np.array([[1.0]])]
    y: list[list[str]] = [["a", "b"], [], ["b"]]
    for mode in ("exact", "paper", "verified"):
        model = VirtualEvidenceBoosting(mode=mode, start="prior").fit(X, y)
        assert [len(labels) for labels in model.predict(X)] == [2, 0, 1]
        alone = VirtualEvidenceBoosting(mode=mode).fit(X, [["a", "a"], [], ["a"]])
        assert alone.predict(X)[0].tolist() == ["a", "a"]
        assert len(alone.rounds_) == 0
        assert repr(alone.rounds_) == "no rounds"
    flat = VirtualEvidenceBoosting().fit([np.ones((3, 2))], [["a", "b", "b"]])
    assert [one.kind for one in flat.rounds_ if one.kind == "feature"] == []
    field = BoostedRandomField(n_rounds=3).fit(X, y)
    assert [len(labels) for labels in field.predict(X)] == [2, 0, 1]
    with pytest.raises(InputError, match="no steps"):
        VirtualEvidenceBoosting().fit([np.zeros((0, 1))], [[]])


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"mode": "best"}, "mode"),
        ({"n_rounds": 0}, "n_rounds"),
        ({"learner": "forest"}, "learner"),
        ({"potential": "half"}, "potential"),
        ({"start": "one"}, "start"),
        ({"ridge": -1.0}, "ridge"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"response_limit": float("nan")}, "response_limit"),
        ({"validation": 1.5}, "validation"),
        ({"validation": 0.2, "mode": "verified"}, "validation"),
        ({"proposals": "none"}, "proposals"),
        ({"relations": "+1"}, "relations"),
        ({"directed": "yes"}, "directed"),
        ({"discrete": "x"}, "discrete"),
        ({"l2": -1}, "l2"),
        ({"decode": "best"}, "decode"),
        ({"engine": "lopy"}, "loopy"),
        ({"verbose": -1}, "verbose"),
        ({"max_bins": 1}, "max_bins"),
    ],
)
def test_parameters_are_looked_at_first(options: dict[str, Any], word: str) -> None:
    with pytest.raises(InputError, match=word):
        VirtualEvidenceBoosting(**options).fit([np.zeros((2, 1))], [[0, 1]])


# ------------------------------------------------------------------------------------------ the diary of rounds


@pytest.mark.parametrize("mode", ["exact", "paper"])
def test_the_loss_of_a_round_is_that_after_it(mode: str) -> None:
    """On pairs of steps one sweep is exact, so that what a round notes is what a model of so many rounds answers."""
    rng = np.random.default_rng(0)
    y = [np.array([a, a if rng.random() < 0.95 else 1 - a]) for a in rng.integers(0, 2, 300)]
    X = [labels[:, None] * 0.7 + rng.normal(size=(2, 1)) for labels in y]
    options: dict[str, Any] = {"mode": mode, "decode": "marginal", "patience": 50}
    whole = VirtualEvidenceBoosting(n_rounds=8, **options).fit(X, y)
    assert {one.kind for one in whole.rounds_} == {"feature", "relation"}
    for n in range(1, 9):
        model = VirtualEvidenceBoosting(n_rounds=n, **options).fit(X, y)
        logs = [np.log(table[np.arange(2), labels]) for table, labels in zip(model.predict_proba(X), y, strict=True)]
        assert model.rounds_[-1].nll == pytest.approx(-np.mean(logs), abs=1e-9)
        assert whole.rounds_[n - 1].nll == pytest.approx(model.rounds_[-1].nll, abs=1e-12)


def test_the_last_loss_of_a_verified_model_is_its_own() -> None:
    world = make_order_chains(0.95, n_chains=4, length=100, n_features=5, random_state=1)
    model = VirtualEvidenceBoosting(mode="verified", n_rounds=8).fit(world.features, world.labels)
    assert model.accepted_relations_ == ["+1"]
    tables = model.predict_proba(world.features)
    logs = [np.log(table[np.arange(100), labels]) for table, labels in zip(tables, world.labels, strict=True)]
    assert model.rounds_[-1].nll == pytest.approx(-np.mean(logs), abs=1e-9)

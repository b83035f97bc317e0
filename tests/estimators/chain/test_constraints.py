"""Rules of neighbouring labels: schemes, pairs, predicates and costs, in training, prediction, files and streams."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import crfield
from crfield import ChainCRF, Constraints
from crfield.core.topology import Chains
from crfield.errors import InputError, LabelError, ModelFileError
from crfield.inference.decode import best_marginals, legal_marginals
from crfield.metrics.schemes import convert
from crfield.storage.archive import read_archive, write_archive
from crfield.training.chain.plan import TRAINERS

TAGS = {
    "bio": [p + k for p in ("B-", "I-") for k in "XY"] + ["O"],
    "iob1": [p + k for p in ("B-", "I-") for k in "XY"] + ["O"],
    "bioes": [p + k for p in ("B-", "I-", "E-", "S-") for k in "XY"] + ["O"],
    "bilou": [p + k for p in ("B-", "I-", "L-", "U-") for k in "XY"] + ["O"],
}


def noisy(n: int, seed: int, labels: list[str], scheme: str = "bio") -> tuple[list[Any], list[list[str]]]:
    """Sequences whose one word points at a random tag, so that without rules illegal tags come out."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        tags = convert([labels[k] for k in rng.integers(0, len(labels), rng.integers(1, 9))], scheme, scheme)
        words = [tag if rng.random() < 0.6 else labels[rng.integers(len(labels))] for tag in tags]
        X.append([{"word": word} for word in words])
        y.append(tags)
    return X, y


def legal(tags: Any, scheme: str = "bio") -> bool:
    return convert(list(tags), scheme, scheme) == list(tags)


# ----------------------------------------------------------------------------------------------------------- rules


@pytest.mark.parametrize("scheme", sorted(TAGS))
def test_a_scheme_allows_exactly_its_own_sequences(scheme: str) -> None:
    """Every short sequence: it is legal if writing its spans again changes nothing."""
    labels = TAGS[scheme]
    fixed = Constraints.of(scheme).scores(labels)
    for length in (1, 2, 3):
        for path in product(range(len(labels)), repeat=length):
            tags = [labels[k] for k in path]
            assert np.isfinite(fixed.of_path(list(path))) == legal(tags, scheme), tags


def test_all_forms_say_the_same() -> None:
    labels = TAGS["bio"]
    scheme = Constraints.of("BIO").scores(labels)

    def rule(before: str | None, after: str | None) -> bool:
        inside = after is not None and after.startswith("I-")
        return not inside or (before is not None and before[0] in "BI" and before[2:] == after[2:])  # type: ignore[index]

    names = [*labels, None]
    pairs = [(a, b) for a in names for b in names if (a, b) != (None, None)]
    bad = [pair for pair in pairs if not rule(*pair)]
    others = [
        Constraints.of(rule),
        Constraints.of(bad),
        Constraints(allowed=[pair for pair in pairs if rule(*pair)]),
        Constraints(forbidden=bad[:3], rule=rule),
        Constraints.from_scores(scheme, labels),
    ]
    for other in others:
        scores = other.scores(labels)
        np.testing.assert_array_equal(scores.edge, scheme.edge)
        np.testing.assert_array_equal(scores.start, scheme.start)
        np.testing.assert_array_equal(scores.end, scheme.end)


def test_allowed_pairs_leave_the_ends_free_unless_they_name_some() -> None:
    free = Constraints(allowed=[("A", "B"), ("B", "A")]).scores(["A", "B"])
    assert (free.start == 0).all()
    assert (free.end == 0).all()
    tied = Constraints(allowed=[("A", "B"), ("B", "A"), (None, "A")]).scores(["A", "B"])
    assert np.isneginf(tied.start).tolist() == [False, True]
    assert (tied.end == 0).all()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("bi", "scheme of constraints"),
        (3, "constraints must be"),
        ({("A", "B"): 1.0}, "constraints must be"),
        ([("A",)], "pairs"),
        (["AB"], "pairs"),
        ([(None, None)], "without steps"),
        ([(["A"], "B")], "cannot be labels"),
        (iter([("A", "B")]), "only once"),
    ],
    ids=["scheme", "number", "dict", "single", "text", "nothing", "list", "iterator"],
)
def test_what_cannot_be_a_rule_is_refused(given: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        ChainCRF(constraints=given).fit([[["a"]]], [["A"]])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Constraints(costs={("A", "B"): np.inf}), "finite"),
        (lambda: Constraints(costs=[("A", "B")]), "dict"),
        (lambda: Constraints(rule="bio"), "function"),
        (lambda: Constraints.of("bio").scores(["NOUN"]), "reads tags"),
        (lambda: Constraints.of("bio").scores(["E-X"]), "reads tags"),
        (lambda: Constraints.of([("a", "b")]).scores(["A", "B"]), "spelt"),
        (lambda: Constraints.of("bio").scores([1, 2]), "reads tags"),
    ],
    ids=["infinite", "list", "rule", "no tag", "other scheme", "no label", "numbers"],
)
def test_bad_constraints(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        make()


# ------------------------------------------------------------------------------------------------- the estimator


@pytest.mark.parametrize("scheme", ["bio", "bioes"])
def test_no_illegal_sequence_is_ever_predicted(body: str, scheme: str) -> None:
    X, y = noisy(40, 0, TAGS[scheme], scheme)
    test, _ = noisy(60, 1, TAGS[scheme], scheme)
    free = ChainCRF(transition_pairs="none", tol=1e-2).fit(X, y)
    ruled = ChainCRF(transition_pairs="none", tol=1e-2, constraints=scheme).fit(X, y)
    for decode in ("viterbi", "marginal"):
        free.set_params(decode=decode)
        ruled.set_params(decode=decode)
        assert not all(legal(tags, scheme) for tags in free.predict(test))
        assert all(legal(tags, scheme) for tags in ruled.predict(test))
    pairs = [(labels[i], labels[j]) for labels in [ruled.classes_] for i, j in np.argwhere(ruled._forbidden())]
    assert ("O", "I-X") in pairs


def test_training_is_the_likelihood_among_legal_sequences() -> None:
    """log p(y | x) by enumeration of the legal labellings, from the scores of an unruled twin."""
    X, y = noisy(25, 2, TAGS["bio"])
    model = ChainCRF(constraints="bio", l2=0.3).fit(X, y)
    short = [(x[:3], convert(t[:3], "bio", "bio")) for x, t in zip(X, y)]
    plain = clone(model).set_params(constraints=None)
    plain._model, plain._labels_known, plain._parts = model._fitted, model._coder, None
    plain._rules, plain.classes_ = "other", model.classes_
    for x, tags in short[:8]:
        scores, codes = plain.potentials([x]), {label: k for k, label in enumerate(model.classes_)}
        weights = {}
        for path in product(model.classes_, repeat=len(x)):
            if legal(path):
                k = [codes[tag] for tag in path]
                total = scores.node[np.arange(len(k)), k].sum() + sum(scores.edge[0][a, b] for a, b in pairwise(k))
                weights[path] = np.exp(total)
        expected = np.log(weights[tuple(tags)] / sum(weights.values()))
        np.testing.assert_allclose(model.log_prob([x], [tags]), [expected], rtol=1e-9)
        marginal = sum(w for path, w in weights.items() if path[0] == "O") / sum(weights.values())
        column = model.classes_.tolist().index("O")
        np.testing.assert_allclose(model.predict_proba([x])[0][0, column], marginal, rtol=1e-9)
    assert model.log_prob([[{"word": "O"}, {"word": "I-X"}]], [["O", "I-X"]])[0] == -np.inf


def test_an_illegal_training_sequence_is_named() -> None:
    X, y = [[["a"], ["b"]], [["a"], ["b"], ["a"]]], [["B-X", "I-X"], ["B-X", "O", "I-X"]]
    model = ChainCRF(constraints="bio")
    with pytest.raises(
        LabelError, match=r"sequence 1, step 2: 'I-X' after 'O' violates.*convert_sequences.*weight 0"
    ):
        model.fit(X, y)
    with pytest.raises(LabelError, match=r"sequence 0, step 0: 'I-X' at the start"):
        model.fit(X, [["I-X", "I-X"], ["B-X", "O", "O"]])
    with pytest.raises(LabelError, match=r"sequence 0, step 1: 'B-X' at the end"):
        ChainCRF(constraints=[("B-X", None)]).fit(X, [["I-X", "B-X"], ["B-X", "O", "O"]])
    with pytest.raises(LabelError, match="sequence 1: every labelling"):
        model.fit(X, [["B-X", "I-X"], ["O", {"O", "I-X"}, {"I-X"}]])
    model.fit(X, y, sample_weight=[1.0, 0.0])
    model.fit(X, [["B-X", "I-X"], ["B-X", {"O", "I-X"}, {"I-X"}]])


def test_rules_can_be_changed_after_training() -> None:
    X, y = noisy(50, 3, TAGS["bio"])
    test, _ = noisy(80, 4, TAGS["bio"])
    free = ChainCRF(transition_pairs="none").fit(X, y)
    before = [tags.tolist() for tags in free.predict(test)]
    free.set_params(constraints="bio")
    assert all(legal(tags) for tags in free.predict(test))
    stream = free.stream()
    assert np.isneginf(stream._scorer.transitions).any()
    free.set_params(constraints=[(None, "O")])
    assert all(tags[0] != "O" for tags in free.predict(test))
    free.set_params(constraints=None)
    assert [tags.tolist() for tags in free.predict(test)] == before
    with pytest.raises(InputError, match="scheme"):
        free.set_params(constraints="xyz").predict(test)


def test_where_nothing_is_legal_prediction_says_so() -> None:
    X, y = [[["a"], ["b"]]], [["B-X", "E-X"]]
    model = ChainCRF(constraints="bioes").fit(X, y)
    assert model.predict(X)[0].tolist() == ["B-X", "E-X"]
    for decode in ("viterbi", "marginal"):
        with pytest.raises(LabelError, match="sequence 1 has no labelling"):
            model.set_params(decode=decode).predict([X[0], [["a"]]])
    with pytest.raises(LabelError, match="sequence 0 has no labelling"):
        model.predict_proba([[["a"]]])
    assert model.predict([[]])[0].tolist() == []


def test_costs_are_paid_each_time() -> None:
    """A cost is a constant: the weights stay what they are, the answer changes at its price."""
    X, y = noisy(40, 5, TAGS["bio"])
    model = ChainCRF(l2=1.0).fit(X, y)
    dear = clone(model).set_params(constraints=Constraints(costs={("O", "B-X"): 50.0, (None, "B-X"): 50.0})).fit(X, y)
    assert dear.log_prob([[{"word": "O"}, {"word": "B-X"}]], [["O", "B-X"]])[0] > -50  # weights make up for it
    later = model.set_params(constraints=Constraints(costs={("O", "B-X"): 50.0}))
    test, _ = noisy(60, 6, TAGS["bio"])
    assert not any(pair == ("O", "B-X") for tags in later.predict(test) for pair in pairwise(tags))
    assert later.log_prob([[{"word": "O"}, {"word": "B-X"}]], [["O", "B-X"]])[0] > -np.inf


@pytest.mark.parametrize(
    "constraints",
    ["bio", Constraints(scheme="bio", costs={("O", "B-Y"): 1.5}), [("O", "I-X"), (None, "I-X")]],
    ids=["scheme", "object", "pairs"],
)
def test_model_files_and_pickles_keep_the_rules(tmp_path: Path, constraints: Any) -> None:
    X, y = noisy(40, 7, TAGS["bio"])
    test, _ = noisy(60, 8, TAGS["bio"])
    model = ChainCRF(constraints=constraints, transition_pairs="none").fit(X, y)
    model.save(tmp_path / "model.crf")
    loaded = crfield.load(tmp_path / "model.crf")
    for again in (loaded, pickle.loads(pickle.dumps(model))):
        assert [t.tolist() for t in again.predict(test)] == [t.tolist() for t in model.predict(test)]
        np.testing.assert_array_equal(again.potentials(test).edge, model.potentials(test).edge)
    refitted = clone(loaded).fit(X, y)
    np.testing.assert_allclose(refitted.objective_, model.objective_, rtol=1e-9)
    free = loaded.set_params(constraints=None).predict(test)
    assert not all(legal(tags) for tags in free)


def test_a_damaged_rule_in_a_file_is_refused(tmp_path: Path) -> None:
    path, edited = tmp_path / "model.crf", tmp_path / "edited.crf"
    model = ChainCRF(class_weight={"A": 2}, costs={("A", "B"): 3}).fit([[["a"], ["b"]]], [["A", "B"]])
    model.save(path)
    again = crfield.load(path)
    assert (again.constraints, again.class_weight, again.costs) == (None, {"A": 2.0}, {("A", "B"): 3.0})
    archive = read_archive(path)
    damages: list[dict[str, Any]] = [
        {"class_weight": [["A"]]},
        {"costs": {}},
        {"constraints": 3},
        {"class_weight": [["A", "x"]]},
    ]
    for damage in damages:
        header = {**archive.header, "parameters": {**archive.header["parameters"], **damage}}
        write_archive(edited, header, dict(archive.arrays))
        with pytest.raises(ModelFileError):
            crfield.load(edited)
    write_archive(edited, archive.header, {**archive.arrays, "layout/fixed_edge": np.zeros((3, 3))})
    with pytest.raises(ModelFileError):
        crfield.load(edited)


@pytest.mark.parametrize("dense", [True, False], ids=["numbers", "words"])
def test_streams_obey_the_rules(dense: bool) -> None:
    X, y = noisy(40, 9, TAGS["bio"])
    number = {tag: np.eye(5)[k] for k, tag in enumerate(TAGS["bio"])}
    if dense:
        X = [np.array([number[step["word"]] for step in x]) for x in X]
    model = ChainCRF(constraints="bio", transition_pairs="none").fit(X, y)
    for x in X[:12]:
        stream, tags = model.stream(viterbi=True), []
        for row in x:
            tags += stream.push(row).committed
        tags += stream.finish().committed
        assert tags == model.predict([x])[0].tolist()
        assert legal(tags)


def test_exports_hold_the_rules(tmp_path: Path) -> None:
    X, y = noisy(40, 9, TAGS["bio"])
    number = {tag: np.eye(5)[k] for k, tag in enumerate(TAGS["bio"])}
    X = [np.array([number[step["word"]] for step in x]) for x in X]
    model = ChainCRF(constraints="bio", transition_pairs="none").fit(X, y)
    model.export(tmp_path / "tagger.py")
    made: dict[str, Any] = {}
    exec((tmp_path / "tagger.py").read_text(), made)
    for x in X[:6]:
        stream, tags = made["Stream"](), []
        for row in x:
            tags += stream.push(row.tolist())["committed"]
        tags += stream.finish()["committed"]
        assert list(tags) == model.predict([x])[0].tolist()


def test_marginal_decoding_makes_the_fewest_expected_errors_among_legal_labellings() -> None:
    rng = np.random.default_rng(10)
    chains = Chains.from_lengths([4, 1, 3])
    node = rng.dirichlet(np.ones(3), chains.n_nodes)
    forbidden = rng.random((3, 3)) < 0.4
    forbidden[np.arange(3), [1, 2, 0]] = False
    path = legal_marginals(node, forbidden, chains)
    for first, stop in pairwise(chains.offsets):
        found = {
            p: node[np.arange(first, stop), p].sum()
            for p in product(range(3), repeat=stop - first)
            if not any(forbidden[a, b] for a, b in pairwise(p))
        }
        assert tuple(path[first:stop].tolist()) == max(found, key=found.__getitem__)
    np.testing.assert_array_equal(legal_marginals(node, np.zeros((3, 3), bool), chains), best_marginals(node))


@pytest.mark.parametrize("solver", sorted(TRAINERS))
def test_every_trainer_knows_the_rules(solver: str) -> None:
    X, y = noisy(40, 11, TAGS["bio"])
    test, _ = noisy(60, 12, TAGS["bio"])
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ChainCRF(solver=solver, constraints="bio", transition_pairs="none", max_iter=20).fit(X, y)
    assert np.isfinite(model.coef_).all()
    assert all(legal(tags) for tags in model.predict(test))


def test_label_functions_and_memm_have_no_rules() -> None:
    with pytest.raises(InputError, match="models of columns"):
        ChainCRF(constraints="bio", label_functions=[lambda a, b, x, t: 1.0]).fit([["a"]], [["O"]])
    with pytest.raises(InputError, match="MEMM has no parameter 'constraints'"):
        crfield.MEMM(constraints="bio").fit([[["a"]]], [["O"]])


def test_edges_with_features_obey_the_rules() -> None:
    X, y = noisy(30, 13, TAGS["bio"])
    model = ChainCRF(constraints="bio", transition_features="all", max_iter=30, tol=1e-2).fit(X, y)
    test, _ = noisy(60, 14, TAGS["bio"])
    assert all(legal(tags) for tags in model.predict(test))
    assert replace(model._fitted.layout, fixed=None).n_weights == model._fitted.layout.n_weights


def test_a_temperature_cools_costs_too() -> None:
    """p(y)^(1/T), normalised: costs are part of the score, what is forbidden stays so."""
    from crfield.estimators.chain.calibration import cooled

    X, y = noisy(30, 15, TAGS["bio"])
    model = ChainCRF(constraints=Constraints(scheme="bio", costs={("O", "O"): 1.5})).fit(X, y)
    cool = cooled(model._fitted, 2.0).potentials(X[:3], n_jobs=1)
    np.testing.assert_allclose(cool.node, model.potentials(X[:3]).node / 2, rtol=1e-12)
    np.testing.assert_allclose(cool.edge, model.potentials(X[:3]).edge / 2, rtol=1e-12)


def test_the_command_line_has_rules_and_orders(tmp_path: Path) -> None:
    from tests.cases.command_line import run, works

    (tmp_path / "t.txt").write_text("Ana B-PER\nLima I-PER\nsleeps O\n\nin O\nLima B-LOC\n\n")
    (tmp_path / "w.template").write_text("U0:%x[0,0]\nB\n")
    common = ("train", tmp_path / "t.txt", "--template", tmp_path / "w.template", "--model", tmp_path / "m.crf")
    works(*common, "--constraints", "bio", "--order", 2, "--quiet")
    model = crfield.load(tmp_path / "m.crf")
    assert (model.constraints, model.order) == ("bio", 2)
    assert legal(model.predict([[("Lima",), ("Lima",)]])[0])
    failed = run(*common, "--constraints", "boi", "--quiet")
    assert failed.exit_code == 2  # the option is refused before any file is read
    assert "expected one of bio" in failed.output

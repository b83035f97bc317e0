"""Trainers that go from sequence to sequence, against CRFsuite's, with the data in memory on both sides.

Averaged perceptron: CPU time of one pass over the training sentences, ours and CRFsuite's ``ap`` in turns. Both keep
the same features (pairs that occur), visit in random order and decode every sentence once. Then quality on the test
part: the perceptron after ten passes; SGD with the cumulative l1 penalty and OWL-QN (from a warm start, default
tolerance) with the same penalty, and their active features; the hinge by block-coordinate Frank–Wolfe until its gap
is 1e-3 of the objective, a bound that holds for the weights returned.

Passes and penalties were looked at on every fifth training sentence, the other four fifths trained on: ten passes are
where the perceptron's held-out F1 stops rising; l1 = 1 was the first penalty tried, had a held-out F1 of 93.7 with
10,955 active features, and was kept. The hinge's l2 = 10 was chosen for its gap alone.

``partial_fit``: how far the objective of `fit` is below after ten passes in ten parts each, on sentences (steps that
remember each sequence), of chunks, names and parts of speech, and on columns of a chest accelerometer at one scale
(Newton's steps). Constants were chosen on sentences of the first two corpora; parts of speech had no say.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pycrfsuite

from benchmarks.contestant import Ours, chain
from benchmarks.corpora import FORM_TEMPLATE, Bench, chunk_strings, entity_strings, forms, spanish_names
from benchmarks.finishing import chest
from benchmarks.table import Row, ratio
from benchmarks.timing import Timing, cpu, settled
from crfield.core.target import Target
from crfield.estimators.chain.crf import ChainCRF
from crfield.kernels.online import Trainer
from crfield.metrics import span_f1

PASSES, L1, RIDGE, GAP = 10, 1.0, 10.0, 1e-3
GAP_OF_PARTS = 1.0  # per cent
FASTER, PERCEPTRON_F1, SPARSE_F1, MOST_ACTIVE = 4.0, 93.3, 93.6, 15_000


class _Passes(pycrfsuite.Trainer):
    """CRFsuite's ``ap`` with the clock read after each pass, where ours takes its turn."""

    seconds: list[float]
    began: float
    after: Any

    def message(self, message: str) -> None:
        """Called by CRFsuite with every line of its log."""
        event = self.logparser.feed(message)
        if event == "iteration":
            self.seconds.append(cpu() - self.began)
            self.after()
        if event in ("iteration", "featgen_end"):
            self.began = cpu()


def run(bench: Bench) -> list[Row]:
    """Time of a pass, then quality."""
    corpus = bench.chunks
    train = corpus.train.first(1_000) if bench.quick else corpus.train
    judged = corpus.real and not bench.quick
    rows = [_passes(bench, train, required=FASTER if judged else None)]

    def f1(model: Any) -> float:
        return 100 * span_f1(corpus.test.tags, model.predict(corpus.test.rows))

    model = chain(corpus.template, solver="perceptron", solver_options={"epochs": PASSES}).fit(train.rows, train.tags)
    name = f"online: span F1 of the averaged perceptron, {PASSES} passes"
    rows.append(Row(name, f1(model), unit="%", required=PERCEPTRON_F1 if judged else None))
    for name, solver in (("SGD-L1", "sgd_l1"), ("OWL-QN after a warm start", "warm")):
        model = chain(corpus.template, l1=L1, l2=0.0, solver=solver).fit(train.rows, train.tags)
        active = int(np.count_nonzero(model.coef_))
        told = f"objective {model.objective_:,.1f} after {model.n_iter_} passes or steps"
        rows.append(
            Row(f"online: span F1 of {name}", f1(model), unit="%", required=SPARSE_F1 if judged else None, note=told)
        )
        rows.append(
            Row(
                f"online: active features of {name}",
                float(active),
                unit="",
                required=MOST_ACTIVE if judged else None,
                better="less",
            )
        )
    model = chain(corpus.template, l2=RIDGE, solver="frank_wolfe", tol=GAP).fit(train.rows, train.tags)
    told = f"{model.n_iter_} passes, {model.stop_reason_}, objective {model.objective_:,.1f}, span F1 {f1(model):.2f}"
    gap = GAP if model.converged_ else model.history_[-1].gap
    rows.append(
        Row(
            "online: duality gap of the hinge at the end, at most, relative to the objective",
            gap,
            unit="",
            required=GAP if judged else None,
            better="less",
            note=told,
        )
    )
    return [*rows, *_parts(bench, train, judged=judged)]


def _parts(bench: Bench, train: Any, *, judged: bool) -> list[Row]:
    """What ten passes of `partial_fit` leave of the gap to `fit`."""
    data: dict[str, tuple[Any, Any, dict[str, Any]]] = {}
    some = train.first(300 if bench.quick else 2_000)
    data[f"{len(some.rows):,} sentences"] = (some.rows, some.tags, {"template": bench.chunks.template})
    names = None if bench.quick else spanish_names(bench)
    if names is not None:
        data["1,000 sentences with names"] = (entity_strings(names.rows[:1_000]), names.tags[:1_000], {})
    if not bench.quick and bench.data is not None and (bench.data / "ewt").is_dir():
        words = forms(bench.data / "ewt" / "en_ewt-train.conllu.gz", "upos").first(500)
        data["500 sentences, parts of speech"] = (words.rows, words.tags, {"template": FORM_TEMPLATE})
    if bench.data is not None and (bench.data / "chest_acc").is_dir():
        signals, labels = chest(bench.data)
        every = np.concatenate(signals)
        even = [(x - every.mean(axis=0)) / every.std(axis=0) for x in signals]
        data["a chest accelerometer"] = (*minutes(even, labels), {})
    rows = []
    for name, (X, y, options) in data.items():
        n, order = len(X), np.random.default_rng(0).permutation(len(X))
        best, model, seconds = ChainCRF(n_jobs=1, **options).fit(X, y), ChainCRF(n_jobs=1, **options), Timing()
        with seconds.turn():
            for _ in range(PASSES):
                for part in np.array_split(order, PASSES):
                    model.partial_fit([X[i] for i in part], [y[i] for i in part], n_sequences=n)
        told = 0.5 * float(model.coef_ @ model.coef_) - float(model.log_prob(X, y).sum())
        rows.append(
            Row(
                f"online: partial_fit above fit after {PASSES} passes, {name}",
                100 * (told / best.objective_ - 1),
                unit="%",
                required=GAP_OF_PARTS if judged else None,
                better="less",
                note=f"{len(model.coef_):,} weights, {len(X):,} sequences, {PASSES} parts, {seconds.best:.2g} CPU s",
            )
        )
    return rows


def minutes(X: Any, y: Any, steps: int = 60) -> tuple[list[Any], list[Any]]:
    """Recordings cut into stretches of so many steps.

    >>> [len(x) for x in minutes([range(5)], [range(5)], 3)[0]]
    [3, 2]
    """
    cuts = [(s, k) for s in range(len(X)) for k in range(0, len(X[s]), steps)]
    return [X[s][k : k + steps] for s, k in cuts], [y[s][k : k + steps] for s, k in cuts]


def _passes(bench: Bench, train: Any, *, required: float | None) -> Row:
    """CPU time of a pass, in turns."""
    ours = Ours.build(train, bench.chunks.template)
    batch = ours.encoder.encode(train.rows)
    labels, allowed = ours.coder.encode(train.tags, batch.topology.lengths)
    target = Target(batch.topology, ours.coder.n_labels, labels, allowed)
    trainer, rng, mine = Trainer(ours.layout, batch, target.labels), np.random.default_rng(0), Timing()

    def turn() -> None:
        order = rng.permutation(trainer.n_sequences)
        with mine.turn():
            trainer.perceptron(order)

    rival = _Passes(algorithm="ap", verbose=False)
    rival.set_params({"max_iterations": PASSES, "epsilon": 0.0})
    rival.seconds, rival.after = [], turn
    for features, tags in zip(chunk_strings(train.rows), train.tags):
        rival.append(features, tags)
    rival.began = cpu()
    with settled():
        rival.train(bench.path("online.crfsuite"))
    return ratio(
        f"online: a pass of the averaged perceptron, {len(train.rows):,} sentences",
        mine,
        Timing(rival.seconds),
        required=required,
        note=f"{len(rival.seconds)} passes each, the first among them",
    )

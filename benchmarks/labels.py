"""Many labels: one evaluation with the 321 morphological tags of the English Web Treebank.

Features are of the form alone; pairs that do not occur have no weight, on both sides. CRFsuite's cost grows with
the square of the labels, ours with the transitions that occur. CRFsuite needs half a minute for an iteration, so it
does two; ours takes its turns after each. A quick run has fewer sentences but all labels. Single precision is what
L-BFGS takes while the end is far, as in `evaluation`.
"""

from __future__ import annotations

import numpy as np

from benchmarks import crfsuite_rival
from benchmarks.contestant import Ours
from benchmarks.corpora import FORM_TEMPLATE, Bench, template_strings, treebank, with_all_labels
from benchmarks.crfsuite_model import read_model
from benchmarks.table import Row, ratio
from benchmarks.timing import Timing, settled

REQUIRED, GOAL = 10.0, 60.0


def run(bench: Bench) -> list[Row]:
    """One evaluation against one iteration, and the same value at CRFsuite's weights."""
    if bench.data is None or not (bench.data / "ewt").is_dir():
        return [Row("labels: 321 labels", None, note="needs the English Web Treebank (CRFIELD_DATA)")]
    train = treebank(bench.data)
    if bench.quick:
        train = with_all_labels(train, 500)
    ours = Ours.build(train, FORM_TEMPLATE)
    weights, gradient = ours.half_trained(epochs=1), np.empty(ours.n_weights)
    mine, single = Timing(), Timing()

    def evaluate(_: object) -> None:
        for _turn in range(3):
            with mine.turn():
                ours.problem.evaluate(weights, gradient)
            with single.turn():
                ours.problem.evaluate_single(weights, gradient)

    path = bench.path("labels.crfsuite")
    with settled():
        trained = crfsuite_rival.train(
            template_strings(FORM_TEMPLATE, train.rows), train.tags, path, max_iterations=2, after=evaluate
        )
    value = ours.objective(ours.weights_of(read_model(path)))
    name = f"labels: {ours.layout.n_labels} labels, {len(train.rows):,} sentences"
    theirs = Timing([i.seconds / i.trials for i in trained.iterations[1:]])
    note = f"{len(ours.layout.pairs):,} of {ours.layout.n_labels**2:,} transitions, {ours.n_weights:,} weights"
    return [
        ratio(f"{name} / CRFsuite iteration", mine, theirs, required=REQUIRED, goal=GOAL, note=note),
        ratio(
            f"{name}, single precision (far from the end) / CRFsuite iteration", single, theirs, goal=GOAL, note=note
        ),
        Row(
            "labels: our value of CRFsuite's weights, relative difference",
            abs(value / trained.loss - 1),
            unit="",
            required=1e-9,
            better="less",
            ours=f"{value:,.6f}",
            rival=f"{trained.loss:,.6f}",
        ),
    ]

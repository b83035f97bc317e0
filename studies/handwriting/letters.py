"""Handwritten words: what trees on pixels bring to a chain of letters.

6,877 words of 16 × 8 pixel letters (`storage.datasets.letters`), in ten folds; each fold is tested on by models of
the other nine. A linear chain weighs every pixel on its own, which no letter is made of. Four models:

    pixels, linear chain            `ChainCRF` on the 128 pixels
    trees, letters alone            boosted trees of all pixels, no neighbours (`TreeCRF` without transitions)
    trees, then a chain             the scores of those trees over the letters' shares, with counted transitions: a
                                    hidden Markov model on a classifier (as `ClassifierHMM` does)
    trees in the chain              `TreeCRF`: trees follow the slope of the likelihood of whole words

The last two differ in what trees are grown for: the former's for letters alone, the latter's for what the word leaves
open. Accuracy is of letters; whole words as well. Intervals are over folds.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.data.labels import LabelCoder
from crfield.estimators.boosted.tree_crf import TreeCRF
from crfield.estimators.chain.crf import ChainCRF
from crfield.estimators.markov.classifier_hmm import FLOOR
from crfield.inference.chain import ChainEngine
from crfield.report.findings import Claim, Findings, mean_interval, paired_interval, percent
from crfield.storage.datasets.letters import Letters, read_letters
from crfield.training.markov.counting import counted

LINEAR, ALONE, MARKOV, BOOSTED = (
    "pixels, linear chain",
    "trees, letters alone",
    "trees, then a chain",
    "trees in the chain",
)
MODELS = (LINEAR, ALONE, MARKOV, BOOSTED)
COLUMNS = ("model", "first fold", "letters", "node by node", "words", "letters − linear chain")
WANTED = 0.92
PLAIN = (0.86, 0.89)


@dataclass(frozen=True)
class Outcome:
    """Shares of right letters as a whole and node by node, and of right words."""

    letters: float
    nodes: float
    words: float


def letters(
    folder: str,
    *,
    folds: Sequence[int] = tuple(range(10)),
    n_rounds: int = 80,
    max_depth: int = 8,
    learning_rate: float = 0.1,
    most_words: int | None = None,
    n_jobs: int = 1,
) -> Findings:
    """All models on the given folds, each trained on the other nine, or on ``most_words`` words drawn from them."""
    data = read_letters(os.path.join(folder, "letters", "letters.npz"))
    outcomes: dict[str, list[Outcome]] = {name: [] for name in MODELS}
    for fold in folds:
        found = run_fold(
            data,
            fold,
            n_rounds=n_rounds,
            max_depth=max_depth,
            learning_rate=learning_rate,
            most_words=most_words,
            n_jobs=n_jobs,
        )
        for name, outcome in found.items():
            outcomes[name].append(outcome)
    linear = [outcome.letters for outcome in outcomes[LINEAR]]
    rows = []
    for name, runs in outcomes.items():
        right = [outcome.letters for outcome in runs]
        rows.append(
            (
                name,
                runs[0].letters,
                mean_interval(right),
                mean_interval(outcome.nodes for outcome in runs),
                mean_interval(outcome.words for outcome in runs),
                None if name == LINEAR else paired_interval(right, linear),
            )
        )
    learnt = "the other nine" if most_words is None else f"{most_words:,} words of the other nine"
    return Findings(
        f"Letters: {len(folds)} of ten folds tested on, trained on {learnt}; right letters",
        COLUMNS,
        tuple(rows),
        tuple(_claims(outcomes, folds, whole=most_words is None)),
        (
            f"trees: {n_rounds} rounds, depth {max_depth}, learning rate {learning_rate:g}, half of the letters and "
            "half of the pixels each round; linear chain: l2 = 1",
            "± is half of the 95 % interval of the mean over folds; differences fold by fold; letters and words by "
            "Viterbi, node by node by marginals",
        ),
    )


def run_fold(
    data: Letters,
    fold: int,
    *,
    n_rounds: int,
    max_depth: int,
    learning_rate: float,
    most_words: int | None = None,
    models: Sequence[str] = MODELS,
    n_jobs: int = 1,
) -> dict[str, Outcome]:
    """Train on all folds but one and test on that."""
    learn = data.fold != fold
    if most_words is not None:
        drawn = np.random.default_rng(fold).permutation(np.flatnonzero(learn))[:most_words]
        learn = np.isin(np.arange(len(learn)), drawn)
    X, y = data.part(learn)
    test = data.part(data.fold == fold)

    def grown(transitions: str) -> TreeCRF:
        return TreeCRF(
            transitions=transitions,
            n_rounds=n_rounds,
            max_depth=max_depth,
            learning_rate=learning_rate,
            subsample=0.5,
            max_features=0.5,
            random_state=fold,
            n_jobs=n_jobs,
        ).fit(X, y)

    found = {}
    if LINEAR in models:
        linear = ChainCRF(tol=1e-3, n_jobs=n_jobs).fit(X, y)
        found[LINEAR] = outcome_of(linear.potentials(test[0]), linear._coder, test[1], n_jobs=n_jobs)
    if ALONE in models or MARKOV in models:
        alone = grown("none")
        scores = alone.potentials(test[0])
        found[ALONE] = outcome_of(scores, alone._coder, test[1], n_jobs=n_jobs)
        chained = on_counts(list(alone.predict_proba(test[0])), y, alone._coder)
        found[MARKOV] = outcome_of(chained, alone._coder, test[1], n_jobs=n_jobs)
    if BOOSTED in models:
        boosted = grown("table")
        found[BOOSTED] = outcome_of(boosted.potentials(test[0]), boosted._coder, test[1], n_jobs=n_jobs)
    return found


def on_counts(tables: Sequence[np.ndarray], y: Sequence[np.ndarray], coder: LabelCoder) -> Potentials:
    """A hidden Markov model: p(c | x) / p(c) from probabilities of single letters, transitions counted in y.

    >>> coder = LabelCoder().fit([["a", "b"]])
    >>> on_counts([np.full((2, 2), 0.5)], [np.array(["a", "b"])], coder).edge.round(2).tolist()
    [[[-1.1, -0.41], [-0.69, -0.69]]]
    """
    known = Chains.from_lengths([len(word) for word in y])
    target = Target(known, coder.n_labels, *coder.encode(y, known.lengths))
    start, transition, shares = counted(target, smoothing=1.0)
    chains = Chains.from_lengths([len(table) for table in tables])
    node = np.log(np.maximum(np.concatenate(tables), FLOOR)) - np.log(shares)
    node[chains.offsets[:-1][chains.lengths > 0]] += np.log(start)
    return Potentials(node, np.log(transition)[None], chains)


def outcome_of(scores: Potentials, coder: LabelCoder, truth: Sequence[np.ndarray], *, n_jobs: int = 1) -> Outcome:
    """Right letters and words of the best paths, and right letters of the marginals."""
    chains, engine = scores.topology, ChainEngine(n_jobs)
    labels = coder.encode(truth, chains.lengths)[0]
    right = engine.best_path(scores)[1] == labels
    nodes = engine.infer(scores, Semiring.LOG).node.argmax(axis=1) == labels
    words = [right[a:b].all() for a, b in zip(chains.offsets[:-1], chains.offsets[1:])]
    return Outcome(float(right.mean()), float(nodes.mean()), float(np.mean(words)))


def _claims(outcomes: dict[str, list[Outcome]], folds: Sequence[int], *, whole: bool) -> list[Claim]:
    claims = []
    boosted, linear = outcomes[BOOSTED], outcomes[LINEAR]
    if whole:
        first = boosted[0].letters
        claims.append(Claim(f"{BOOSTED}: ≥ 92 % of the letters of fold {folds[0]}", first >= WANTED, percent(first)))
        low, high = PLAIN
        mean = float(np.mean([outcome.letters for outcome in linear]))
        told = f"{LINEAR}: between {percent(low, 0)} and {percent(high, 0)}"
        claims.append(Claim(told, low <= mean <= high, percent(mean)))
    for better, worse in ((BOOSTED, MARKOV), (MARKOV, ALONE), (BOOSTED, LINEAR)):
        gap = paired_interval([o.letters for o in outcomes[better]], [o.letters for o in outcomes[worse]])
        sure = gap.low > 0 if len(folds) > 1 else gap.mean > 0
        around = f", 95 % interval {gap.low:+.3f} … {gap.high:+.3f}" if len(folds) > 1 else ""
        claims.append(Claim(f"{better} above {worse}", sure, f"{gap.mean:+.3f}{around}"))
    return claims

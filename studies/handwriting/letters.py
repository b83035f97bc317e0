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

from collections.abc import Sequence

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
from studies.framework import Case, Outcome, Outcomes, Settings, Study, above, data_path, each, folds_of

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


FOLDS = 10


def run(settings: Settings, case: Case) -> Outcome:
    """Train on all folds but one and test on that: model → shares of right letters, nodes and words."""
    data, fold, n_jobs = read_letters(data_path(settings, "letters", "letters.npz")), case["seed"], settings["n_jobs"]
    X, y = data.part(learning_words(data, fold, settings["most_words"]))
    test = data.part(data.fold == fold)

    def grown(transitions: str) -> TreeCRF:
        return TreeCRF(
            transitions=transitions,
            **{name: settings[name] for name in ("n_rounds", "max_depth", "learning_rate")},
            subsample=0.5,
            max_features=0.5,
            random_state=fold,
            n_jobs=n_jobs,
        ).fit(X, y)

    found, models = {}, settings["models"]
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


def learning_words(data: Letters, fold: int, most_words: int | None) -> np.ndarray:
    """(words,) which words are learnt from where ``fold`` is tested on: all others, or some drawn from these.

    >>> words = Letters([], [], np.array([0, 1, 2, 0]))
    >>> learning_words(words, 0, None).tolist(), int(learning_words(words, 0, 1).sum())
    ([False, True, True, False], 1)
    """
    learn = data.fold != fold
    if most_words is not None:
        drawn = np.random.default_rng(fold).permutation(np.flatnonzero(learn))[:most_words]
        learn = np.isin(np.arange(len(learn)), drawn)
    return learn


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
    return {"letters": float(right.mean()), "nodes": float(nodes.mean()), "words": float(np.mean(words))}


def title_of(settings: Settings) -> str:
    """How many folds, and from what is learnt."""
    most = settings["most_words"]
    learnt = "the other nine" if most is None else f"{most:,} words of the other nine"
    return f"Letters: {len(settings['seeds'])} of ten folds tested on, trained on {learnt}; right letters"


def report(settings: Settings, outcomes: Outcomes) -> Findings:
    """The table over folds."""
    rows = []
    for name in settings["models"]:
        right = each(outcomes, name, "letters")
        gap = None if name == LINEAR else paired_interval(right, each(outcomes, LINEAR, "letters"))
        others = (mean_interval(each(outcomes, name, what)) for what in ("nodes", "words"))
        rows.append((name, right[0], mean_interval(right), *others, gap))
    notes = (
        f"trees: {settings['n_rounds']} rounds, depth {settings['max_depth']}, learning rate "
        f"{settings['learning_rate']:g}, half of the letters and half of the pixels each round; linear chain: l2 = 1",
        "± is half of the 95 % interval of the mean over folds; differences fold by fold; letters and words by "
        "Viterbi, node by node by marginals",
    )
    return Findings(title_of(settings), COLUMNS, tuple(rows), notes=notes)


def claims(settings: Settings, outcomes: Outcomes) -> list[Claim]:
    """Enough letters with trees and no more than expected without, and who is above whom."""
    right, claims = {name: each(outcomes, name, "letters") for name in settings["models"]}, []
    if settings["most_words"] is None:
        first, fold = right[BOOSTED][0], settings["seeds"][0]
        claims.append(Claim(f"{BOOSTED}: ≥ 92 % of the letters of fold {fold}", first >= WANTED, percent(first)))
        (low, high), mean = PLAIN, float(np.mean(right[LINEAR]))
        told = f"{LINEAR}: between {percent(low, 0)} and {percent(high, 0)}"
        claims.append(Claim(told, low <= mean <= high, percent(mean)))
    for better, worse in ((BOOSTED, MARKOV), (MARKOV, ALONE), (BOOSTED, LINEAR)):
        claims.append(above(f"{better} above {worse}", right[better], right[worse], single=True))
    return claims


FULL: Settings = {
    "seeds": list(range(FOLDS)),
    "n_rounds": 80,
    "max_depth": 8,
    "learning_rate": 0.1,
    "most_words": None,
    "models": list(MODELS),
}
STUDY = Study(
    FULL,
    {**FULL, "seeds": [0], "n_rounds": 25, "max_depth": 6, "learning_rate": 0.3, "most_words": 1_500},
    folds_of(FOLDS),
    run,
    report,
    claims,
    folds=True,
)

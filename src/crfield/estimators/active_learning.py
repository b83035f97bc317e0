"""Active learning: which sequences a person should label next.

Labels cost time; sequences without labels are many. A model that was trained on a few can say where it is in doubt,
and those tell it more than sequences drawn at random (Settles & Craven 2008, *An analysis of active learning
strategies for sequence labeling tasks*). With p(y | x) over whole labellings, y₁ the best and y₂ the second:

    least_confidence    1 − p(y₁ | x)
    margin              p(y₂ | x) − p(y₁ | x)
    entropy             H(Y | x) = −Σ_y p(y | x) log p(y | x), over all labellings, exact
    n_best_entropy      the same over the n best labellings alone, their probabilities made to sum to one

All grow with the length of a sequence, and so does the work of labelling it: ``per_step`` divides by the number of
steps, which asks for the most doubt for the least work. That is the default, with the entropy, which grows about as
the length does. Where work is counted in tokens, doubts that are not divided buy few long sequences and were about
as good as chance in a study of Spanish names (``crfield experiment active-entities``); divided, half of the tokens
did.

The most doubtful sequences of a corpus are often doubtful for one and the same reason. ``diversity`` λ picks one
after the other, each by its doubt less its likeness to what was picked before (maximal marginal relevance,
Carbonell & Goldstein 1998):

    next = argmax_s  (1 − λ) doubt_s − λ max_{c chosen} cos(x_s, x_c)

with doubts brought to 0 … 1 and x_s the sum of the columns of all steps of a sequence. That costs one product of the
columns with a vector for each pick.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from crfield.core.checks import integer, number, one_of
from crfield.core.estimator import Estimator
from crfield.core.typing import Labels, Sequences
from crfield.data.batch import Batch
from crfield.errors import InputError
from crfield.estimators.base.fitted import fitted_of

DOUBTS = ("least_confidence", "margin", "entropy", "n_best_entropy")


class Ranking(NamedTuple):
    """Sequences to label, the most telling first.

    >>> Ranking(np.array([4, 1]), np.array([0.9, 0.2])).numbers.tolist()
    [4, 1]
    """

    numbers: np.ndarray  # (k,) which sequences of X
    doubts: np.ndarray  # (k,) how much the model doubts each


def rank_for_labelling(
    model: Estimator,
    X: Sequences,
    k: int | None = None,
    *,
    by: str = "entropy",
    per_step: bool = True,
    diversity: float = 0.0,
    n_best: int = 10,
    known: Labels | None = None,
) -> Ranking:
    """The ``k`` sequences of X (all of them by default) whose labels would teach a fitted model most.

    ``by`` is how doubt is measured: "entropy", "least_confidence", "margin" or "n_best_entropy" (of ``n_best``
    labellings); ``per_step`` divides it by the length. ``diversity`` between 0 and 1 weighs how unlike the chosen
    ones should be. ``known`` has labels that are known already, None where they are not, as in ``predict``: what is
    left in doubt counts. Sequences without steps come last.

    >>> import crfield
    >>> made = crfield.make_phrases(60, random_state=0)
    >>> X = [crfield.phrase_features(tokens) for tokens in made.tokens]
    >>> model = crfield.ChainCRF().fit(X[:20], made.labels[:20])
    >>> ranking = rank_for_labelling(model, X[20:], 3)
    >>> len(ranking.numbers), bool((np.diff(ranking.doubts) <= 0).all())
    (3, True)
    """
    one_of(*DOUBTS)("by", by)
    number(0, most=1, meaning="how much unlike sequences are preferred")("diversity", diversity)
    integer(2, meaning="how many labellings are looked at")("n_best", n_best)
    if k is not None:
        integer(1, meaning="how many sequences to label")("k", k)
    doubts = doubts_of(model, X, by, n_best=int(n_best), known=known)
    lengths = np.array([len(x) if hasattr(x, "__len__") else x.shape[0] for x in X])
    if per_step:
        doubts = doubts / np.maximum(lengths, 1)
    doubts = np.where(lengths > 0, doubts, -np.inf)
    count = len(doubts) if k is None else min(int(k), len(doubts))
    if diversity == 0 or count == 0:
        numbers = np.argsort(-doubts, kind="stable")[:count]
    else:
        numbers = _diverse(doubts, _sums(model, X), count, float(diversity))
    return Ranking(numbers, doubts[numbers])


def doubts_of(
    model: Estimator, X: Sequences, by: str, *, n_best: int = 10, known: Labels | None = None
) -> np.ndarray:
    """(B,) how much a model doubts its labels of every sequence."""
    told = {} if known is None else {"known": known}
    if by == "entropy":
        return np.asarray(_able(model, "entropy", by)(X, **told))
    if by == "least_confidence" and known is None:
        labels = _able(model, "predict", by)(X)
        return -np.expm1(np.minimum(_able(model, "log_prob", by)(X, labels), 0.0))
    wanted = {"least_confidence": 1, "margin": 2}.get(by, n_best)
    out = np.zeros(len(X))
    for s, labellings in enumerate(_able(model, "predict_n_best", by)(X, wanted, **told)):
        chances = np.array([labelling.probability for labelling in labellings])
        if by == "least_confidence":
            out[s] = 1.0 - chances[0]
        elif by == "margin":
            out[s] = (chances[1] if len(chances) > 1 else 0.0) - chances[0]
        else:
            shares = chances / chances.sum()
            out[s] = -float((shares * np.log(np.maximum(shares, 1e-300))).sum())
    return out


def _able(model: Estimator, method: str, by: str) -> Any:
    """A method of the model; InputError where it has none."""
    found = getattr(model, method, None)
    if found is None:
        raise InputError(
            f"by={by!r} asks for the probabilities of whole labellings (a method {method!r}), which "
            f"{type(model).__name__} has not. Use a chain model, or one with log_prob and by='least_confidence'."
        )
    return found


def _sums(model: Estimator, X: Sequences) -> Any:
    """(B, K) sparse: the columns of every sequence summed over its steps, each row of length one."""
    from scipy.sparse import csr_array, hstack

    encoder = getattr(fitted_of(model), "encoder", None)
    if encoder is None:
        raise InputError(
            f"diversity compares the columns of sequences, and {type(model).__name__} has none to show. Use "
            "diversity=0."
        )
    batch: Batch = encoder.encode(X)
    node, chains = batch.node, batch.topology
    values = np.ones(len(node.indices)) if node.values is None else node.values
    rows = csr_array((values, node.indices, node.indptr), shape=(chains.n_nodes, node.width))
    if node.dense is not None:
        rows = hstack([rows, csr_array(node.dense)], format="csr")
    own = csr_array(
        (np.ones(chains.n_nodes), np.arange(chains.n_nodes), chains.offsets), shape=(len(X), chains.n_nodes)
    )
    sums = csr_array(own @ rows)
    size = np.sqrt(np.asarray(sums.multiply(sums).sum(axis=1)).reshape(-1))
    return csr_array(sums.multiply(1.0 / np.maximum(size, 1e-300)[:, None]))


def _diverse(doubts: np.ndarray, sums: Any, count: int, diversity: float) -> np.ndarray:
    """Numbers of sequences, picked one after the other by doubt less likeness."""
    finite = doubts[np.isfinite(doubts)]
    low, high = (finite.min(), finite.max()) if len(finite) else (0.0, 0.0)
    scaled = (doubts - low) / (high - low) if high > low else np.where(np.isfinite(doubts), 0.0, -np.inf)
    likeness, free, chosen = np.zeros(len(doubts)), np.ones(len(doubts), bool), []
    for _ in range(count):
        worth = np.where(free, (1 - diversity) * scaled - diversity * likeness, -np.inf)
        # Where only empty sequences are left all worths are -inf: take them as they come.
        best = int(np.argmax(worth)) if np.isfinite(worth).any() else int(np.argmax(free))
        chosen.append(best)
        free[best] = False
        likeness = np.maximum(likeness, sums @ sums[[best]].toarray().reshape(-1))
    return np.array(chosen, dtype=np.int64)

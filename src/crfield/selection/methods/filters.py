"""Filters: rank candidates once, by what each tells about the labels, without any model.

They are the cheapest selection and the weakest: a candidate is not looked at again after others were chosen, so all
copies of a good column are good (Vail 2008, section 3.1.2). As baselines they say what looking again is worth.

`mutual_information` cuts a column at its quantiles and measures, in nats, what the cell tells about being in the
label, or in the pair of labels, that the candidate is linked to:

    score(k, c) = I( cell of x_k ; [y = c] )

`relieff` (Kononenko 1994, *Estimating attributes: analysis and extensions of RELIEF*) looks at steps that are alike
in all columns. A good column differs between a step and its nearest neighbours of other classes (misses), and agrees
with those of its own (hits):

    score(k, c) = mean over sampled steps of class c of [ Σ_{d ≠ c} P(d) / (1 − P(c)) · |x_k − x_k(miss of d)|
                                                          − |x_k − x_k(hit)| ]     columns scaled to their range

which, weighed with P(c) and summed, is the weight of the column in the paper. Classes are labels for columns that are
linked to labels, pairs of labels for those linked to pairs; distances are within the columns of one sort. Columns
come chunk by chunk, twice for ReliefF; memory is that of the answer, a chunk, and sampled steps × pool.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from crfield.core.checks import integer, one_of
from crfield.core.target import Target
from crfield.errors import InputError
from crfield.features.lazy_columns import STATE, TRANSITION, LazyColumns
from crfield.selection.methods.grafting import Watch, check_rounds
from crfield.selection.path import SelectionPath
from crfield.selection.problem import SelectionProblem
from crfield.selection.record import Recorder
from crfield.selection.standardised import StandardisedColumns

FILTERS = ("mutual-information", "relieff")
CHUNK = 64  # columns at a time


def filter_path(
    problem: SelectionProblem,
    *,
    score: str = "mutual-information",
    m: int = 8,
    l2: float = 0.01,
    max_features: int = 200,
    patience: int | None = 10,
    criterion: str = "error",
    tol: float = 1e-5,
    max_iter: int = 50,
    random_state: int | np.random.Generator | None = 0,
    watch: Watch | None = None,
) -> SelectionPath:
    """Rank all candidates once, and let the next ``m`` in at every round.

    >>> from crfield.core.topology import Chains
    >>> from crfield.features.lazy_columns import MatrixColumns
    >>> rng = np.random.default_rng(0)
    >>> chains, y = Chains.from_lengths([200]), np.repeat(rng.integers(0, 2, 40), 5)
    >>> x = rng.normal(size=(200, 4)) + np.outer(y, [0, 2, 0, 1])
    >>> problem = SelectionProblem(MatrixColumns(x, chains=chains, n_labels=2), Target(chains, 2, y))
    >>> [sorted(one.added) for one in filter_path(problem, m=2, max_features=4)]
    [[], ['s1 | 0', 's1 | 1'], ['s3 | 0', 's3 | 1']]
    """
    check_rounds(m=m, max_features=max_features, patience=patience)
    one_of(*FILTERS)("score", score)
    record = Recorder(problem, score, criterion=criterion, patience=patience, watch=watch)
    model = problem.fit([], l2=l2, tol=tol, max_iter=max_iter)
    record.add(model)
    columns, target = StandardisedColumns(problem), problem.train.target
    if score == "relieff":
        worth = relieff(columns, target, random_state=random_state)
    else:
        worth = mutual_information(columns, target)
    order = np.argsort(-worth, kind="stable")
    order = order[problem.usable[order] & (worth[order] > 0)][:max_features]
    for first in range(0, len(order), m):
        if record.stopped:
            break
        entering = order[first : first + m]
        model = problem.fit(np.concatenate([model.active, entering]), model, l2=l2, tol=tol, max_iter=max_iter)
        record.add(model, added=entering, largest=float(worth[entering[0]]))
    if not record.stopped:
        record.stop("max_features" if len(order) == max_features else "no candidate tells more")
    return record.path()


def mutual_information(candidates: LazyColumns, target: Target, *, n_bins: int = 8) -> np.ndarray:
    """(n_candidates,) information in nats between a column in ``n_bins`` cells and the labels of its link.

    >>> from crfield.core.topology import Chains
    >>> from crfield.features.lazy_columns import MatrixColumns
    >>> chains = Chains.from_lengths([4])
    >>> columns = MatrixColumns(np.array([[0.0, 1], [0, 2], [1, 1], [1, 2]]), chains=chains, n_labels=2)
    >>> mutual_information(columns, Target(chains, 2, np.array([0, 0, 1, 1]))).round(4).tolist()
    [0.6931, 0.6931, 0.0, 0.0]
    """
    integer(2)("n_bins", n_bins)
    scores = np.zeros(candidates.n_candidates)
    for link, rows, classes, n_classes in _sorts(candidates, target):
        if not len(rows):
            continue
        for columns, numbers, owner, own_class in _chunks(candidates, link):
            values = candidates.chunk(columns)[rows]
            found = np.stack([_information(x, classes, n_classes, n_bins) for x in values.T])
            scores[numbers] = found[owner, own_class]
    return scores


def _information(x: np.ndarray, classes: np.ndarray, n_classes: int, n_bins: int) -> np.ndarray:
    """(n_classes,) information between the cell of x and each class against the rest."""
    cuts = np.unique(x)[1:]
    if len(cuts) >= n_bins:
        cuts = np.quantile(x, np.arange(1, n_bins) / n_bins)
        often = cuts[1:][cuts[1:] == cuts[:-1]]  # a value that fills a cell: what lies above it is another cell
        cuts = np.unique(np.concatenate([cuts, np.nextafter(often, np.inf)]))
    cell = np.searchsorted(cuts, x, side="right")
    n_cells = int(cell.max()) + 1
    met = np.bincount(cell * n_classes + classes, minlength=n_cells * n_classes).reshape(n_cells, n_classes)
    joint = met / len(x)  # cell and class
    of_cell, of_class = joint.sum(axis=1, keepdims=True), joint.sum(axis=0, keepdims=True)
    total = np.zeros(n_classes)
    for both, one in ((joint, of_class), (of_cell - joint, 1.0 - of_class)):
        with np.errstate(divide="ignore", invalid="ignore"):
            part = both * np.log(both / (of_cell * one))
        total += np.where(both > 0, part, 0.0).sum(axis=0)
    return np.maximum(total, 0.0)


def relieff(
    candidates: LazyColumns,
    target: Target,
    *,
    n_neighbours: int = 10,
    n_samples: int = 250,
    pool: int = 2_000,
    random_state: int | np.random.Generator | None = 0,
) -> np.ndarray:
    """(n_candidates,) weights of ReliefF; neighbours are sought in a random ``pool`` of steps.

    >>> from crfield.core.topology import Chains
    >>> from crfield.features.lazy_columns import MatrixColumns
    >>> rng = np.random.default_rng(0)
    >>> chains, y = Chains.from_lengths([300]), rng.integers(0, 2, 300)
    >>> x = np.stack([y + rng.normal(0, 0.2, 300), rng.normal(size=300)], axis=1)
    >>> scores = relieff(MatrixColumns(x, chains=chains, n_labels=2), Target(chains, 2, y))
    >>> bool(scores[:2].min() > 0.2 > abs(scores[2:]).max())
    True
    """
    if n_neighbours < 1 or n_samples < 1 or pool < 2:
        raise InputError(
            f"expected n_neighbours ≥ 1, n_samples ≥ 1 and pool ≥ 2, got {n_neighbours}, {n_samples}, {pool}."
        )
    rng = np.random.default_rng(random_state)
    scores = np.zeros(candidates.n_candidates)
    for link, rows, classes, n_classes in _sorts(candidates, target):
        if not len(rows) or not (candidates.link == link).any():
            continue
        pooled = _spread(rng, classes, n_classes, pool)
        sampled = pooled[_spread(rng, classes[pooled], n_classes, n_samples)]
        place, kind = classes[pooled], classes[sampled]
        apart = np.zeros((len(sampled), len(pooled)))
        for columns, *_ in _chunks(candidates, link):
            values = _ranged(candidates.chunk(columns)[rows])
            for x in values.T:
                apart += np.abs(x[sampled][:, None] - x[pooled])
        apart[sampled[:, None] == pooled] = np.inf  # a step is no neighbour of its own
        share = np.bincount(classes, minlength=n_classes) / len(classes)
        near, pull = _neighbours(apart, place, kind, share, n_neighbours)
        for columns, numbers, owner, own_class in _chunks(candidates, link):
            values = _ranged(candidates.chunk(columns)[rows])
            # (sampled, columns): misses of all classes, each with its share, less hits
            told = np.zeros((len(sampled), len(columns)))
            for other in range(near.shape[1]):
                gap = np.abs(values[sampled] - values[pooled[near[:, other]]])
                told += pull[:, other, None] * gap
            mean = np.zeros((len(columns), n_classes))
            for own in np.unique(kind):
                mean[:, own] = told[kind == own].mean(axis=0)
            scores[numbers] = mean[owner, own_class]
    return scores


def _neighbours(
    apart: np.ndarray, place: np.ndarray, kind: np.ndarray, share: np.ndarray, most: int
) -> tuple[np.ndarray, np.ndarray]:
    """For every sampled step its neighbours (S, n) in the pool and what each of them counts: misses +, hits −."""
    found, counts = [], []
    for other in np.unique(place):
        those = np.flatnonzero(place == other)
        far = apart[:, those]
        take = min(most, len(those))
        near = np.argpartition(far, take - 1, axis=1)[:, :take]
        reached = np.isfinite(np.take_along_axis(far, near, axis=1))  # not the step itself
        others = np.maximum(1.0 - share[kind], 1e-12)
        weight = np.where(kind == other, -1.0, share[other] / others)[:, None] * reached
        found.append(those[near])
        counts.append(weight / np.maximum(reached.sum(axis=1, keepdims=True), 1))
    return np.concatenate(found, axis=1), np.concatenate(counts, axis=1)


def _spread(rng: np.random.Generator, classes: np.ndarray, n_classes: int, most: int) -> np.ndarray:
    """Up to ``most`` random places, of rare classes as many as there are up to an equal share of half of them."""
    if len(classes) <= most:
        return np.arange(len(classes))
    order = rng.permutation(len(classes))
    least = most // (2 * n_classes)
    rare = [order[classes[order] == own][:least] for own in range(n_classes)]
    kept = np.unique(np.concatenate(rare))
    rest = order[~np.isin(order, kept)][: most - len(kept)]
    return np.sort(np.concatenate([kept, rest]))


def _ranged(values: np.ndarray) -> np.ndarray:
    """Columns from 0 to 1; a constant column is 0."""
    low = values.min(axis=0)
    width = values.max(axis=0) - low
    return (values - low) / np.where(width > 0, width, 1.0)


def _sorts(candidates: LazyColumns, target: Target) -> Iterator[tuple[int, np.ndarray, np.ndarray, int]]:
    """Link, rows, class of each row and number of classes, for labels and for pairs of labels."""
    labels, known = target.labels.astype(np.int64), target.labels >= 0
    rows = np.flatnonzero(known)
    yield STATE, rows, labels[rows], candidates.n_labels
    heads = candidates.chains.heads
    heads = heads[known[heads] & known[heads - 1]]
    yield TRANSITION, heads, labels[heads - 1] * candidates.n_labels + labels[heads], candidates.n_labels**2


def _chunks(candidates: LazyColumns, link: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Columns of a link, and their candidates: numbers, place of the column among these, class."""
    places = candidates.places()
    own_class = np.where(places.previous < 0, places.label, places.previous * candidates.n_labels + places.label)
    order = np.argsort(places.column, kind="stable")
    sorted_columns = places.column[order]
    every = np.flatnonzero(candidates.link == link)
    for start in range(0, len(every), CHUNK):
        columns = every[start : start + CHUNK]
        first = np.searchsorted(sorted_columns, columns)
        last = np.searchsorted(sorted_columns, columns, side="right")
        numbers = np.concatenate([order[a:b] for a, b in zip(first, last)])
        owner = np.repeat(np.arange(len(columns)), last - first)
        yield columns, numbers, owner, own_class[numbers]

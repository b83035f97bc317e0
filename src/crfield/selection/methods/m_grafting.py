"""m-grafting: several features a round, found inside an M-estimator's criterion, and few likelihood steps.

Grafting adds one feature and trains to the end, because the next best one cannot be known before. Adding several at
once by the gradient takes near copies of the first. Here a round adds several, one after another, in a criterion that
is so cheap that looking again costs nothing. Cut the chains into blocks of B steps, let q be the present model, and
centre the features of every block under it,

    Φ_b = Σ_{t in b} F(x_t, y_t) − E_q[ F(x_t, ·) ]        J(w) = log mean_b exp(−w · Φ_b)

No normaliser is left in J: where w = 0 its slope is minus the mean of Φ, which is the gradient of the likelihood, so
that the likelihood's optimum is a fixed point when q is refreshed; and its curvature is the covariance of Φ (the
empirical information of Berndt, Hall, Hall & Hausman 1974). Inside J a candidate is scored with the weights that
blocks have there,

    π_b ∝ exp(−w · Φ_b)     g = Σ_b π_b Φ_b     h = Σ_b π_b Φ_b²        score = g² / (h + 1 / n)    for n blocks

and after each choice w of this round's features is found again by Newton steps. The 1/n is needed: a feature that
never occurs has a Φ of constant sign, hence g² = h and the greatest score there is, however small it is.

Φ is a matrix blocks × candidates. If candidates are many, it is made for a ``shortlist`` of those with the steepest
slopes alone, so that memory does not grow with their number.
"""

from __future__ import annotations

import numpy as np

from crfield.core.topology import Chains
from crfield.errors import InputError, ShapeError
from crfield.features.lazy_columns import LazyColumns
from crfield.selection.methods.grafting import Watch, check_rounds, steepest
from crfield.selection.path import SelectionPath
from crfield.selection.problem import SelectionProblem
from crfield.selection.record import Recorder
from crfield.selection.standardised import StandardisedColumns

CHUNK = 64  # columns at a time
NEWTON, CLOSE = 20, 1e-8


def m_graft(
    problem: SelectionProblem,
    *,
    m: int = 8,
    block: int = 30,
    likelihood_steps: int = 15,
    shortlist: int | None = 2_000,
    l2: float = 0.01,
    max_features: int = 200,
    patience: int | None = 10,
    criterion: str = "error",
    tol: float = 1e-5,
    watch: Watch | None = None,
) -> SelectionPath:
    """Add up to ``m`` features found inside the criterion, take ``likelihood_steps``, refresh, and so on.

    >>> from crfield.core.target import Target
    >>> from crfield.features.lazy_columns import MatrixColumns
    >>> rng = np.random.default_rng(0)
    >>> chains, y = Chains.from_lengths([600]), np.repeat(rng.integers(0, 2, 120), 5)
    >>> x = rng.normal(size=(600, 4)) + np.outer(y, [0, 2, 0, 1])
    >>> problem = SelectionProblem(MatrixColumns(x, chains=chains, n_labels=2), Target(chains, 2, y))
    >>> m_graft(problem, m=2, max_features=2).entered()
    [(1, 's1 | ...'), (1, 's3 | ...')]
    """
    check_rounds(m=m, max_features=max_features, patience=patience)
    record = Recorder(problem, "m-grafting", criterion=criterion, patience=patience, watch=watch)
    columns = StandardisedColumns(problem)
    blocks = cut_into_blocks(columns.chains, block)
    model = problem.fit([], l2=l2, tol=tol, max_iter=likelihood_steps)
    record.add(model)
    while not record.stopped:
        room = min(m, max_features - len(model.active))
        if room <= 0:
            record.stop("max_features")
            break
        node, edge = problem.gradient(model)
        slopes = np.abs(problem.scores(node, edge))
        slopes[model.active] = 0.0
        some = steepest(problem, slopes, problem.n_candidates if shortlist is None else shortlist)
        if not len(some):
            record.stop("no slope")
            break
        chosen, _ = pick(block_contrasts(columns, some, -node, -edge, blocks), room)
        entering = some[chosen]
        if not len(entering):
            record.stop("nothing scores")
            break
        largest = float(slopes[entering].max())
        active = np.concatenate([model.active, entering])
        model = problem.fit(active, model, l2=l2, tol=tol, max_iter=likelihood_steps)
        record.add(model, added=entering, largest=largest)
    return record.path()


def cut_into_blocks(chains: Chains, length: int) -> np.ndarray:
    """(n_blocks, length) steps of every block, −1 where one is shorter; none reaches over the end of a chain.

    >>> cut_into_blocks(Chains.from_lengths([5, 1]), 2).tolist()
    [[0, 1], [2, 3], [4, -1], [5, -1]]
    """
    if length < 1:
        raise InputError(f"blocks need at least one step, got {length}.")
    rows = []
    for first, last in zip(chains.offsets[:-1], chains.offsets[1:]):
        steps = np.full(-(-(last - first) // length) * length, -1)
        steps[: last - first] = np.arange(first, last)
        rows.append(steps.reshape(-1, length))
    return np.concatenate(rows) if rows else np.zeros((0, length), np.int64)


def block_contrasts(
    candidates: LazyColumns,
    numbers: np.ndarray,
    node: np.ndarray | None,
    edge: np.ndarray | None,
    blocks: np.ndarray,
) -> np.ndarray:
    """(n_blocks, n) Φ of some candidates: truth less beliefs (N, L) and (E, L, L), times columns, summed in blocks.

    An edge belongs to the block of its later step.

    >>> from crfield.features.lazy_columns import MatrixColumns
    >>> chains = Chains.from_lengths([3])
    >>> columns = MatrixColumns(np.array([[1.0], [2.0], [3.0]]), chains=chains, n_labels=2)
    >>> node = np.array([[0.5, -0.5], [0.25, -0.25], [-1.0, 1.0]])
    >>> block_contrasts(columns, np.array([0, 1]), node, None, cut_into_blocks(chains, 2)).tolist()
    [[1.0, -1.0], [-3.0, 3.0]]
    """
    chains, n_labels = candidates.chains, candidates.n_labels
    places = candidates.places(np.asarray(numbers))
    aligned: dict[bool, np.ndarray] = {}
    if node is not None:
        aligned[False] = node
    if edge is not None:
        at_heads = np.zeros((chains.n_nodes, n_labels**2))
        at_heads[chains.heads] = edge.reshape(-1, n_labels**2)
        aligned[True] = at_heads
    padded = {pairs: _padded(gradient, blocks) for pairs, gradient in aligned.items()}
    own = np.where(places.previous < 0, places.label, places.previous * n_labels + places.label)
    found = np.empty((len(blocks), len(places.column)))
    columns, owner = np.unique(places.column, return_inverse=True)
    for start in range(0, len(columns), CHUNK):
        here = columns[start : start + CHUNK]
        values = _padded(candidates.chunk(here), blocks).transpose(0, 2, 1)  # (blocks, columns, B)
        for pairs in (False, True):
            mine = np.flatnonzero((owner >= start) & (owner < start + len(here)) & ((places.previous >= 0) == pairs))
            if not len(mine):
                continue
            if pairs not in padded:
                raise ShapeError(
                    f"candidates are linked to {'edges' if pairs else 'nodes'}, whose gradient is missing."
                )
            local = np.unique(owner[mine] - start)
            sums = values[:, local] @ padded[pairs]
            found[:, mine] = sums[:, np.searchsorted(local, owner[mine] - start), own[mine]]
    return found


def _padded(values: np.ndarray, blocks: np.ndarray) -> np.ndarray:
    """(n_blocks, B, …) rows of the blocks, 0 where there is none."""
    return np.concatenate([values, np.zeros((1, values.shape[1]))])[blocks]


def pick(contrasts: np.ndarray, most: int, *, ridge: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Up to ``most`` columns of Φ, chosen one by one inside J, and their weights; see the module.

    The second of two columns that tell the same is not taken, though alone it is as good as the first.

    >>> rng = np.random.default_rng(0)
    >>> one, two = rng.normal(0.5, 1, 400), rng.normal(0.3, 1, 400)
    >>> chosen, weights = pick(np.stack([one, one, two], axis=1), 2)
    >>> chosen.tolist()
    [0, 2]
    """
    n_blocks, n = contrasts.shape
    chosen: list[int] = []
    weights = np.zeros(0)
    if not n_blocks:
        return np.zeros(0, np.int64), weights
    squares = contrasts**2
    share = np.full(n_blocks, 1.0 / n_blocks)
    open_to = np.ones(n, dtype=bool)
    while len(chosen) < min(most, n):
        slope = share @ contrasts
        score = np.where(open_to, slope**2 / (share @ squares + 1.0 / n_blocks), -1.0)
        best = int(score.argmax())
        if score[best] <= 0:
            break
        chosen.append(best)
        open_to[best] = False
        weights, share = _newton(contrasts[:, chosen], np.append(weights, 0.0), ridge + 1.0 / n_blocks)
    return np.array(chosen, np.int64), weights


def _newton(contrasts: np.ndarray, weights: np.ndarray, ridge: float) -> tuple[np.ndarray, np.ndarray]:
    """argmin_w J(w) + ½ ridge ‖w‖² from ``weights``, and the shares π of the blocks there."""
    value, share = _criterion(contrasts, weights, ridge)
    for _ in range(NEWTON):
        slope = share @ contrasts - ridge * weights
        centred = contrasts - share @ contrasts
        bend = (centred * share[:, None]).T @ centred
        bend[np.diag_indices_from(bend)] += ridge
        step = np.linalg.solve(bend, slope)
        promised = float(slope @ step)
        if promised <= CLOSE:
            break
        size = 1.0
        while size > 1e-4:
            proposed = weights + size * step
            there, new_share = _criterion(contrasts, proposed, ridge)
            if there <= value - 1e-4 * size * promised:
                break
            size /= 2
        else:
            break
        weights, value, share = proposed, there, new_share
    return weights, share


def _criterion(contrasts: np.ndarray, weights: np.ndarray, ridge: float) -> tuple[float, np.ndarray]:
    score = -contrasts @ weights
    most = score.max()
    mass = np.exp(score - most)
    total = mass.sum()
    value = most + np.log(total / len(mass)) + 0.5 * ridge * float(weights @ weights)
    return float(value), mass / total

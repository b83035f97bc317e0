"""Other coordinates for the optimiser: w = A u, so that the objective bends alike in all directions of u.

L-BFGS converges as fast as the curvature is even. A column in metres above the sea beside one in volts, or twelve
statistics of one signal, make it uneven by many orders of magnitude. Nothing is done to the data or to the penalty:
the optimiser is handed F(A u), with the user's penalty of the user's weights in it, and what it finds is A u. So the
optimum is the same one; only the way there is shorter.

A has two parts. Weights in *blocks* are mixed: places (K, M) are M groups of K weights each that share a matrix T,

    w[places] = T u[places]            all others     w = scale · u

Groups are, for instance, the weights of D columns and the intercept of one label. With

    T = C R⁻¹      C: centre and divide by deviations      RᵀR = Cᵀ (X̃ᵀX̃ / L + l2) C

the columns of u are without correlation, and the curvature of the likelihood at zero weights, as if steps had no
neighbours, is that of a sphere (`whitening`). Far from zero it is no longer: confident steps stop counting, and
neighbours do count. Where weights are few and the end is far the matrix of second derivatives is therefore computed
anew and becomes the basis (`renewed`): L-BFGS from there is Newton's method that learns on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from crfield.kernels import vectors
from crfield.optimize.penalty import Penalised, Penalty, Point
from crfield.optimize.problem import Problem

Slope = Callable[[np.ndarray], np.ndarray]

LEAST = 1e-12  # curvature, as a share of the largest, below which it is rounding
DIFFERENCE = 1e-3  # of coordinates in which the objective bends by about 1: the larger, the less rounding shows
STEEP = 10.0  # curvature for which that is too large
NEXT_TO_NOTHING = 1e-15  # curvature of directions that have none
NOISE = 0.01  # of the largest error of an entry: what the errors of all leave of the smallest curvature


@dataclass(frozen=True, eq=False)
class Basis:
    """w = A u, from a scale for each weight and blocks of weights that are mixed.

    >>> basis = Basis(np.array([2.0, 1.0, 1.0]), ((np.array([[1], [2]]), np.array([[0.5, 0.0], [-3.0, 1.0]])),))
    >>> basis.outward(np.array([1.0, 2.0, 4.0])).tolist()
    [2.0, 1.0, -2.0]
    >>> basis.inward(np.array([2.0, 1.0, -2.0])).round(12).tolist()
    [1.0, 2.0, 4.0]
    """

    scale: np.ndarray  # (W,) positive
    blocks: tuple[tuple[np.ndarray, np.ndarray], ...] = ()  # places (K, M) and T (K, K), which has an inverse

    def outward(self, u: np.ndarray) -> np.ndarray:
        """(W,) the weights A u."""
        w = self.scale * u
        for places, matrix in self.blocks:
            w[places] = matrix @ u[places]
        return w

    def inward(self, w: np.ndarray) -> np.ndarray:
        """(W,) the coordinates A⁻¹ w."""
        u = w / self.scale
        for places, matrix in self.blocks:
            u[places] = np.linalg.solve(matrix, w[places])
        return u

    def pull(self, gradient: np.ndarray) -> np.ndarray:
        """(W,) Aᵀ g: a gradient with respect to w becomes one with respect to u."""
        pulled = self.scale * gradient
        for places, matrix in self.blocks:
            pulled[places] = matrix.T @ gradient[places]
        return pulled

    def pulled(self, rows: np.ndarray) -> np.ndarray:
        """(n, W) `pull` of many gradients, one in each row.

        >>> basis = Basis(np.array([2.0, 1.0, 1.0]), ((np.array([[1], [2]]), np.array([[0.5, 0.0], [-3.0, 1.0]])),))
        >>> basis.pulled(np.ones((1, 3))).tolist(), basis.pull(np.ones(3)).tolist()
        ([[2.0, -2.5, 1.0]], [2.0, -2.5, 1.0])
        """
        pulled = rows * self.scale
        for places, matrix in self.blocks:
            for group in places.T:
                pulled[:, group] = rows[:, group] @ matrix
        return pulled

    def behind(self, matrix: np.ndarray) -> np.ndarray:
        """(M, W) M A⁻¹: what acts on u becomes what acts on w.

        >>> Basis(np.array([2.0, 1.0]), ((np.array([[1]]), np.array([[4.0]])),)).behind(np.ones((1, 2))).tolist()
        [[0.5, 0.25]]
        """
        made = matrix / self.scale
        for places, turn in self.blocks:
            made[:, places] = np.einsum("wkm,kj->wjm", matrix[:, places], np.linalg.inv(turn))
        return made

    def renewed(self, turn: np.ndarray) -> Basis:
        """The basis A T for ``turn`` T (W, W)."""
        whole = np.column_stack([self.outward(column) for column in np.ascontiguousarray(turn.T)])
        return Basis(self.scale, ((np.arange(len(turn))[:, None], whole),))

    def state(self) -> dict[str, np.ndarray]:
        """Arrays that `from_state` makes the same basis of."""
        arrays = {"scale": self.scale}
        for number, (places, matrix) in enumerate(self.blocks):
            arrays |= {f"places{number}": places, f"matrix{number}": matrix}
        return arrays

    @classmethod
    def from_state(cls, arrays: Mapping[str, np.ndarray], n_weights: int) -> Basis:
        """The basis whose `state` this is; ValueError where it is none of so many weights."""
        count = sum(name.startswith("places") for name in arrays)
        scale = arrays["scale"]
        blocks = tuple((arrays[f"places{k}"], arrays[f"matrix{k}"]) for k in range(count))
        fits = scale.shape == (n_weights,) and bool((scale > 0).all())
        for places, matrix in blocks:
            fits &= places.ndim == 2 and matrix.shape == (len(places), len(places)) and places.dtype.kind == "i"
            fits = fits and bool(((places >= 0) & (places < n_weights)).all()) and bool(np.isfinite(matrix).all())
        if not (fits and np.isfinite(scale).all()):
            raise ValueError(f"no basis of {n_weights} weights")
        return cls(scale, blocks)


def whitening(
    mean: np.ndarray,
    gram: np.ndarray,
    count: float,
    *,
    ridge: np.ndarray,
    intercepts: int,
    shares: np.ndarray | None = None,
) -> np.ndarray:
    """(K, K) the matrix T of D columns, and of intercepts behind them, of which every row has one.

    ``shares`` (intercepts,) says how many of the rows have each of these; equally many unless given.

    ``mean`` (D,) and ``gram`` (D, D) = Σ (x − mean)(x − mean)ᵀ, or only its diagonal (D,), are over ``count`` rows,
    sums already multiplied by how much a row bends the objective; ``ridge`` (K,) is what the penalty adds for each
    weight. Without an intercept, columns cannot be centred, and the mean is one more direction in which they bend.

    >>> whitening(np.array([3.0]), np.array([[4.0]]), 1.0, ridge=np.zeros(2), intercepts=1).tolist()
    [[0.5, 0.0], [-1.5, 1.0]]
    """
    width, size, whole = len(mean), len(mean) + intercepts, gram.ndim == 2
    if not intercepts:
        gram = gram + count * (np.outer(mean, mean) if whole else mean**2)
    spread = np.sqrt((np.diag(gram) if whole else gram) / max(count, 1e-300))
    # A column that does not vary, up to rounding, is left as it is.
    spread[spread <= 1e-14 * np.abs(mean)] = 0.0
    spread[spread == 0] = 1.0
    change = np.eye(size)
    change[:width, :width] /= spread
    change[width:, :width] = -mean / spread
    bend = np.full(size, count / max(intercepts, 1))  # of centred columns of one size, and of intercepts
    bend[:width] = count
    if shares is not None:
        bend[width:] = count * shares
    if not whole:
        return change / np.sqrt(np.maximum(bend + ridge @ change**2, 1e-300))
    even = np.diag(bend)
    even[:width, :width] = gram / np.outer(spread, spread)
    values, vectors = np.linalg.eigh(even)
    root = np.sqrt(np.maximum(values, LEAST * max(float(values[-1]), 1e-300)))[:, None] * vectors.T
    # By rows, not by adding up squares: a penalised intercept of columns far from zero is stiff by many orders.
    triangle: np.ndarray = np.linalg.qr(np.concatenate([root, np.sqrt(ridge)[:, None] * change])).R
    triangle *= np.where(np.diag(triangle) < 0, -1.0, 1.0)[:, None]
    return change @ np.linalg.inv(triangle)


def inverse_root(matrix: np.ndarray) -> tuple[np.ndarray, bool]:
    """(W, W) T with Tᵀ M T = 1; curvature downwards counts as upwards, and next to none as a little.

    How much M fails to be symmetric is how wrong its entries are: curvature below that is not believed. With T comes
    whether all of M was.

    >>> turn, believed = inverse_root(np.diag([4.0, -0.25]))
    >>> turn.round(6).tolist(), believed
    ([[0.0, 0.5], [2.0, 0.0]], True)
    """
    size, turned, floor = bends(matrix)
    return turned / np.sqrt(np.maximum(size, floor)), bool((size > floor).all())


def bends(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Sizes (W,) and directions (W, W) of the curvature of M, and the size up to which it is not believed."""
    values, turned = np.linalg.eigh(0.5 * (matrix + matrix.T))
    size = np.abs(values)
    noise = NOISE * float(np.abs(matrix - matrix.T).max(initial=0.0))
    return size, turned, max(LEAST * float(size.max(initial=0.0)), noise, 1e-300)


def second_derivative(slope: Slope, point: np.ndarray, here: np.ndarray) -> np.ndarray:
    """(W, W) by differences of gradients, row by row; ``slope`` gives that of any point, ``here`` that of this."""
    matrix, near = np.empty((len(point), len(point))), point.copy()
    for k in range(len(point)):
        # Where the basis is far from round, a step that is short elsewhere may cross the whole valley.
        steepness = 1.0
        for _ in range(2):
            near[k] = point[k] + DIFFERENCE / np.sqrt(steepness)
            matrix[k] = (slope(near) - here) / (near[k] - point[k])
            steepness = abs(float(matrix[k, k]))
            if not steepness > STEEP:
                break
        near[k] = point[k]
    return matrix


def graded_root(matrix: np.ndarray, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """(W, W) J with JᵀJ about M, whose rows are differences of gradients, and (W, K) directions without curvature.

    Directions in which f never changes, as adding one number to the weights of all labels, are at right angles to
    every gradient, so to every row of M: to the last digit, however rough the differences. The mean of M and Mᵀ would
    not know that any more, and a step of thousands, which may be what it takes to the minimum of an l1 penalty, would
    seem to climb. So each entry is taken from the column whose direction bends less. Curvature up to ``noise`` counts
    as none and keeps next to nothing.

    >>> root, flat = graded_root(np.array([[2.0, 2.0], [2.001, 2.001]]), 1e-9)
    >>> np.abs(flat.T).round(3).tolist(), bool(np.abs(root @ flat).max() < 1e-6)
    ([[0.707, 0.707]], True)
    """
    turn = np.linalg.svd(matrix)[2]
    graded = turn @ matrix @ turn.T
    values, turned = np.linalg.eigh(np.triu(graded) + np.triu(graded, 1).T)
    size, turned = np.abs(values), turn.T @ turned
    most = float(size.max(initial=0.0))
    flat = size <= max(LEAST * most, noise, 1e-300)
    size[flat] = NEXT_TO_NOTHING * max(most, 1.0)
    return np.ascontiguousarray(np.sqrt(size)[:, None] * turned.T), np.ascontiguousarray(turned[:, flat])


def gain_on_face(objective: Penalised, point: Point, steepest: np.ndarray) -> float:
    """What Newton's method would gain at ``point`` over the weights that an l1 penalty leaves free to move.

    These are the weights with an entry in ``steepest``, the shortest subgradient, and those that are not zero; on
    them the penalty is a slope and bends nothing. One evaluation for each. A direction that does not bend either, as
    where a state may hand what it has to another, counts with its slope over a way as long as the weights themselves.
    """
    face = np.flatnonzero((point.weights != 0) | (steepest != 0))
    weights, gradient = point.weights.copy(), np.empty(len(point.weights))

    def slope(there: np.ndarray) -> np.ndarray:
        weights[face] = there
        objective.evaluate(Point(weights, gradient))
        return gradient[face]

    size, turned, floor = bends(second_derivative(slope, point.weights[face], point.gradient[face]))
    along, flat = np.abs(turned.T @ steepest[face]), size <= floor
    newton = 0.5 * float((along[~flat] ** 2 / size[~flat]).sum())
    return newton + float(along[flat].sum()) * (1.0 + float(np.linalg.norm(point.weights)))


class InBasis(Penalised):
    """A problem with its penalty in the coordinates of a basis: a Point's weights and gradient are u and Aᵀ∇F(A u).

    ``squared_norm`` stays that of ∇F itself, which is what the ridge's bound on the gap is about.
    """

    def __init__(self, problem: Problem, penalty: Penalty, basis: Basis, *, n_jobs: int = 1) -> None:
        super().__init__(problem, penalty, n_jobs=n_jobs)
        self.basis = basis

    @classmethod
    def of(cls, objective: Penalised, basis: Basis) -> InBasis:
        """The same problem and penalty in other coordinates; evaluations count on."""
        made = cls(objective.problem, objective.penalty, basis, n_jobs=objective.n_jobs)
        made.n_evaluations = objective.n_evaluations
        return made

    @property
    def offers_rough(self) -> bool:
        """No: second derivatives are differences of gradients."""
        return False

    @property
    def offers_planes(self) -> bool:
        """No: here a gradient is one of coordinates, and the ridge is one of weights."""
        return False

    def evaluate(self, point: Point, *, direction: np.ndarray | None = None, l1_norm: float | None = None) -> None:
        """Fill value, gradient, slope along ``direction`` and squared norm at ``point.weights``."""
        there = Point(self.basis.outward(point.weights), point.gradient)
        super().evaluate(there)
        point.value, point.squared_norm = there.value, there.squared_norm
        point.gradient[:] = self.basis.pull(point.gradient)
        point.slope = 0.0 if direction is None else vectors.dot(point.gradient, direction, n_jobs=self.n_jobs)

    def renew(self, point: Point) -> bool:
        """Compute the second derivative at ``point``, one evaluation for each weight, and make it the basis.

        The point's coordinates and gradient become those of the new basis; True if that has all of the derivative.
        """
        gradient = np.empty(len(point.weights))

        def slope(weights: np.ndarray) -> np.ndarray:
            self.evaluate(Point(weights, gradient))
            return gradient

        matrix = second_derivative(slope, point.weights, point.gradient)
        turn, believed = inverse_root(matrix)
        point.weights[:] = np.linalg.solve(turn, point.weights)
        point.gradient[:] = turn.T @ point.gradient
        self.basis = self.basis.renewed(turn)
        return believed

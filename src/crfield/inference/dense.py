"""Dense fields: every point is a neighbour of every other, as near as Gaussian kernels of their features say.

    p(y | x) ∝ exp( Σ_i scores_i(y_i) + ½ Σ_{i≠j} Σ_k K_k(f_i, f_j) C_k(y_i, y_j) )

With N points there are N² pairs, but mean field asks for sums over them only, which are filters
(`crfield.kernels.dense`), so that a step costs O(N) (Krähenbühl & Koltun 2011, *Efficient inference in fully
connected CRFs with Gaussian edge potentials*). As there, the sums include the point itself.

**parallel**: all beliefs are renewed at once from the last ones. If like labels attract each other (C positive
semi-definite) and K is symmetric, this is the concave–convex procedure and never goes down. Otherwise it may swing
between two states for ever.

**convergent**: never goes down, whatever the compatibility (Krähenbühl & Koltun 2013, *Parameter learning and
convergent inference for dense random fields*, linearise the same part in an inner loop). The part that repels is
bounded by a quadratic, that by a Kullback–Leibler divergence (Pinsker's inequality), and the step that maximises what
is left is a damped one with a closed form:

    log q ← (scores + Σ_k C_k K_k q + λ log q) / (1 + λ) − log Z        λ = ½ Σ_k max(0, −λ_min(C_k)) ‖K_k‖

With nothing that repels λ is 0 and the two are the same, but for K being made symmetric, at the price of a second
blur.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crfield.errors import InputError
from crfield.kernels import dense

UPDATES = ("parallel", "convergent")
ACCURACIES = ("standard", "high")
STRETCH = (
    1.05  # of the features where a halo lets the blur run its course; chosen on images, `python -m benchmarks dense`
)

Compatibility = float | np.ndarray


@dataclass(frozen=True, eq=False)
class Places:
    """Where points are: positions (P, N), and the shape of their grid where they are pixels in the order of an array.

    >>> Places.of_grid((2, 3)).positions.tolist()
    [[0.0, 1.0, 2.0, 0.0, 1.0, 2.0], [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]]
    """

    positions: np.ndarray
    shape: tuple[int, ...] | None = None

    @classmethod
    def of_grid(cls, shape: Sequence[int]) -> Places:
        """Pixels of an image or volume; the last axis comes first, as x before y."""
        axes = np.meshgrid(*(np.arange(size, dtype=np.float32) for size in shape), indexing="ij")
        return cls(np.stack([axis.ravel() for axis in axes[::-1]]), tuple(shape))

    @property
    def n_points(self) -> int:
        """N."""
        return self.positions.shape[1]


@dataclass(frozen=True, eq=False)
class GaussianKernel:
    """A kernel before it is normalised, and all that its derivative in the widths needs.

    ``groups`` say which rows of the features share a width: positions, then colours.
    """

    plain: dense.Kernel
    features: np.ndarray | None  # (D, N) of a lattice
    groups: tuple[slice, ...]
    shape: tuple[int, ...] | None = None  # of a grid, with its widths
    widths: tuple[float, ...] = ()

    def normalised(self, how: str, *, fold: bool = True, n_jobs: int = 1) -> dense.Kernel:
        """The filter to be used."""
        return dense.normalised(self.plain, how, fold=fold, n_jobs=n_jobs)


def gaussian_kernel(
    places: Places,
    colours: np.ndarray | None,
    position_width: float,
    colour_width: float | None = None,
    *,
    accuracy: str = "standard",
    n_jobs: int = 1,
) -> GaussianKernel:
    """The kernel of positions, or of positions and colours (N, C), with these widths (standard deviations).

    "standard" is pydensecrf's filter. "high" is nearer to the Gaussian: pixels' positions are filtered on a regular
    grid, and all else on a lattice with a halo.

    >>> kernel = gaussian_kernel(Places.of_grid((4, 5)), None, 1.0, accuracy="high")
    >>> dense.apply(kernel.plain, np.eye(20)[:, :1])[:3, 0].astype(float).round(3).tolist()
    [1.0, 0.607, 0.135]
    """
    spatial = colours is None or colour_width is None
    if accuracy == "high" and spatial and places.shape is not None and len(places.shape) <= 3:
        widths = (float(position_width),) * len(places.shape)
        plain = dense.grid(places.shape, widths)
        return GaussianKernel(plain, None, (slice(0, len(widths)),), places.shape, widths)
    n_positions = len(places.positions)
    count = n_positions if spatial or colours is None else n_positions + colours.shape[1]
    real = np.result_type(places.positions.dtype, np.float32)
    features = np.empty((count, places.n_points), real)
    np.multiply(places.positions, 1 / position_width, out=features[:n_positions], casting="same_kind")
    groups = [slice(0, n_positions)]
    if not spatial and colours is not None and colour_width is not None:
        features[n_positions:] = colours.T * (1 / colour_width)
        groups.append(slice(n_positions, count))
    fine = accuracy == "high"
    if fine:
        features *= STRETCH
    plain = dense.lattice(features, halo=fine, volume_gain=fine, n_jobs=n_jobs)
    return GaussianKernel(plain, features, tuple(groups))


def width_gradient(
    kernel: GaussianKernel, how: str, left: np.ndarray, right: np.ndarray, *, n_jobs: int = 1
) -> np.ndarray:
    """(G,) slope of Σ left · (K right) in the logarithms of the widths of the groups; left and right are (N, C).

    K is normalised as ``how`` says, and so depends on the widths by its row sums n = K 1 too: with r = K right and
    l = Kᵀ left, both normalised, a factor n_i^−½ of either side adds −½ (left_i · r_i + right_i · l_i) dn_i / n_i.
    """
    plain, ones = kernel.plain, np.ones((len(left), 1), left.dtype)
    if how == "none":
        return _plain_gradient(kernel, left, right, n_jobs)
    filtered = dense.normalised(plain, how, fold=False, n_jobs=n_jobs)
    sums = plain.sums if plain.sums is not None else dense.apply(plain, ones, n_jobs=n_jobs)[:, 0]
    pull = np.zeros(len(left))
    if how in ("symmetric", "after"):
        pull += (left * dense.apply(filtered, right, n_jobs=n_jobs)).sum(axis=1)
    if how in ("symmetric", "before"):
        pull += (right * dense.apply(filtered, left, reverse=True, n_jobs=n_jobs)).sum(axis=1)
    share = 0.5 if how == "symmetric" else 1.0
    inside, outside = filtered.before, filtered.after
    left = left if outside is None else left * outside[:, None]
    right = right if inside is None else right * inside[:, None]
    pulled = (-share * pull / (sums + dense.FLOOR)).astype(left.dtype)[:, None]
    return _plain_gradient(kernel, left, right, n_jobs) + _plain_gradient(kernel, pulled, ones, n_jobs)


def _plain_gradient(kernel: GaussianKernel, left: np.ndarray, right: np.ndarray, n_jobs: int) -> np.ndarray:
    if kernel.features is not None:
        slopes = dense.feature_gradient(kernel.plain, kernel.features, left, right, n_jobs=n_jobs)
        return np.array([-(kernel.features[group] * slopes[group]).sum(dtype=np.float64) for group in kernel.groups])
    shape, widths = kernel.shape or (), kernel.widths
    total = 0.0
    for axis in range(len(shape)):
        slope = dense.grid_slope(shape, widths, axis)
        total += float((left * dense.apply(slope, right, n_jobs=n_jobs)).sum(dtype=np.float64))
    return np.array([total])


@dataclass(frozen=True, eq=False)
class DenseField:
    """Scores (N, L), and kernels with the compatibility of each: a number, (L,) or (L, L)."""

    scores: np.ndarray
    kernels: Sequence[dense.Kernel]
    compatibilities: Sequence[Compatibility]


@dataclass(frozen=True, eq=False)
class DenseBeliefs:
    """Beliefs (N, L), how far they are to be trusted, and the way there.

    ``bound`` has the objective of the first beliefs and after every step, Σ q (scores + ½ Σ C K q − log q): what mean
    field maximises, the bound of log Z of a field whose points also meet themselves. It is None if nobody watched.
    ``converged`` says whether the last step moved no belief by more than the tolerance.
    """

    node: np.ndarray
    bound: np.ndarray | None
    change: float
    converged: bool
    steps: int


@dataclass(frozen=True)
class DenseMeanField:
    """Mean field on a dense field; see the module.

    ``steps`` are the most that are made; with ``watch`` the bound is followed, and steps end when no belief moves by
    more than ``tol``. Without it so many steps are made, and nothing is known of convergence.

    >>> near = dense.lattice(np.zeros((1, 2)), "symmetric")
    >>> field = DenseField(np.array([[0.0, 0.1], [0.0, 3.0]]), [near], [1.0])
    >>> found = DenseMeanField(steps=200, watch=True).infer(field)
    >>> found.node.astype(float).round(1).tolist(), found.converged, bool((np.diff(found.bound) > -1e-5).all())
    ([[0.3, 0.7], [0.0, 1.0]], True, True)
    """

    update: str = "parallel"
    steps: int = 5
    tol: float = 1e-4
    watch: bool = False
    n_jobs: int = 1

    def infer(self, field: DenseField, *, start: np.ndarray | None = None) -> DenseBeliefs:
        """Beliefs after the steps, from ``start`` or from those of the scores alone."""
        if self.update not in UPDATES:
            raise InputError(f"update must be one of {', '.join(map(repr, UPDATES))}, got {self.update!r}.")
        convergent = self.update == "convergent"
        node, trace = dense.mean_field(
            field.scores,
            field.kernels,
            field.compatibilities,
            steps=self.steps,
            start=start,
            damping=damping_of(field, n_jobs=self.n_jobs) if convergent else 0.0,
            symmetric=convergent,
            tol=self.tol if self.watch else -1.0,
            watch=self.watch,
            n_jobs=self.n_jobs,
        )
        if trace is None:
            return DenseBeliefs(node, None, float("nan"), False, self.steps)
        change = float(trace[-1, 1]) if len(trace) > 1 else float("inf")
        return DenseBeliefs(node, trace[:, 0], change, change <= self.tol, len(trace) - 1)


def damping_of(field: DenseField, *, n_jobs: int = 1) -> float:
    """λ with which a step never goes down; see the module.

    >>> damping_of(DenseField(np.zeros((2, 2)), [dense.lattice(np.zeros((1, 2)), "symmetric")], [-3.0])).__round__(3)
    1.5
    """
    total = 0.0
    for kernel, compatibility in zip(field.kernels, field.compatibilities):
        if (kernel.before is None) != (kernel.after is None):
            raise InputError(
                "a kernel that is normalised on one side is not symmetric, and mean field has no bound to climb: use "
                "normalization='symmetric' or 'none', or update='parallel'."
            )
        repels = -least_eigenvalue(compatibility)
        if repels > 0:
            total += 0.5 * repels * norm_bound(kernel, n_jobs=n_jobs)
    return total


def least_eigenvalue(compatibility: Compatibility) -> float:
    """The least eigenvalue of a compatibility, whatever its form."""
    table = np.asarray(compatibility, np.float64)
    return float(np.linalg.eigvalsh(0.5 * (table + table.T))[0] if table.ndim == 2 else table.min())


def norm_bound(kernel: dense.Kernel, *, n_jobs: int = 1) -> float:
    """A bound of ‖½ (K + Kᵀ)‖: max_i (K v)_i / v_i for a positive v, here the one that is nearly an eigenvector."""
    v = np.ones(kernel.n_points) if kernel.sums is None else np.sqrt(kernel.sums + dense.FLOOR)
    column = v[:, None].astype(kernel.share.dtype)
    there = dense.apply(kernel, column, n_jobs=n_jobs) + dense.apply(kernel, column, reverse=True, n_jobs=n_jobs)
    return float((0.5 * there[:, 0] / v).max(initial=0.0))

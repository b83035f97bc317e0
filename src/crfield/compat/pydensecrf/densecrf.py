"""``pydensecrf.densecrf``: `DenseCRF` of any points, `DenseCRF2D` of the pixels of an image.

The conventions are that package's. Unaries are *energies*, −log p, (labels, points). A number as compatibility is
what like labels gain; arrays, (labels,) or (labels, labels), are energies to be added, so that ``compat=3``, ``[-3,
-3]`` and ``3 * (1 - np.eye(2))`` say the same of two labels, but for a constant. Widths are standard deviations;
``sxy`` is (x, y). The kernel type (DIAG, FULL, CONST) tells what may be trained and does not change inference.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from numbers import Number
from typing import Any

import numpy as np

from crfield.errors import InputError, ShapeError
from crfield.inference.dense import DenseField
from crfield.kernels import dense
from crfield.objectives.dense import unrolled

__all__ = [
    "CONST_KERNEL",
    "DIAG_KERNEL",
    "FULL_KERNEL",
    "NORMALIZE_AFTER",
    "NORMALIZE_BEFORE",
    "NORMALIZE_SYMMETRIC",
    "NO_NORMALIZATION",
    "ConstUnary",
    "DenseCRF",
    "DenseCRF2D",
    "KernelType",
    "LogisticUnary",
    "NormalizationType",
    "Unary",
]


class KernelType(IntEnum):
    """What of a kernel may be trained; inference is the same for all."""

    CONST_KERNEL = 0
    DIAG_KERNEL = 1
    FULL_KERNEL = 2


class NormalizationType(IntEnum):
    """How a kernel is divided by its row sums."""

    NO_NORMALIZATION = 0
    NORMALIZE_BEFORE = 1
    NORMALIZE_AFTER = 2
    NORMALIZE_SYMMETRIC = 3


CONST_KERNEL, DIAG_KERNEL, FULL_KERNEL = KernelType
NO_NORMALIZATION, NORMALIZE_BEFORE, NORMALIZE_AFTER, NORMALIZE_SYMMETRIC = NormalizationType
_NAMES = {
    NO_NORMALIZATION: "none",
    NORMALIZE_BEFORE: "before",
    NORMALIZE_AFTER: "after",
    NORMALIZE_SYMMETRIC: "symmetric",
}


class Unary:
    """Energies (labels, points)."""

    def __init__(self, energies: Any) -> None:
        self.energies = _table(energies, "u")


class ConstUnary(Unary):
    """Energies that are given."""


class LogisticUnary(Unary):
    """Energies L f of a linear map L (labels, D) and features f (D, points)."""

    def __init__(self, weights: Any, features: Any) -> None:
        super().__init__(_table(weights, "L") @ _table(features, "f"))


class DenseCRF:
    """Fully connected field of ``nvar`` points and ``nlabels`` labels.

    ``n_jobs`` threads are used; it is not in the other package.

    >>> crf = DenseCRF(3, 2)
    >>> crf.setUnaryEnergy(-np.log([[0.9, 0.6, 0.1], [0.1, 0.4, 0.9]]))
    >>> crf.addPairwiseEnergy(np.array([[0.0, 0.1, 5.0]]), compat=2)
    >>> np.argmax(crf.inference(5), axis=0).tolist()
    [0, 0, 1]
    """

    def __init__(self, nvar: int, nlabels: int, *, n_jobs: int = 1) -> None:
        if int(nvar) < 1 or int(nlabels) < 1:
            raise InputError(f"a field needs points and labels, got {nvar} and {nlabels}.")
        self._n_points, self._n_labels, self.n_jobs = int(nvar), int(nlabels), n_jobs
        self._energies: np.ndarray | None = None  # (L, N)
        self._kernels: list[dense.Kernel] = []
        self._scores: list[float | np.ndarray] = []

    # ------------------------------------------------------------------ what goes in

    def setUnaryEnergy(self, u: Any, f: Any = None) -> None:
        """Energies (labels, points), or (labels, H, W); with ``f`` the energies are u f, f (D, points)."""
        self.setUnary(ConstUnary(u) if f is None else LogisticUnary(u, f))

    def setUnary(self, unary: Unary) -> None:
        """Energies as a `Unary`."""
        energies = unary.energies
        if len(energies) != self._n_labels or energies.size != self._n_labels * self._n_points:
            raise ShapeError(
                f"Bad shape for unary energy (Need {(self._n_labels, self._n_points)}, got {energies.shape})"
            )
        self._energies = energies.reshape(self._n_labels, self._n_points)

    def addPairwiseEnergy(
        self,
        features: Any,
        compat: Any,
        kernel: int = DIAG_KERNEL,
        normalization: int = NORMALIZE_SYMMETRIC,
    ) -> None:
        """A kernel exp(−½ ‖f_i − f_j‖²) of features (D, points)."""
        table = _table(features, "features")
        if table.shape[1] != self._n_points:
            raise ShapeError(f"Bad shape for pairwise energy (Need (?, {self._n_points}), got {table.shape})")
        KernelType(kernel)
        scores = _scores_of(compat, self._n_labels)
        how = _NAMES[NormalizationType(normalization)]
        self._kernels.append(dense.lattice(table, how, n_jobs=self.n_jobs))
        self._scores.append(scores)

    # ------------------------------------------------------------------ what comes out

    @property
    def _given(self) -> np.ndarray:
        if self._energies is None:
            return np.zeros((self._n_labels, self._n_points), np.float32)
        return self._energies

    def _run(self, steps: int, start: np.ndarray | None, *, watch: bool = False) -> tuple[np.ndarray, Any]:
        return dense.mean_field(
            self._given.T,
            self._kernels,
            self._scores,
            steps=steps,
            start=start,
            negated=True,
            watch=watch,
            n_jobs=self.n_jobs,
        )

    def inference(self, niter: int) -> np.ndarray:
        """Marginals (labels, points) after so many steps; `startInference` and `stepInference` go one by one."""
        return self._run(int(niter), None)[0].T

    def startInference(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Marginals before the first step, and two arrays that nobody needs here."""
        q = self.inference(0)
        return q, np.zeros_like(q), np.zeros_like(q)

    def stepInference(self, Q: Any, tmp1: Any = None, tmp2: Any = None) -> None:
        """One step, in place."""
        Q[...] = self._run(1, np.asarray(Q).T)[0].T

    def klDivergence(self, Q: Any) -> float:
        """Σ Q log Q + Σ Q u + Σ Q (pairwise energy), as pydensecrf has it.

        Every pair counts twice in it, so that a step may raise it; the objective of mean field counts them once, and
        is what `crfield.DenseCRF.infer` reports.
        """
        q = np.asarray(Q)
        alone = float((q * (np.log(np.maximum(q, 1e-20)) + self._given)).sum(dtype=np.float64))
        once = -float(self._run(0, np.ascontiguousarray(q.T), watch=True)[1][0, 0])
        return 2 * once - alone

    def gradient(self, niter: int, labels: Any) -> tuple[float, np.ndarray, list[np.ndarray]]:
        """Loss −Σ log Q of labels (points,) after so many steps, −1 unknown; and its slopes.

        Slopes are in the unary energies (labels, points) and, kernel by kernel, in what was given as ``compat``.
        Widths are trained by `crfield.DenseCRF`.
        """
        codes = np.asarray(labels).reshape(-1)
        if codes.shape != (self._n_points,) or (codes >= self._n_labels).any():
            raise ShapeError(f"labels must be {self._n_points} numbers below {self._n_labels}, got {codes.shape}.")
        allowed = np.ones((self._n_points, self._n_labels), bool)
        known = np.flatnonzero(codes >= 0)
        allowed[known] = False
        allowed[known, codes[known]] = True
        field = DenseField(np.ascontiguousarray(-self._given.T, np.float32), self._kernels, self._scores)
        found = unrolled(field, allowed, np.ones(self._n_points), steps=int(niter), n_jobs=self.n_jobs)
        given = [own if np.ndim(own) == 0 else -own for own in found.compatibilities]
        return found.value, -found.scores.T, given


class DenseCRF2D(DenseCRF):
    """Fully connected field of the pixels of an image: width, height, labels.

    >>> crf = DenseCRF2D(4, 3, 2)
    >>> crf.setUnaryEnergy(np.zeros((2, 12)))
    >>> crf.addPairwiseGaussian(sxy=3, compat=3)
    >>> crf.addPairwiseBilateral(sxy=80, srgb=13, rgbim=np.zeros((3, 4, 3), np.uint8), compat=10)
    >>> np.asarray(crf.inference(5)).shape
    (2, 12)
    """

    def __init__(self, w: int, h: int, nlabels: int, *, n_jobs: int = 1) -> None:
        super().__init__(int(w) * int(h), nlabels, n_jobs=n_jobs)
        self._w, self._h = int(w), int(h)

    def addPairwiseGaussian(
        self, sxy: Any, compat: Any, kernel: int = DIAG_KERNEL, normalization: int = NORMALIZE_SYMMETRIC
    ) -> None:
        """A kernel of positions with deviations ``sxy``, one number or (x, y)."""
        self.addPairwiseEnergy(self._positions(sxy), compat, kernel, normalization)

    def addPairwiseBilateral(
        self,
        sxy: Any,
        srgb: Any,
        rgbim: Any,
        compat: Any,
        kernel: int = DIAG_KERNEL,
        normalization: int = NORMALIZE_SYMMETRIC,
    ) -> None:
        """A kernel of positions and colours with deviations ``sxy`` and ``srgb``, of an image (H, W, 3)."""
        image = np.asarray(rgbim)
        if image.shape != (self._h, self._w, 3):
            raise ShapeError(f"Bad shape for pairwise bilateral (Need {(self._h, self._w, 3)}, got {image.shape})")
        widths = np.asarray(_each(srgb, 3, "srgb"), np.float32)
        features = np.empty((5, self._n_points), np.float32)
        features[:2] = self._positions(sxy)
        np.multiply(
            image.reshape(-1, 3).T, (1 / widths)[:, None], out=features[2:], casting="unsafe", dtype=np.float32
        )
        self.addPairwiseEnergy(features, compat, kernel, normalization)

    def _positions(self, sxy: Any) -> np.ndarray:
        x, y = _each(sxy, 2, "sxy")
        out = np.empty((2, self._h, self._w), np.float32)
        out[0] = np.arange(self._w, dtype=np.float32) / np.float32(x)
        out[1] = (np.arange(self._h, dtype=np.float32) / np.float32(y))[:, None]
        return out.reshape(2, -1)


def _table(given: Any, name: str) -> np.ndarray:
    """Numbers (rows, …) as float32; whatever order and type they have."""
    table = np.asarray(given)
    if table.ndim < 2 or table.dtype.kind not in "biuf":
        raise ShapeError(f"{name} must be an array of numbers with at least two axes, got shape {table.shape}.")
    return np.asarray(table, np.float32).reshape(len(table), -1)


def _each(given: Any, count: int, name: str) -> Sequence[float]:
    values: list[Any] = [given] * count if isinstance(given, Number) else list(given)
    if len(values) != count or not all(isinstance(v, Number) and float(v) > 0 for v in values):  # type: ignore[arg-type]
        raise InputError(f"{name} must be one number > 0 or {count} of them, got {given!r}.")
    return [float(v) for v in values]


def _scores_of(compat: Any, n_labels: int) -> float | np.ndarray:
    """What pydensecrf calls compat as scores: a number attracts, arrays are energies."""
    if isinstance(compat, Number):
        return float(compat)  # type: ignore[arg-type]
    table = np.asarray(compat, np.float32)
    if table.shape not in ((n_labels,), (n_labels, n_labels)):
        raise ShapeError(f"compat must be a number, ({n_labels},) or ({n_labels}, {n_labels}), got {table.shape}.")
    return -table

"""NumPy body of the kernels of threshold families; the contract is in `crfield.kernels.families`."""

from __future__ import annotations

import numpy as np

_JOIN = (np.maximum, np.minimum, np.add)
_NOTHING = (-np.inf, np.inf, 0.0)


def slide(values: np.ndarray, offsets: np.ndarray, width: int, kind: int, out: np.ndarray) -> None:
    """Blocks of ``width`` steps: what ends in a block joined with what began in the one before."""
    join = _JOIN[kind]
    for start, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        length = end - start
        if not length:
            continue
        blocks = -(-length // width)
        padded = np.full(blocks * width, _NOTHING[kind])
        padded[:length] = values[start:end]
        square = padded.reshape(blocks, width)
        ahead = join.accumulate(square, axis=1).ravel()[:length]
        behind = join.accumulate(square[:, ::-1], axis=1)[:, ::-1].ravel()
        answer = ahead.copy()
        late = np.arange(width, length)
        late = late[(late + 1) % width != 0]
        answer[late] = join(behind[late - width + 1], ahead[late])
        if kind == 2:
            answer /= np.minimum(np.arange(1, length + 1), width)
        out[start:end] = answer


def codes(values: np.ndarray, thresholds: np.ndarray, out: np.ndarray) -> None:
    """The two counts of thresholds, below and not above, added."""
    out[:] = np.searchsorted(thresholds, values, side="left") + np.searchsorted(thresholds, values, side="right")


def histograms(
    codes: np.ndarray, rows: np.ndarray, gradient: np.ndarray, n_bins: int, out: np.ndarray, n_jobs: int
) -> None:
    """One weighted count for each series, list of rows and column of the gradient."""
    for s, code in enumerate(codes):
        for q, row in enumerate(rows):
            here = code[row]
            for m in range(gradient.shape[1]):
                out[s, q, :, m] = np.bincount(here, weights=gradient[:, m], minlength=n_bins)

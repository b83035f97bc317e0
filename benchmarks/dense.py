"""Dense fields against pydensecrf2, and against sums over all pairs.

A made image of 321 × 481 (smooth light, discs, noise) with 21 labels, all of them alive: from the unary and the image
to the marginals, as scripts do it, with both kernels and five steps (positions 3, weight 3; positions 80 and colours
13, weight 10). Both sides are called by the same names; ours are those of `crfield.compat.pydensecrf`. That the
marginals are the same is checked first, and shown. CPU time on one thread each; then wall clock of two threads
against one of ours.

How near the filters are to the Gaussian is asked on 30 × 40 pixels, where all pairs can be added up: the relative
error, in the Euclidean norm, of K (2 q − 1) with symmetric normalisation, for smooth and for rough q, three spatial
kernels and four of positions and colours; and the error of the marginals after five steps beside those with exact
kernels. The rival is pydensecrf2's lattice, to which our standard mode is equal.

The extra ``bench-dense`` has pydensecrf2.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from scipy.ndimage import gaussian_filter

import crfield.compat.pydensecrf.densecrf as ours
from benchmarks.children import run_task
from benchmarks.corpora import Bench
from benchmarks.table import Row, ratio
from benchmarks.timing import interleaved, wall
from crfield.inference.dense import DenseField, DenseMeanField, Places, gaussian_kernel
from crfield.kernels import dense

HEIGHT, WIDTH, LABELS, STEPS = 321, 481, 21, 5
REQUIRED, THREADS_REQUIRED, ERROR_REQUIRED = 4.0, 1.5, 0.5
SAME, SAME_LABELS, MEMORY = 1e-4, 99.9, 2000.0
SMALL = (30, 40)
WIDTHS = ((3.0, None), (5.0, None), (10.0, None), (80.0, 13.0), (40.0, 30.0), (20.0, 20.0), (10.0, 10.0))
PAIR: tuple[tuple[float, float | None], ...] = ((3.0, None), (80.0, 13.0))
NAME = f"dense: {HEIGHT} × {WIDTH}, {LABELS} labels, {STEPS} steps"


def picture(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """(H, W, 3) uint8: light on several scales, discs of other colours, and a camera's noise."""
    image = np.zeros((*shape, 3))
    for share, strength in ((0.3, 60.0), (0.12, 30.0), (0.03, 8.0)):
        width = share * min(shape)
        field = np.stack([gaussian_filter(rng.normal(size=shape), width, mode="reflect") for _ in range(3)], axis=-1)
        image += strength * field / field.std()
    y, x = np.mgrid[: shape[0], : shape[1]]
    for _ in range(8):
        row, column = rng.random(2) * shape
        image[(y - row) ** 2 + (x - column) ** 2 < (rng.uniform(0.08, 0.25) * min(shape)) ** 2] += rng.normal(
            0, 50, 3
        )
    return np.clip(127 + image + rng.normal(scale=3.0, size=image.shape), 0, 255).astype(np.uint8)


def energies(rng: np.random.Generator, shape: tuple[int, int], labels: int) -> np.ndarray:
    """(L, N) energies of a network that sees blocks of eight pixels, and of its noise."""
    blocks = rng.normal(size=(labels, *(-(-side // 8) for side in shape)))
    scores = 2.5 * np.kron(blocks, np.ones((1, 8, 8)))[:, : shape[0], : shape[1]] + rng.normal(size=(labels, *shape))
    powers = np.exp(scores - scores.max(axis=0))
    return np.ascontiguousarray(-np.log(powers / powers.sum(axis=0)).reshape(labels, -1), np.float32)


def marginals(package: Any, image: np.ndarray, unary: np.ndarray, **options: Any) -> np.ndarray:
    """What a script does."""
    height, width = image.shape[:2]
    crf = package.DenseCRF2D(width, height, len(unary), **options)
    crf.setUnaryEnergy(unary)
    crf.addPairwiseGaussian(sxy=3, compat=3)
    crf.addPairwiseBilateral(sxy=80, srgb=13, rgbim=image, compat=10)
    return np.array(crf.inference(STEPS))


def run(bench: Bench) -> list[Row]:
    """Time, agreement, threads, accuracy, memory."""
    rng = np.random.default_rng(0)
    image, unary = picture(rng, (HEIGHT, WIDTH)), energies(rng, (HEIGHT, WIDTH), LABELS)
    turns = 5 if bench.quick else 15
    rows = _against_rival(rng, image, unary, turns)
    one, two = interleaved(
        lambda: marginals(ours, image, unary),
        lambda: marginals(ours, image, unary, n_jobs=2),
        turns=turns,
        clock=wall,
    )
    rows.append(ratio("dense: two threads, wall clock", two, one, required=THREADS_REQUIRED))
    places, colours = Places.of_grid((HEIGHT, WIDTH)), image.reshape(-1, 3)

    def by_mode(mode: str) -> np.ndarray:
        made = [gaussian_kernel(places, colours, *w, accuracy=mode).normalised("symmetric") for w in PAIR]
        return dense.mean_field(unary.T, made, [3.0, 10.0], steps=STEPS, negated=True)[0]

    fast, slow = interleaved(lambda: by_mode("standard"), lambda: by_mode("high"), turns=turns)
    rows.append(ratio("dense: time of the standard mode / of the high mode", fast, slow))
    rows += _accuracy(2 if bench.quick else 6)
    size = 64 if bench.quick else 128
    done = run_task("dense_volume", str(size))
    rows.append(
        Row(
            f"dense: peak memory, a volume of {size}³ voxels, two labels",
            done["peak"],
            unit="MB",
            required=MEMORY,
            better="less",
            note=f"from probabilities to labels, {100 * done['right']:.1f} % of them right",
        )
    )
    return rows


def _against_rival(rng: np.random.Generator, image: np.ndarray, unary: np.ndarray, turns: int) -> list[Row]:
    try:
        rival = import_module("pydensecrf.densecrf")
    except ImportError:
        missing = "pydensecrf2 is not installed: pip install 'crfield[bench-dense]'"
        return [Row(f"{NAME} / pydensecrf2", None, required=REQUIRED, note=missing)]
    mine, theirs = marginals(ours, image, unary), marginals(rival, image, unary)
    apart = float(np.abs(mine - theirs).max())
    alike = 100 * float((mine.argmax(axis=0) == theirs.argmax(axis=0)).mean())
    rows = [
        Row("dense: largest difference of marginals", apart, unit="", required=SAME, better="less"),
        Row("dense: pixels of the same label", alike, unit="%", required=SAME_LABELS),
    ]
    fast, slow = interleaved(
        lambda: marginals(ours, image, unary), lambda: marginals(rival, image, unary), turns=turns
    )
    rows.append(ratio(f"{NAME} / pydensecrf2", fast, slow, required=REQUIRED))
    for labels in (2, 7, 40):
        small, few = image[:120, :160].copy(), energies(rng, (120, 160), labels)
        fast, slow = interleaved(
            lambda small=small, few=few: marginals(ours, small, few),
            lambda small=small, few=few: marginals(rival, small, few),
            turns=turns,
        )
        rows.append(ratio(f"dense: 120 × 160, {labels} labels / pydensecrf2", fast, slow))
    return rows


def _exact(places: Places, colours: np.ndarray, widths: tuple[float, float | None]) -> np.ndarray:
    """(N, N) the Gaussian of all pairs, normalised on both sides."""
    rows = [places.positions / widths[0]] + ([] if widths[1] is None else [colours.T / widths[1]])
    features = np.concatenate(rows).astype(np.float64)
    squares = (features**2).sum(axis=0)
    kernel = np.exp(-0.5 * np.maximum(squares[:, None] + squares - 2 * features.T @ features, 0.0))
    factor = 1 / np.sqrt(kernel.sum(axis=1))
    return factor[:, None] * kernel * factor


def _accuracy(n_images: int) -> list[Row]:
    """Errors of both modes; the standard one is pydensecrf2's."""
    places = Places.of_grid(SMALL)
    errors: dict[tuple[str, str], list[float]] = {}
    for seed in range(n_images):
        rng = np.random.default_rng(1000 + seed)
        image = picture(rng, SMALL)
        colours = image.reshape(-1, 3).astype(np.float64)
        asked = []
        for smooth in (0.0, 2.0):
            field = gaussian_filter(rng.normal(size=SMALL), smooth)
            q = 1 / (1 + np.exp(-3 * field.ravel() / field.std()))
            asked.append(np.stack([2 * q - 1, 1 - 2 * q], axis=1))
        for widths in WIDTHS:
            kernel = _exact(places, colours, widths)
            kind = "positions" if widths[1] is None else "positions and colours"
            for mode in ("standard", "high"):
                made = gaussian_kernel(places, colours, *widths, accuracy=mode).normalised("symmetric")
                for values in asked:
                    wanted = kernel @ values
                    off = np.linalg.norm(dense.apply(made, values) - wanted) / np.linalg.norm(wanted)
                    errors.setdefault((kind, mode), []).append(float(off))
        unary = energies(rng, SMALL, 3).T
        q = wanted = _softmax(-unary.astype(np.float64))
        tables = [_exact(places, colours, widths) for widths in PAIR]
        for _ in range(STEPS):
            q = _softmax(-unary + 3 * tables[0] @ q + 10 * tables[1] @ q)
        for mode in ("standard", "high"):
            made = [gaussian_kernel(places, colours, *w, accuracy=mode).normalised("symmetric") for w in PAIR]
            found = DenseMeanField(steps=STEPS).infer(DenseField(-unary, made, [3.0, 10.0])).node
            errors.setdefault(("marginals", mode), []).append(float(np.abs(found - q).mean()))
    names = {
        "positions": "filter of positions",
        "positions and colours": "filter of positions and colours",
        "marginals": "marginals after five steps, mean",
    }
    rows = []
    filters = [np.mean(errors["positions", m] + errors["positions and colours", m]) for m in ("high", "standard")]
    rows.append(_error_row("filters, all widths", float(filters[0]), float(filters[1]), ERROR_REQUIRED))
    for kind, words in names.items():
        high, standard = float(np.mean(errors[kind, "high"])), float(np.mean(errors[kind, "standard"]))
        rows.append(_error_row(words, high, standard, ERROR_REQUIRED if kind == "marginals" else None))
    return rows


def _error_row(words: str, high: float, standard: float, required: float | None) -> Row:
    return Row(
        f"dense: error of the high mode / pydensecrf2: {words}",
        high / standard,
        required=required,
        better="less",
        ours=f"{high:.2%}",
        rival=f"{standard:.2%}",
    )


def _softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)

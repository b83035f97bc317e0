"""The gradient of a semi-Markov model against flash-semicrf and torch-struct (PyTorch), on the CPU.

One sequence of 1,000 steps, segments of up to 30 steps, 10 labels. Total and gradient are asked for in two forms:

    from parts      scores of steps summed over a segment, of its first and last step, of each length and label, and
                    of neighbouring labels: flash-semicrf's own form (`semi_crf_streaming_forward`); ours is
                    `kernels.segments.expectations`, what training calls
    all segments    a score for every (end, length, label): ours is `kernels.segments.sum_product`. torch-struct's
                    `SemiMarkovCRF` has a score for every pair of labels, too, and multiplies matrices of (29 · 10)²
                    entries along the sequence, more than fits in memory at this size: it is compared on a small one

All answer the same question, which is checked first: totals to 1e-10 relative, gradients to 1e-8 (torch-struct 1e-4).
Double precision and one thread on all sides; CPU time. Neither package is a dependency of the project: the extra
``bench-segments`` has them.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.corpora import Bench
from benchmarks.table import Row, ratio
from benchmarks.timing import interleaved
from crfield.kernels import segments
from crfield.kernels.segments import Marks, Parts

REQUIRED = 5.0
SHAPE = (1_000, 30, 10)
SMALL = (64, 8, 4)
MISSING = "{} is not installed: pip install 'crfield[bench-segments]'"


class Case:
    """Normal scores of one sequence."""

    def __init__(self, steps: int, most: int, labels: int) -> None:
        rng = np.random.default_rng(1)
        node, self.first, self.last = rng.standard_normal((3, steps, labels))
        self.node = node - node.mean(axis=0)
        self.length, self.edge = rng.standard_normal((most, labels)), rng.standard_normal((labels, labels))
        self.offsets, self.limit = np.array([0, steps]), np.full(labels, most, np.int32)
        self.name = f"{steps:,} steps × {most} × {labels} labels"
        # flash-semicrf lets a label stand before the first segment too.
        top = self.edge.max(axis=0)
        self.entered = self.first.copy()
        self.entered[0] += np.log(np.exp(self.edge - top).sum(axis=0)) + top

    @property
    def parts(self) -> Parts:
        """As ours reads them."""
        return Parts(self.node, self.length, self.entered, self.last)

    def fused(self) -> tuple[Any, ...]:
        """Total and gradient from parts."""
        return segments.expectations(
            self.offsets, self.limit, self.parts, Marks.none(len(self.node)), self.edge[None]
        )

    def written(self) -> np.ndarray:
        """Scores of all segments (N, D, L)."""
        return segments.expand(self.offsets, self.limit, self.parts, Marks.none(len(self.node)))


def flash_rows(case: Case, *, turns: int) -> list[Row]:
    """Both of our forms against flash-semicrf's."""
    names = [f"segments: gradient {form}, {case.name} / flash-semicrf" for form in ("from parts", "of all segments")]
    try:
        torch, flash = import_module("torch"), import_module("flash_semicrf")
    except ImportError:
        return [Row(name, None, note=MISSING.format("flash-semicrf")) for name in names]
    torch.set_num_threads(1)
    given = [
        torch.tensor(x[None] if k < 3 else x, dtype=torch.float64, requires_grad=True)
        for k, x in enumerate((case.node, case.first, case.last, case.length, case.edge))
    ]
    node, first, last, length, edge = given
    lengths = torch.tensor([len(case.node)])

    def theirs() -> Any:
        summed = torch.cat([torch.zeros_like(node[:, :1]), torch.cumsum(node, dim=1)], dim=1)
        total = flash.semi_crf_streaming_forward(
            summed, edge, length, lengths, len(case.length), proj_start=first, proj_end=last, use_triton=False
        )
        return total, torch.autograd.grad(total.sum(), given)

    total, gradient = theirs()
    found, parts, _ = case.fused()
    apart = abs(float(found[0]) / float(total.detach()[0]) - 1.0)
    slopes = max(
        float(np.abs(ours - other.detach().numpy().reshape(ours.shape)).max())
        for ours, other in zip((parts.node, parts.first, parts.last, parts.length), gradient)
        if ours is not None
    )
    if apart > 1e-10 or slopes > 1e-8:
        raise RuntimeError(f"{names[0]}: totals differ by {apart:.1e}, gradients by {slopes:.1e}.")
    scores = case.written()
    fused, whole, rival = interleaved(
        case.fused, lambda: segments.sum_product(case.offsets, scores, case.edge[None]), theirs, turns=turns
    )
    note = f"totals agree to {apart:.0e}, gradients to {slopes:.0e}"
    return [
        ratio(name, mine, rival, required=REQUIRED, note=note)
        for name, mine in zip(names, (fused, whole), strict=True)
    ]


def struct_row(case: Case, *, turns: int) -> Row:
    """All segments against torch-struct's, which has a score for each pair of labels and length."""
    name = f"segments: gradient of all segments, {case.name} / torch-struct"
    try:
        torch, struct = import_module("torch"), import_module("torch_struct")
    except ImportError:
        return Row(name, None, note=MISSING.format("torch-struct"))
    torch.set_num_threads(1)
    scores = case.written()
    steps, most, labels = scores.shape
    # [begin, length, label, label before]; theirs sums over a label before the first segment, ours has none there.
    table = np.full((1, steps, most + 1, labels, labels), -1e9)
    for n in range(steps):
        for d in range(1, min(most, n + 1) + 1):
            table[0, n - d + 1, d] = scores[n, d - 1][:, None] + (case.edge.T if d <= n else -np.log(labels))
    given = torch.tensor(table)

    def theirs() -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = struct.SemiMarkovCRF(given.clone())
            return model.partition, model.marginals

    def ours() -> Any:
        return segments.sum_product(case.offsets, scores, case.edge[None])

    total, marginals = theirs()
    mine, p, _ = ours()
    apart = abs(float(mine[0]) / float(total.ravel()[0]) - 1.0)
    begins = marginals[0].sum(-1).detach().numpy()
    slopes = max(
        float(np.abs(p[n, d - 1] - begins[n - d + 1, d]).max())
        for n in range(steps)
        for d in range(1, min(most, n + 1) + 1)
    )
    if apart > 1e-10 or slopes > 1e-4:
        raise RuntimeError(f"{name}: totals differ by {apart:.1e}, gradients by {slopes:.1e}.")
    fast, slow = interleaved(ours, theirs, turns=turns)
    return ratio(name, fast, slow, note=f"totals agree to {apart:.0e}, gradients to {slopes:.0e}")


def run(bench: Bench) -> list[Row]:
    """flash-semicrf at the full size, torch-struct at a small one."""
    turns = 2 if bench.quick else 5
    return [*flash_rows(Case(*SHAPE), turns=turns), struct_row(Case(*SMALL), turns=turns)]

"""Training from disk: time and peak memory on a data set of more than 2 GB, and the same objective as in memory.

The data are random: sequences whose steps have numeric sparse features, and labels that some of them tell. They are
written by the project's own writer, shard by shard, to the temporary folder, and removed at the end. A child process
trains on them by L-BFGS to the default tolerance, and a second one does the same with packed shards not kept, as
training from disk was before they were. The times are CPU seconds of ``fit``, the pass over the data that finds the
layout and the writing of packed shards included. From the peak of the first the vectors of the optimiser (seven of W
doubles, four pairs of single precision at most) are taken off; what is left, Python and its packages included, is
judged. One evaluation is compared with one in memory on a part that fits, after a turn that fills the page cache;
on a smaller part, the optimum is compared with that of ``fit`` in memory.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from benchmarks.children import run_task
from benchmarks.corpora import Bench
from benchmarks.table import Row, seconds
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.data.batch import Batch, Columns
from crfield.data.labels import LabelCoder
from crfield.features.matrices import MatrixEncoder
from crfield.storage.encoded import DatasetWriter, EncodedDataset

LABELS, COLUMNS, LENGTH, ENTRIES = 6, 60_000, 25, 40
PART = 2_000  # sequences made at a time, 24 MB
BYTES_REQUIRED, MEMORY_REQUIRED, OBJECTIVE_REQUIRED = 2e9, 500.0, 1e-9
TIME_REQUIRED, EVALUATION_REQUIRED = 0.4, 1.3
STEPS, FEW_STEPS = 1_000, 40  # at most; to the default tolerance it takes less than 200


def make_part(rng: np.random.Generator, n: int) -> tuple[Batch, Target]:
    """Sequences in which a tenth of the entries of a step belong to its label."""
    chains = Chains.from_lengths([LENGTH] * n)
    labels = rng.integers(0, LABELS, chains.n_nodes, dtype=np.int32)
    indices = rng.integers(0, COLUMNS, (chains.n_nodes, ENTRIES), dtype=np.int32)
    telling = indices[:, : ENTRIES // 10]
    telling -= (telling - labels[:, None]) % LABELS
    np.maximum(indices, 0, out=indices)
    indptr = np.arange(0, indices.size + 1, ENTRIES)
    columns = Columns(indptr, indices.ravel(), COLUMNS, rng.standard_normal(indices.size))
    return Batch(chains, columns), Target(chains, LABELS, labels)


def write(path: str, n_bytes: float, *, shard_bytes: int = 32_000_000) -> EncodedDataset:
    """A data set of at least so many bytes."""
    rng = np.random.default_rng(0)
    coder = LabelCoder.from_classes([f"label{k}" for k in range(LABELS)])
    encoder = MatrixEncoder()
    encoder._width, encoder._kept = COLUMNS, np.arange(COLUMNS, dtype=np.int32)
    with DatasetWriter(path, coder, shard_bytes=shard_bytes) as writer:
        written = 0
        while written < n_bytes:
            batch, target = make_part(rng, min(PART, max(int(n_bytes / 12_000), 50)))
            writer.add(batch, target)
            written += batch.node.indices.nbytes + (0 if batch.node.values is None else batch.node.values.nbytes)
        return writer.close(*encoder.state())


def run(bench: Bench) -> list[Row]:
    """Peak memory, and the objective of a part."""
    folder = Path(bench.path("out-of-core"))
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        part = write(str(folder / "part"), 5e6, shard_bytes=1_000_000)
        same = run_task("same_objective", str(folder / "part"))
        middle = write(str(folder / "middle"), 5e7 if bench.quick else 2e8)
        one = run_task("evaluate_encoded", str(folder / "middle"), "5" if bench.quick else "15")
        shutil.rmtree(folder / "middle")
        whole = write(str(folder / "whole"), 0.1 * BYTES_REQUIRED if bench.quick else 1.01 * BYTES_REQUIRED)
        size, shards = whole.nbytes, whole.n_shards
        steps = str(FEW_STEPS if bench.quick else STEPS)
        child, before = (run_task("train_encoded", str(folder / "whole"), steps, how) for how in ("kept", "anew"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    weights = child["weights"] * (7 * 8 + 4 * 2 * 4) / 1e6
    return [
        Row(
            f"out-of-core: one evaluation from disk and in memory, {middle.nbytes / 1e9:.2f} GB",
            one["kept"] / one["memory"],
            required=EVALUATION_REQUIRED,
            better="less",
            ours=seconds(one["kept"]),
            rival=seconds(one["memory"]),
            note=f"medians {one['medians']['kept'] / one['medians']['memory']:.2f}×; "
            f"packed anew {one['anew'] / one['memory']:.2f}×",
            detail=one,
        ),
        Row(
            f"out-of-core: training with packed shards kept and packed anew, {size / 1e9:.2f} GB",
            child["cpu"] / before["cpu"],
            required=None if bench.quick else TIME_REQUIRED,
            better="less",
            ours=seconds(child["cpu"]),
            rival=seconds(before["cpu"]),
            note=f"CPU of fit, {child['evaluations']} and {before['evaluations']} evaluations, the first one packs",
            detail={"kept": child, "anew": before},
        ),
        Row(
            f"out-of-core: memory above the weights, {size / 1e9:.2f} GB in {shards} shards",
            child["peak"] - weights,
            unit="MB",
            required=None if bench.quick else MEMORY_REQUIRED,
            better="less",
            ours=f"{child['peak']:.0f} MB",
            note=f"{child['weights']:,} weights: vectors of {weights:.0f} MB; {child['evaluations']} evaluations",
            detail={"bytes": size, **child},
        ),
        Row(
            f"out-of-core: objective of {part.nbytes / 1e6:.0f} MB in {part.n_shards} shards, disk and memory",
            same["difference"],
            unit="",
            required=OBJECTIVE_REQUIRED,
            better="less",
            ours=f"{same['disk']:.8g}",
            rival=f"{same['memory']:.8g}",
            note="relative; optimum of both, tolerance 1e-10",
            detail=same,
        ),
    ]

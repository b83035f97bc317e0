"""Work done in a fresh process: ``python -m benchmarks.children TASK [ARGUMENT ...]`` prints a JSON object.

Peak memory and the cost of imports can only be seen from birth on. The peak is VmHWM of /proc, not ``ru_maxrss``:
the latter survives exec, so a child of a large parent would look large itself.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

BASE = "import numpy, scipy.sparse, scipy.optimize, sklearn.base"


def run_task(task: str, *arguments: str) -> dict[str, Any]:
    """Run a task in a new process and give what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.children", task, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[1],
    )
    if done.returncode:
        raise RuntimeError(f"{task} failed:\n{done.stderr}")
    return dict(json.loads(done.stdout))


def peak_megabytes() -> float:
    """The most memory this process has had in use (resident)."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1000 * 1.024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000 * 1.024


def train_ours(path: str, template: str, pairs: str, max_iter: str) -> dict[str, Any]:
    """From a column file to a trained model, with the default history."""
    import crfield
    from benchmarks.contestant import chain
    from crfield.errors import ConvergenceWarning

    warnings.simplefilter("ignore", ConvergenceWarning)
    X, y = crfield.read_columns(path).split_column(-1)
    text = crfield.read_template(template)
    model = chain(text, feature_pairs=pairs, transition_pairs=pairs, max_iter=int(max_iter)).fit(X, y)
    return {"objective": model.objective_, "steps": model.n_iter_, "weights": len(model.coef_)}


def train_crfsuite(path: str, max_iterations: str) -> dict[str, Any]:
    """The same by string features and python-crfsuite; the file is read with nothing of ours."""
    import gzip

    from pycrfsuite import Trainer

    from benchmarks.corpora import chunk_features

    data = Path(path).read_bytes()
    text = (gzip.decompress(data) if path.endswith(".gz") else data).decode("utf-8")
    blocks = [[line.split() for line in block.split("\n")] for block in text.strip().split("\n\n")]
    trainer = Trainer(algorithm="lbfgs", verbose=False)
    trainer.set_params({"c2": 1.0, "max_iterations": int(max_iterations)})
    sequences = [[(word, tag) for word, tag, _ in block] for block in blocks]
    X = [[chunk_features(rows, t) for t in range(len(rows))] for rows in sequences]
    y = [[label for _, _, label in block] for block in blocks]
    for features, labels in zip(X, y):
        trainer.append(features, labels)
    trainer.train("/dev/null")
    return {}


def imports(*statements: str) -> dict[str, Any]:
    """CPU time of each import statement in turn, and which unwanted modules came along."""
    spent = []
    for statement in statements:
        began = time.process_time()
        exec(statement, {})
        spent.append(time.process_time() - began)
    unwanted = [name for name in ("typer", "rich", "matplotlib", "pandas") if name in sys.modules]
    return {"seconds": spent, "unwanted": unwanted}


def train_encoded(path: str, max_iter: str, packed: str) -> dict[str, Any]:
    """Train on an encoded data set, from opening it on; packed shards kept, or packed anew at each use."""
    import crfield
    from crfield.errors import ConvergenceWarning

    warnings.simplefilter("ignore", ConvergenceWarning)
    model = crfield.ChainCRF(solver="lbfgs", max_iter=int(max_iter))
    dataset = crfield.EncodedDataset(path, packed=packed == "kept")
    began, cpu = time.perf_counter(), time.process_time()
    model.fit(dataset)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    return {"weights": len(model.coef_), "evaluations": model.n_evaluations_, "seconds": seconds, "cpu": cpu}


def evaluate_encoded(path: str, turns: str) -> dict[str, Any]:
    """One evaluation in CPU seconds, in turns: all in memory, packed shards kept on disk, shards packed each time."""
    import numpy as np

    import crfield
    from benchmarks.timing import interleaved
    from crfield.scoring.layout import Layout
    from crfield.scoring.layout_growth import joined
    from crfield.storage.encoded import join_batches
    from crfield.training.chain.fused import FusedChain
    from crfield.training.chain.shards import ShardedChain

    kept, anew = (crfield.EncodedDataset(path, packed=packed) for packed in (True, False))
    layout: Layout | None = None
    for shard in kept.shards():
        seen = Layout.observe(shard.batch, shard.target)
        layout = seen if layout is None else joined(layout, seen)
    assert layout is not None
    found = layout
    contestants: list[Any] = [FusedChain(found, *join_batches([(part.batch, part.target) for part in kept.shards()]))]
    for dataset in (kept, anew):
        contestants.append(
            ShardedChain(dataset, lambda batch, target: FusedChain(found, batch, target), n_weights=found.n_weights)
        )
    weights = 0.1 * np.random.default_rng(0).normal(size=found.n_weights)
    gradient = np.empty(found.n_weights)
    contestants[1].evaluate(weights, gradient)  # writes
    times = interleaved(*(lambda one=one: one.evaluate(weights, gradient) for one in contestants), turns=int(turns))
    best = {name: timing.best for name, timing in zip(("memory", "kept", "anew"), times)}
    return {**best, "medians": {name: timing.median for name, timing in zip(best, times)}}


def same_objective(path: str) -> dict[str, Any]:
    """The optimum from disk and that of the same data in memory."""
    import numpy as np
    from scipy.sparse import csr_array

    import crfield

    dataset = crfield.EncodedDataset(path)
    options: dict[str, Any] = {"solver": "lbfgs", "l2": 5.0, "tol": 1e-10, "max_iter": 2000}
    disk = crfield.ChainCRF(**options).fit(dataset).objective_
    X, y = [], []
    for shard in dataset.shards():
        node, offsets = shard.batch.node, shard.batch.topology.offsets
        rows = csr_array((node.values, node.indices, node.indptr), shape=(node.n_rows, node.width))
        for first, stop in pairwise(offsets.tolist()):
            X.append(rows[first:stop])
            y.append(dataset.labels[np.asarray(shard.target.labels[first:stop])])
    memory = crfield.ChainCRF(**options).fit(X, y).objective_
    return {"disk": disk, "memory": memory, "difference": abs(disk / memory - 1)}


TASKS: dict[str, Callable[..., dict[str, Any]]] = {
    "train_encoded": train_encoded,
    "evaluate_encoded": evaluate_encoded,
    "same_objective": same_objective,
    "train_ours": train_ours,
    "train_crfsuite": train_crfsuite,
    "imports": imports,
}


def main() -> None:
    """Run the task named on the command line."""
    result = TASKS[sys.argv[1]](*sys.argv[2:])
    print(json.dumps({**result, "peak": peak_megabytes()}))


if __name__ == "__main__":
    main()

"""Work done in a fresh process: ``python -m benchmarks.children TASK [ARGUMENT ...]`` prints a JSON object.

Peak memory and the cost of imports can only be seen from birth on. The peak is VmHWM of /proc, not ``ru_maxrss``:
the latter survives exec, so a child of a large parent would look large itself.
"""

from __future__ import annotations

import json
import os
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


def run_task(task: str, *arguments: str, **environment: str) -> dict[str, Any]:
    """Run a task in a new process, with these changes of the environment, and give what it printed.

    Bytecode is kept, as users have it, whatever the environment says.
    """
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.children", task, *arguments],
        env={name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | environment,
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


def ask_saved(path: str) -> dict[str, Any]:
    """CPU time of the import, of loading a chain and of asking it of one sentence, and the modules there then."""
    began = time.process_time()
    import crfield

    imported = time.process_time()
    model = crfield.load(path)
    loaded = time.process_time()
    model.predict([[["word=the"], ["word=dog"]]])
    asked = time.process_time()
    packages: dict[str, int] = {}
    for name in sys.modules:
        root = name.partition(".")[0]
        packages[root] = packages.get(root, 0) + 1
    return {"seconds": [imported - began, loaded - imported, asked - loaded], "packages": packages}


def command(*words: str) -> dict[str, Any]:
    """CPU time, user and system, of the command line in a process of its own."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime}


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
    from crfield.training.chain.shards import ShardedChain
    from crfield.training.likelihood import FusedChain

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


def cluster_train(
    path: str, max_iter: str, checkpoint: str, stop: str, kind: str = "local", n_workers: str = "2"
) -> dict[str, Any]:
    """Steps on an encoded data set by workers of this machine; at the step ``stop`` this process kills itself."""
    import os
    import signal

    import crfield
    from crfield.errors import ConvergenceWarning
    from crfield.training.cluster.chain import ClusterChain

    warnings.simplefilter("ignore", ConvergenceWarning)
    timed: list[tuple[float, float]] = []
    evaluate = ClusterChain.evaluate

    def noted(self: ClusterChain, weights: Any, gradient: Any) -> float:
        value = evaluate(self, weights, gradient)
        timed.append((self.times[-1].seconds, self.times[-1].processor))
        return value

    def after(step: Any, weights: Any) -> None:
        if step.n_iter == int(stop):
            os.kill(os.getpid(), signal.SIGKILL)

    ClusterChain.evaluate = noted  # type: ignore[method-assign]
    kept: dict[str, Any] = {"checkpoint": checkpoint, "checkpoint_every": 0.0} if checkpoint else {}
    model = crfield.ChainCRF(solver="lbfgs", tol=1e-12, max_iter=int(max_iter), callback=after, **kept)
    with crfield.cluster(kind, n_workers=int(n_workers)):  # type: ignore[arg-type]
        model.fit(crfield.EncodedDataset(path))
    best, processor = (min(part) for part in zip(*timed))
    return {"objective": model.objective_, "evaluation": best, "processor": processor, "evaluations": len(timed)}


def cluster_killed(path: str, max_iter: str, checkpoint: str, stop: str) -> dict[str, Any]:
    """`cluster_train` in a process of its own that kills itself on the way."""
    command = [sys.executable, "-m", "benchmarks.children", "cluster_train", path, max_iter, checkpoint, stop]
    done = subprocess.run(command, capture_output=True, check=False, cwd=Path(__file__).parents[1])
    return {"returned": done.returncode}


def threads_in_memory(path: str, max_iter: str, n_jobs: str) -> dict[str, Any]:
    """The same steps in one process that keeps all shards packed in memory and has several threads."""
    import numpy as np

    import crfield
    from crfield.optimize.lbfgs import minimize
    from crfield.optimize.penalty import Penalty
    from crfield.scoring.layout import Layout
    from crfield.scoring.layout_growth import joined
    from crfield.training.likelihood import FusedChain

    dataset = crfield.EncodedDataset(path)
    layout: Any = None
    for shard in dataset.shards():
        seen = Layout.observe(shard.batch, shard.target, bias=True)
        layout = seen if layout is None else joined(layout, seen)
    kept = [FusedChain(layout, shard.batch, shard.target, n_jobs=int(n_jobs)) for shard in dataset.shards()]
    timed: list[tuple[float, float]] = []

    class Whole:
        n_weights = layout.n_weights

        def evaluate(self, weights: Any, gradient: Any) -> float:
            began, used, value = time.perf_counter(), time.process_time(), 0.0
            piece = np.empty(layout.n_weights)
            gradient[:] = 0.0
            for problem in kept:
                value += problem.evaluate(weights, piece)
                gradient += piece
            timed.append((time.perf_counter() - began, time.process_time() - used))
            return value

    options: dict[str, Any] = {"tol": 1e-12, "max_iter": int(max_iter), "n_jobs": 1}
    result = minimize(Whole(), np.zeros(layout.n_weights), Penalty(l2=1.0), **options)
    best, processor = (min(part) for part in zip(*timed))
    return {"objective": result.value, "evaluation": best, "processor": processor}


def dense_volume(size: str) -> dict[str, Any]:
    """Five steps on a grey volume with two labels, by the estimator."""
    import numpy as np

    import crfield

    n = int(size)
    rng = np.random.default_rng(0)
    z, y, x = np.ogrid[:n, :n, :n]
    inside = (z - n / 2) ** 2 + (y - n / 2) ** 2 + (x - n / 2) ** 2 < (n / 3) ** 2
    volume = np.where(inside, 140, 90) + rng.normal(scale=12.0, size=(n, n, n))
    volume = volume.astype(np.float32)
    p = np.where(inside, 0.6, 0.4) + rng.normal(scale=0.1, size=(n, n, n))
    unary = np.stack([1 - p, p], axis=-1).clip(0.01, 0.99).astype(np.float32)
    model = crfield.DenseCRF(form="volume", sweeps=5, colour_width=13.0, position_width=30.0).untrained([0, 1])
    return {"right": float((model.predict([volume], unary=[unary])[0] == inside).mean())}


def limits(turns: str) -> dict[str, Any]:
    """Operations a second of one core in double and in single precision, and bytes."""
    from benchmarks.roofline import measured_limits

    return {"limits": measured_limits(int(turns))}


def levels(turns: str, quick: str, folder: str) -> dict[str, Any]:
    """Times of loops at each level of x86-64, of the compiled modules in a folder or of those installed."""
    if folder:
        from tests.other_build import use_modules

        use_modules(folder)
    from benchmarks.levels import timed

    return {"best": timed(int(turns), quick=bool(quick))}


TASKS: dict[str, Callable[..., dict[str, Any]]] = {
    "train_encoded": train_encoded,
    "evaluate_encoded": evaluate_encoded,
    "cluster_train": cluster_train,
    "cluster_killed": cluster_killed,
    "threads_in_memory": threads_in_memory,
    "same_objective": same_objective,
    "train_ours": train_ours,
    "train_crfsuite": train_crfsuite,
    "imports": imports,
    "dense_volume": dense_volume,
    "limits": limits,
    "levels": levels,
    "ask_saved": ask_saved,
    "command": command,
}


def main() -> None:
    """Run the task named on the command line."""
    result = TASKS[sys.argv[1]](*sys.argv[2:])
    print(json.dumps({**result, "peak": peak_megabytes()}))


if __name__ == "__main__":
    main()

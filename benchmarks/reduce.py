"""``python -m benchmarks.reduce``: the arithmetic of a cluster that nobody has here, and where it stops to scale.

A sum over workers is simulated message by message: every machine has one network card, a message of b bytes keeps the
cards of both ends busy for b / bandwidth and arrives one latency later, and a worker begins to send when its kernels
are done. Kernels of n workers take 1 / n of the time of one, each times a factor of its own (normal, a deviation of
5 %, fixed seed), so that the slowest of many is slower than the mean. Nothing is sent that crfield does not send:
weights to every worker, and back the gradient of the columns that its share of the data touches. A card sends or
receives, not both at once.

    star    as it is: the driver's card carries everything
    tree    workers add pairwise before the driver sees it, weights go the same way back
    ring    every worker adds a slice and passes it on (Patarasuk & Yuan 2009), and has an optimiser of its own

The share of the columns that 1 / n of the data touches falls as n^−0.3 (Heaps' law with an exponent of 0.7; where
``CRFIELD_DATA`` is set it is measured on CoNLL-2000 beside it).
"""

from __future__ import annotations

import argparse
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

HEAPS = 0.3
WORKERS = (2, 4, 8, 16, 32, 64, 128, 256)


@dataclass(frozen=True)
class Plan:
    """What is trained, and on what."""

    tokens: float = 1e9
    weights: float = 1e8
    token_seconds: float = 6e-7  # of one thread: 22 labels and 19 features of text; python -m benchmarks evaluation
    threads: int = 8  # of a worker
    latency: float = 1e-4
    bandwidth: float = 1.25e9  # bytes a second: 10 Gbit/s
    disk_bytes: float = 95.0  # of a token on disk, as CoNLL-2000 has
    packed: float = 4.0  # bytes in memory for each on disk, at most


def kernels(plan: Plan, n: int) -> np.ndarray:
    """(n,) seconds that each worker computes."""
    spread = 1.0 + 0.05 * np.random.default_rng(n).standard_normal(n)
    return plan.tokens * plan.token_seconds / (n * plan.threads) * spread


class Network:
    """Cards that are busy until some time; the driver is the last machine."""

    def __init__(self, plan: Plan, n: int) -> None:
        self.plan, self.free = plan, np.zeros(n + 1)

    def send(self, source: int, target: int, size: float, ready: float) -> float:
        """When a message is there that could leave at ``ready``."""
        begin = max(ready, self.free[source], self.free[target])
        end = begin + size / self.plan.bandwidth
        self.free[source] = self.free[target] = end
        return float(end + self.plan.latency)


def touched(n: int) -> float:
    """Share of the weights that a worker's part of the data touches.

    >>> round(touched(2), 2), round(touched(64), 2)
    (0.81, 0.29)
    """
    return float(n**-HEAPS)


def star(plan: Plan, n: int, *, wire: int = 8, sparse: bool = True) -> float:
    """Seconds of an evaluation as crfield makes it: weights to all, gradients back, in the order of the workers."""
    net, seconds = Network(plan, n), kernels(plan, n)
    there = [net.send(n, k, 8 * plan.weights, 0.0) for k in range(n)]
    size = wire * plan.weights * (touched(n) if sparse else 1.0)
    net.free[:n] = np.array(there) + seconds
    return max(net.send(k, n, size, there[k] + seconds[k]) for k in range(n))


def tree(plan: Plan, n: int) -> float:
    """The same, with weights handed on and gradients added pairwise."""
    net, seconds, size = Network(plan, n), kernels(plan, n), 8 * plan.weights
    there = np.full(n, np.inf)
    there[0], have = net.send(n, 0, size, 0.0), [0]
    while len(have) < n:
        for k, new in zip(list(have), range(len(have), min(2 * len(have), n))):
            there[new] = net.send(k, new, size, there[k])
            have.append(new)
    done = there + seconds
    step = 1
    while step < n:
        for k in range(0, n - step, 2 * step):
            done[k] = max(done[k], net.send(k + step, k, size, done[k + step]))
        step *= 2
    return net.send(0, n, size, float(done[0]))


def ring(plan: Plan, n: int) -> float:
    """The same, with slices of the gradient that go round twice, and an optimiser on every worker."""
    seconds, piece = float(kernels(plan, n).max()), 8 * plan.weights / n
    return seconds + 2 * (n - 1) * (piece / plan.bandwidth + plan.latency)


def table(plan: Plan) -> str:
    """All ways, for all numbers of workers."""
    lines = ["workers  kernels    star  float32    tree    ring   star/ideal  bytes at the driver  worker's memory"]
    alone = plan.tokens * plan.token_seconds / plan.threads
    for n in WORKERS:
        moved = n * plan.weights * (8 + 8 * touched(n))
        memory = plan.tokens * plan.disk_bytes * plan.packed / n + 4 * 8 * plan.weights
        times = [star(plan, n), star(plan, n, wire=4), tree(plan, n), ring(plan, n)]
        shown = "  ".join(f"{seconds:6.1f}" for seconds in times)
        lines.append(
            f"{n:7d}  {kernels(plan, n).max():7.1f}  {shown}   {alone / n / times[0]:10.2f}  {moved / 1e9:16.1f} GB"
            f"  {memory / 1e9:12.1f} GB"
        )
    return "\n".join(lines)


def best(plan: Plan, way: str) -> tuple[int, float]:
    """The number of workers with the fastest evaluation, and its seconds."""
    run = {"star": star, "tree": tree, "ring": ring}[way]
    times = {n: run(plan, n) for n in WORKERS}  # type: ignore[operator]
    n = min(times, key=times.__getitem__)
    return n, times[n]


def measured(data: Path) -> str:
    """Shares of the columns of CoNLL-2000 that its parts touch, and bytes of a token on disk."""
    import crfield
    from benchmarks.corpora import conll2000

    corpus = conll2000(data)
    with tempfile.TemporaryDirectory() as folder:
        dataset = crfield.encode_dataset(
            [(corpus.train.rows, corpus.train.tags)], f"{folder}/d", template=corpus.template, shard_bytes=700_000
        )
        shards = [np.unique(shard.batch.node.indices) for shard in dataset.shards()]
    told = []
    for n in (2, 4, 8, 16):
        parts = np.array_split(np.arange(len(shards)), n)
        shares = [len(np.unique(np.concatenate([shards[k] for k in part]))) / dataset.n_columns for part in parts]
        told.append(f"1/{n}: {np.mean(shares):.2f} (n^-0.3: {touched(n):.2f})")
    bytes_ = dataset.nbytes / dataset.n_steps
    return f"CoNLL-2000: {bytes_:.0f} bytes of a token on disk; columns touched by a part of {', '.join(told)}"


def main(arguments: list[str] | None = None) -> None:
    """Print the table, and where it stops to scale."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reduce", description="A simulated reduce.")
    parser.add_argument("--tokens", type=float, default=1e9)
    parser.add_argument("--weights", type=float, default=1e8)
    parser.add_argument("--gbits", type=float, default=10.0, help="bandwidth of a network card")
    parser.add_argument("--latency", type=float, default=1e-4, help="seconds")
    chosen = parser.parse_args(arguments)
    plan = Plan(chosen.tokens, chosen.weights, latency=chosen.latency, bandwidth=chosen.gbits * 1.25e8)
    alone = plan.tokens * plan.token_seconds / plan.threads
    print(
        f"{plan.tokens:.0e} tokens, {plan.weights:.0e} weights, {plan.threads} threads a worker, {chosen.gbits:g} "
        f"Gbit/s, latency {1e3 * plan.latency:g} ms; one worker: {alone:.0f} s of kernels an evaluation\n"
    )
    print(table(plan))
    for way in ("star", "tree", "ring"):
        n, seconds = best(plan, way)
        print(f"\n{way}: fastest with {n} workers, {seconds:.1f} s an evaluation", end="")
    print(f"\n\ndriver: about {90 * plan.weights / 1e9:.0f} GB for the vectors of the optimiser")
    data = os.environ.get("CRFIELD_DATA")
    if data:
        print(measured(Path(data)))


if __name__ == "__main__":
    main()

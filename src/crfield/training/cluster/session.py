"""`crfield.cluster`: a block within which training runs on the workers of a cluster.

The cluster is a context and no parameter of estimators: ``clone``, searches, model files and checkpoints know nothing
of it, and the same ``fit`` runs here, in processes, or on many machines. (Classes of their own for a cluster, as
other libraries have them, double the interface and drift apart.) The block is that of the thread that entered it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextvars import Token
from typing import Any

from crfield.core.checks import is_number
from crfield.errors import ClusterError, InputError, did_you_mean
from crfield.training.cluster.crew import Crew, check_count
from crfield.training.cluster.current import CURRENT
from crfield.training.cluster.host import Failure
from crfield.training.cluster.pool import Pool

KINDS = ("ray", "local")
WIRES = ("float64", "float32")


class Cluster:
    """Workers, from ``with`` on to the end of its block; made by `cluster`."""

    def __init__(
        self, kind: str | Pool, make: Callable[[], Pool], *, wire: str, memory: float | None, **crew: Any
    ) -> None:
        self.kind, self.wire, self.memory = kind, wire, memory
        self._make, self._options = make, crew
        self._crew: Crew | None = None
        self._token: Token[Cluster | None] | None = None

    @property
    def crew(self) -> Crew:
        """The workers; ClusterError outside of the block."""
        if self._crew is None:
            raise ClusterError("the cluster has workers only within its block: with crfield.cluster(…) as cluster.")
        return self._crew

    @property
    def n_workers(self) -> int:
        """How many workers there are."""
        return self.crew.n_workers

    @property
    def threads(self) -> int:
        """Threads of each worker."""
        return self.crew.pool.threads

    @property
    def workers(self) -> list[dict[str, Any]]:
        """What each worker said of itself: version, body and level of the kernels, node, process, free memory."""
        return [dict(report) for report in self.crew.reports]

    def __enter__(self) -> Cluster:
        if self._crew is not None or CURRENT.get() is not None:
            raise ClusterError("a cluster is in use already: blocks cannot stand within each other.")
        self._crew = Crew(self._make(), **self._options)
        try:
            self._crew.__enter__()
        except BaseException:
            self._crew = None
            raise
        self._token = CURRENT.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        if self._token is not None:
            CURRENT.reset(self._token)
        crew, self._crew, self._token = self._crew, None, None
        if crew is not None:
            crew.close()

    def budget(self) -> list[float | None]:
        """Bytes of packed data that each worker may keep: ``memory``, or its share of half of what is free there."""
        reports = self.crew.reports
        made: list[float | None] = []
        for report in reports:
            beside = sum(other["node"] == report["node"] for other in reports)
            free = report.get("memory")
            made.append(self.memory if self.memory is not None else None if free is None else 0.5 * free / beside)
        return made

    def each(
        self,
        function: Callable[..., Any],
        cases: Sequence[tuple[Any, ...]],
        *shared: Any,
        names: Sequence[str] | None = None,
    ) -> Iterator[tuple[int, Any]]:
        """(number, function(*cases[number], *shared)) for every case, in the order of the cases.

        Whoever is done gets the next case. Cases that fail do not keep others from being done: at the end one
        ClusterError names them all, by their numbers or by the ``names`` of files.
        """
        held: dict[int, Any] = {}
        failed: dict[int, Failure] = {}
        following = 0
        for number, outcome in self.crew.run(function, cases, *shared):
            if isinstance(outcome, Failure):
                failed[number] = outcome
            held[number] = outcome
            while following in held:
                found = held.pop(following)
                if following not in failed:
                    yield following, found
                following += 1
        if failed:
            called = [f"case {number}" for number in range(len(cases))] if names is None else names
            lines = [f"{called[number]}: {failure.words}" for number, failure in sorted(failed.items())]
            what = "cases" if names is None else "files"
            raise ClusterError(f"{len(failed)} of {len(cases)} {what} failed. " + " ".join(lines[:10]))

    def predict(
        self, model: str | os.PathLike[str], paths: Sequence[str | os.PathLike[str]], read: Callable[[str], Any]
    ) -> Iterator[tuple[str, Any]]:
        """(path, labels) of every file, in order: ``read(path)`` gives X, and the model file predicts it on a worker.

        Model and files lie where all workers see them. A file that cannot be read or labelled does not keep others
        from being done: a ClusterError at the end names it; a second call with those files goes on.
        """
        names = [os.fspath(path) for path in paths]
        cases = [(name,) for name in names]
        for number, labels in self.each(predicted, cases, os.fspath(model), read, names=names):
            yield names[number], labels

    def __repr__(self) -> str:
        if self._crew is None:
            return f"Cluster({self.kind!r}, not entered)"
        return f"Cluster({self._crew.pool.name!r}, {self.n_workers} workers of {self.threads} threads)"


_loaded: dict[str, Any] = {}  # models of this worker, by file


def predicted(path: str, model: str, read: Callable[[str], Any]) -> Any:
    """In a worker: the labels of one file, by a model that is loaded once."""
    from importlib import import_module

    key = f"{model}:{os.path.getmtime(model)}"
    if key not in _loaded:
        _loaded.clear()
        _loaded[key] = import_module("crfield").load(model)
    return _loaded[key].predict(read(path))


def cluster(
    kind: str | Pool = "local",
    *,
    n_workers: int | None = None,
    threads: int = 1,
    address: str | None = None,
    wire: str = "float64",
    memory: float | None = None,
    numpy: bool = False,
    report_after: float = 60.0,
    timeout: float | None = None,
    options: dict[str, Any] | None = None,
) -> Cluster:
    """A block within which ``fit`` runs on many processes or machines: training on a cluster.

    Parameters
    ----------
    kind : "ray" or "local"
        Actors of a Ray cluster (``pip install 'crfield[ray]'``), or processes of this machine, which need nothing.
    n_workers : int, optional
        How many workers; by default one for each processor of the cluster.
    threads : int
        Threads of each worker.
    address : str, optional
        Of a Ray cluster: "auto" for the one that this machine belongs to, "ray://host:10001" for another; without it
        Ray is started on this machine. A Ray that runs in this process already is used as it is.
    wire : "float64" or "float32"
        How gradients travel; the value of the objective is always float64. Half the bytes, and a gradient of seven
        digits: enough for ``tol`` of 1e-4.
    memory : float, optional
        Bytes of packed data that a worker keeps in memory; shards beyond it are read in every evaluation. By default
        its share of half of what its node has free.
    numpy : bool
        Whether workers without compiled kernels are welcome.
    report_after, timeout : float
        Seconds without an answer until that is told, and, where given, until a worker counts as lost.
    options : dict, optional
        Of Ray's actors, such as ``{"resources": {"big": 1}}``.

    Examples
    --------
    >>> import os, tempfile
    >>> import crfield
    >>> parts = [([[["sun"], ["rain"]]], [["walk", "read"]])] * 3
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     dataset = crfield.encode_dataset(parts, os.path.join(folder, "weather"), shard_bytes=1)
    ...     with crfield.cluster("local", n_workers=2) as workers:
    ...         model = crfield.ChainCRF().fit(dataset)
    >>> model.predict([[["rain"]]])[0].tolist()
    ['read']
    """
    if isinstance(kind, str) and kind not in KINDS:
        raise InputError(f"cluster must be 'ray' or 'local', got {kind!r}.{did_you_mean(kind, KINDS)}")
    for name, value in (("n_workers", n_workers), ("threads", threads)):
        if value is not None:
            check_count(name, value)
    if wire not in WIRES:
        raise InputError(f"wire must be 'float64' or 'float32', got {wire!r}.")
    for name, number in (("memory", memory), ("report_after", report_after), ("timeout", timeout)):
        if number is not None and not (is_number(number) and number > 0):
            raise InputError(f"{name} must be a number > 0, got {number!r}.")
    if address is not None and kind != "ray":
        raise InputError(f"address={address!r} is that of a Ray cluster: write cluster('ray', address=…).")

    def make() -> Pool:
        if not isinstance(kind, str):
            return kind
        if kind == "ray":
            from crfield.training.cluster.on_ray import RayPool

            return RayPool(n_workers, threads=threads, address=address, options=options)
        from crfield.training.cluster.processes import ProcessPool

        return ProcessPool(n_workers or max(1, (os.cpu_count() or 1) // threads), threads=threads)

    return Cluster(kind, make, wire=wire, memory=memory, numpy=numpy, report_after=report_after, timeout=timeout)

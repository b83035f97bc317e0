"""`RayPool`: workers that are actors of a Ray cluster. The one file that imports ray.

Of Ray only actors, ``put``, ``get`` and ``wait`` are used, all of them as old as its version 2: nothing here depends
on its libraries for training or tuning. Actors are made with ``max_restarts=0``: a restart by Ray would build an
actor from arguments that may be gone by then, and would go on for ever where a worker dies while it loads; the driver
replaces them itself (`crfield.training.cluster.crew`). An answer is two objects, the small head and the arrays: the
driver learns at once how a call went, and fetches the arrays when their turn in the sum has come; until then they lie
where they were made.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from crfield.errors import ClusterError, InputError
from crfield.training.cluster.host import Answer, Body, Host
from crfield.training.cluster.pool import Call, WorkerLost

try:
    import ray
    from ray import exceptions as failures
except ImportError as missing:
    raise InputError(
        f"cluster('ray') needs Ray, which cannot be imported ({missing}). Install it: pip install 'crfield[ray]'."
    ) from None

LOST = (
    failures.RayActorError,
    failures.ObjectLostError,
    failures.OutOfMemoryError,
    failures.WorkerCrashedError,
    failures.NodeDiedError,
)


class _Actor:
    """A `Host` as an actor."""

    def __init__(self, threads: int) -> None:
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

        self.host = Host(threads=threads)
        self.limits = threadpool_limits(threads)

    def answer(self, verb: str, shared: tuple[Any, ...], *own: Any) -> Answer:
        """Head and body, as two objects."""
        head, body = self.host.answer(verb, *own, *shared)
        return head, tuple(body)


class RayPool:
    """Actors of a Ray cluster; see the module.

    ``address`` is that of ``ray.init``: None starts Ray on this machine, for this machine alone (or joins what
    RAY_ADDRESS names), "auto" joins the cluster that this machine belongs to, "ray://host:10001" one elsewhere. A Ray
    that runs already is used and left running. ``options`` are those of actors: ``{"resources": {"big": 1}}``.
    """

    name = "ray"

    def __init__(
        self,
        n_workers: int | None,
        *,
        threads: int = 1,
        address: str | None = None,
        options: dict[str, Any] | None = None,
        init: dict[str, Any] | None = None,
    ) -> None:
        self.threads, self._options, self._ours = threads, options or {}, not ray.is_initialized()
        if self._ours:
            self._join(address, n_workers, init or {})
        self.n_workers = n_workers or max(1, int(ray.cluster_resources().get("CPU", 1)) // threads)
        self._actors: dict[int, Any] = {}
        made = {"num_cpus": threads, "max_restarts": 0, "max_task_retries": 0, **self._options}
        self._remote = ray.remote(**made)(_Actor)

    def _join(self, address: str | None, n_workers: int | None, init: dict[str, Any]) -> None:
        chosen: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}
        if address is None and not os.environ.get("RAY_ADDRESS"):
            chosen |= {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
            if n_workers is not None:
                chosen["num_cpus"] = max(n_workers * self.threads, 1)
        elif address is not None:
            chosen["address"] = address
        if address is not None and address.startswith("ray://"):
            chosen = {"address": address}
        try:
            ray.init(**{**chosen, **init})
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            raise ClusterError(
                f"Ray cannot be joined at address={address!r}: {error} Is a cluster running there (ray start "
                "--head), and do both sides have the same versions of Python and Ray?"
            ) from error

    @property
    def pids(self) -> list[int]:
        """Numbers of the processes, by worker; of workers on this machine they are processes here."""
        refs = [self._actors[k].answer.options(num_returns=2).remote("hello", ())[0] for k in range(self.n_workers)]
        return [found["pid"] for found in ray.get(refs)]

    def start(self, worker: int) -> None:
        """A new actor; it is made while the driver goes on."""
        self.end(worker)
        self._actors[worker] = self._remote.remote(self.threads)

    def share(self, values: tuple[Any, ...]) -> Any:
        """Into the object store, once for all workers."""
        return ray.put(values)

    def send(self, worker: int, verb: str, own: tuple[Any, ...], shared: Any = None) -> Call:
        """A call of the actor."""
        actor = self._actors.get(worker)
        if actor is None:
            raise WorkerLost("it has ended")
        try:
            head, body = actor.answer.options(num_returns=2).remote(verb, () if shared is None else shared, *own)
        except LOST as error:
            raise WorkerLost(_words(error)) from error
        return Call(worker, (head, body))

    def done(self, calls: Sequence[Call], timeout: float) -> list[Call]:
        """Those whose heads are there; a lost one has an error in its place."""
        heads = [call.handle[0] for call in calls]
        if not ray.wait(heads, num_returns=1, timeout=timeout)[0]:
            return []
        ready = set(ray.wait(heads, num_returns=len(heads), timeout=0)[0])
        return [call for call in calls if call.handle[0] in ready]

    def head(self, call: Call) -> Any:
        """The head of the answer."""
        return _got(call.handle[0])

    def body(self, call: Call) -> Body:
        """The arrays: views of the object store, read-only."""
        found: Body = _got(call.handle[1])
        return found

    def end(self, worker: int) -> None:
        """Kill the actor."""
        actor = self._actors.pop(worker, None)
        if actor is not None:
            with suppress(Exception):
                ray.kill(actor)

    def close(self) -> None:
        """Kill all actors, and leave Ray if it was joined here."""
        for worker in list(self._actors):
            self.end(worker)
        if self._ours and ray.is_initialized():
            ray.shutdown()


def _got(ref: Any) -> Any:
    try:
        return ray.get(ref)
    except LOST as error:
        raise WorkerLost(_words(error)) from error
    except failures.RayTaskError as error:
        if isinstance(error.cause, MemoryError):
            raise WorkerLost("it ran out of memory") from error
        raise ClusterError(f"a worker failed: {error}") from error


def _words(error: Exception) -> str:
    """The kind of a failure and the first line of what Ray says of it."""
    return (
        f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no reason given'}"
    )

"""What a driver needs of a cluster: the protocol of pools, and the one that lives in this process.

A pool starts workers by number, sends them calls, and says which calls have an answer. That is all: who is replaced
when, what is built where and in which order results are added is decided once, for every pool, in
`crfield.training.cluster.crew`. A pool signals one thing by an exception, `WorkerLost`: that worker will not answer.

    InProcessPool   hosts in this process: no parallel work, but the whole protocol, and faults on demand, for tests
    ProcessPool     processes of this machine (`crfield.training.cluster.processes`)
    RayPool         actors of a Ray cluster (`crfield.training.cluster.on_ray`)
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from crfield.training.cluster.host import Answer, Body, Host


class WorkerLost(Exception):
    """A worker died, or what it answered is gone; says how it came to be known."""


@dataclass(eq=False)
class Call:
    """A call that was sent to a worker."""

    worker: int
    handle: Any = None  # the pool's own


class Pool(Protocol):
    """Workers that are started, called, waited for and ended by their numbers."""

    name: str

    @property
    def n_workers(self) -> int:
        """How many workers there are to be."""
        ...

    @property
    def threads(self) -> int:
        """Threads that a worker may use."""
        ...

    def start(self, worker: int) -> None:
        """Start a worker, or another one in the place of a lost one."""
        ...

    def share(self, values: tuple[Any, ...]) -> Any:
        """Arguments that several workers are to get: put where they can be had, once."""
        ...

    def send(self, worker: int, verb: str, own: tuple[Any, ...], shared: Any = None) -> Call:
        """A call, with arguments of its own in front of shared ones; WorkerLost if it cannot be sent."""
        ...

    def done(self, calls: Sequence[Call], timeout: float) -> list[Call]:
        """Those of the calls that are over, well or not; waits up to ``timeout`` seconds for the first."""
        ...

    def head(self, call: Call) -> Any:
        """The head of the answer; WorkerLost where there will be none."""
        ...

    def body(self, call: Call) -> Body:
        """The arrays of the answer; WorkerLost where they are gone. They may be gone with the next call."""
        ...

    def end(self, worker: int) -> None:
        """End a worker, whatever it is doing."""
        ...

    def close(self) -> None:
        """End all."""
        ...


@dataclass
class Faults:
    """What is to go wrong in an `InProcessPool`, by the number of the worker.

    >>> Faults(deaths={1: [4]}).deaths[1]
    [4]
    """

    deaths: dict[int, list[int]] = field(default_factory=dict)  # calls, counted from 0 for each worker, that kill it
    lost_bodies: dict[int, list[int]] = field(default_factory=dict)  # calls whose arrays are lost after the head came
    hangs: dict[int, int] = field(default_factory=dict)  # how often a worker is looked at in vain before it answers
    reports: dict[int, dict[str, Any]] = field(default_factory=dict)  # what it says of itself differently
    unable: set[int] = field(default_factory=set)  # workers that die whenever they are started
    out_of_memory: set[int] = field(default_factory=set)  # workers whose calls raise MemoryError


class InProcessPool:
    """Hosts in this process, called one after the other: for tests, and to see the protocol without a network.

    >>> pool = InProcessPool(2)
    >>> pool.start(0)
    >>> call = pool.send(0, "run", (sorted,), pool.share(((2, 1),)))
    >>> [pool.head(done) for done in pool.done([call], 1.0)]
    [[1, 2]]
    """

    name = "in-process"

    def __init__(self, n_workers: int, *, threads: int = 1, faults: Faults | None = None) -> None:
        self.n_workers, self.threads, self.faults = n_workers, threads, faults or Faults()
        self.hosts: dict[int, Host] = {}
        self.counts = dict.fromkeys(range(n_workers), 0)
        self.started: list[int] = []  # every start, in order
        self.ended: list[int] = []

    def start(self, worker: int) -> None:
        """A fresh host."""
        self.started.append(worker)
        self.hosts[worker] = Host(threads=self.threads)

    def share(self, values: tuple[Any, ...]) -> Any:
        """The values themselves."""
        return values

    def send(self, worker: int, verb: str, own: tuple[Any, ...], shared: Any = None) -> Call:
        """The call waits until it is asked after."""
        if worker not in self.hosts:
            raise WorkerLost("it is dead")
        return Call(worker, [self.counts[worker], verb, (*own, *(shared or ())), None])

    def done(self, calls: Sequence[Call], timeout: float) -> list[Call]:
        """All calls, but for those of workers that hang."""
        over = []
        for call in calls:
            left = self.faults.hangs.get(call.worker, 0)
            if left:
                self.faults.hangs[call.worker] = left - 1
            else:
                over.append(call)
        if not over:
            time.sleep(min(timeout, 0.01))
        return over

    def head(self, call: Call) -> Any:
        """The answer is made now; a death that was asked for happens here."""
        number, verb, arguments, answer = call.handle
        if answer is None:
            worker = call.worker
            number = self.counts[worker]
            self.counts[worker] += 1
            dies = number in self.faults.deaths.get(worker, ()) or worker in self.faults.unable
            if dies or worker not in self.hosts:
                self.hosts.pop(worker, None)
                raise WorkerLost("it was told to die")
            answer = self._answer(worker, verb, arguments)
            call.handle = [number, verb, arguments, answer]
        return answer[0]

    def _answer(self, worker: int, verb: str, arguments: tuple[Any, ...]) -> Answer:
        if worker in self.faults.out_of_memory and verb == "call":
            self.hosts.pop(worker, None)
            raise WorkerLost("it ran out of memory")
        head, body = self.hosts[worker].answer(verb, *arguments)
        if verb == "hello":
            head = {**head, "node": f"node-{worker}", **self.faults.reports.get(worker, {})}
        return head, body

    def body(self, call: Call) -> Body:
        """The arrays, unless they were to be lost."""
        lost = self.faults.lost_bodies.get(call.worker, [])
        if call.handle[0] in lost:
            lost.remove(call.handle[0])
            self.hosts.pop(call.worker, None)
            raise WorkerLost("its node is gone, and what it had answered with it")
        body: Body = call.handle[3][1]
        return body

    def end(self, worker: int) -> None:
        """The host is let go; the one that takes its place does not hang."""
        self.ended.append(worker)
        self.faults.hangs.pop(worker, None)
        self.hosts.pop(worker, None)

    def close(self) -> None:
        """All hosts are let go."""
        for worker in list(self.hosts):
            self.end(worker)

"""The driver's side of a cluster: workers that are checked when they start, watched, and replaced when they are lost.

Rules, the same for every pool:

- A worker that is lost is replaced by the driver: another one is started, what the lost one kept is built again, and
  only its call is repeated. One warning a loss. Three losses in a row without an answer end in an error that names
  the worker, its node and what it was working on: a worker that runs out of memory while it loads would otherwise be
  started for ever, without a word.
- A worker that does not answer is told of, after a minute and then ever more rarely; never a silent hang. With
  ``timeout`` it then counts as lost.
- Answers are handed on in the order of the workers, whatever the order in which they come: sums have one order, and
  the same number of workers gives the same bits, with or without losses.
- Every worker says at the start, and so does one that takes another's place, which version and which bodies of the
  kernels it has. Versions that differ are refused, and so are NumPy bodies unless they were asked for: a mixture
  would train, and take twenty times as long or give other answers.

Why the driver does this itself, and no cluster's own restarts: only it knows what a worker must hold, and who counts
the losses can also stop.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import crfield
from crfield.errors import ClusterError, ClusterWarning, InputError
from crfield.kernels.choice import outside
from crfield.training.cluster.host import Answer, Body, Failure
from crfield.training.cluster.pool import Call, Pool, WorkerLost

PATIENCE = 3  # losses of a worker in a row, without an answer, that end the work
POLL = 1.0  # seconds between two looks at the clock


@dataclass(eq=False)
class Kept:
    """Something that every worker holds a part of, so that a part can be built again."""

    function: Callable[..., Any]
    shared: tuple[Any, ...]
    own: Sequence[tuple[Any, ...]]  # by worker
    about: Sequence[str]  # what each part is, for messages
    parcel: Any = None


@dataclass(frozen=True)
class Traffic:
    """What has gone over the wire, and who was lost."""

    sent: int = 0  # bytes of arrays to workers
    received: int = 0
    losses: int = 0

    def plus(self, *, sent: int = 0, received: int = 0, losses: int = 0) -> Traffic:
        """With more of it.

        >>> Traffic(1).plus(sent=2).sent
        3
        """
        return Traffic(self.sent + sent, self.received + received, self.losses + losses)


@dataclass(eq=False)
class Crew:
    """The workers of a pool, as one; see the module.

    >>> from crfield.training.cluster.pool import InProcessPool
    >>> with Crew(InProcessPool(2)) as crew:
    ...     _ = crew.build("parts", list, ("ab", "cd"), about=["a and b", "c and d"])
    ...     sorted(crew.run(sorted, [("ba",), ("dc",)]))
    [(0, ['a', 'b']), (1, ['c', 'd'])]
    """

    pool: Pool
    numpy: bool = False  # whether NumPy bodies of the kernels are welcome
    report_after: float = 60.0  # seconds without an answer until that is told
    timeout: float | None = None  # seconds without an answer that make a worker a lost one
    reports: list[dict[str, Any]] = field(default_factory=list)
    traffic: Traffic = field(default_factory=Traffic)
    _kept: dict[str, Kept] = field(default_factory=dict)
    _losses: list[int] = field(default_factory=list)  # in a row, by worker
    _numbers: int = 0
    _begun: str = ""  # what is being built now, so that nobody builds it twice

    @property
    def n_workers(self) -> int:
        """How many workers there are."""
        return self.pool.n_workers

    def fresh_name(self, word: str) -> str:
        """A name under which nothing is kept yet."""
        self._numbers += 1
        return f"{word}-{self._numbers}"

    # ------------------------------------------------------------------ start and end

    def __enter__(self) -> Crew:
        self._losses = [0] * self.n_workers
        self.reports = [{"node": "?"} for _ in range(self.n_workers)]
        try:
            for worker in range(self.n_workers):
                self._try_to_start(worker)
            heads = self._answers([self._asked(k, "hello", ()) for k in range(self.n_workers)], self._hello_again)
            for worker, head in heads.items():
                self.reports[worker] = self._well(worker, head)
            self._check_reports()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all workers."""
        self._kept.clear()
        self.pool.close()

    def _check_reports(self) -> None:
        mine, known = crfield.__version__, {k: r for k, r in enumerate(self.reports) if "version" in r}
        other = [f"{self.who(k)} has {r['version']}" for k, r in known.items() if r["version"] != mine]
        if other:
            raise ClusterError(
                f"all workers must have the driver's version of crfield, {mine}: {_listed(other)}. Install the same "
                "version everywhere (pip install, or one image for all)."
            )
        slow = [self.who(k) for k, r in known.items() if r["body"] == "numpy"]
        if slow and not self.numpy:
            raise ClusterError(
                f"the compiled kernels of crfield are missing on {_listed(slow)}: NumPy bodies would take 20 to 100 "
                "times as long, and all others would wait. Install a wheel with compiled modules there, unset "
                "CRFIELD_KERNELS, or write cluster(…, numpy=True) to have it so."
            )
        levels = sorted({str(report["level"]) for report in known.values()})
        if len(levels) > 1:
            _warn(
                f"workers have processors of different levels ({', '.join(levels)}): sums are the same up to "
                "rounding, and not to the last bit where another worker takes over a part."
            )

    # ------------------------------------------------------------------ what workers hold

    def build(
        self,
        name: str,
        function: Callable[..., Any],
        own: Sequence[Any],
        *shared: Any,
        about: Sequence[str],
    ) -> list[tuple[Any, Body]]:
        """Every worker k makes ``function(*own[k], *shared)`` and keeps it under the name; what it tells of it.

        ``about`` says what each part is. Where workers answer with errors, all of them are listed in one.
        """
        rows = [entry if isinstance(entry, tuple) else (entry,) for entry in own]
        kept = Kept(function, shared, rows, about, self.pool.share(shared))
        self._kept[name] = kept
        calls = [self._asked(k, "build", (name, function, *rows[k]), kept.parcel) for k in range(self.n_workers)]
        again, self._begun = self._building(name), name
        try:
            heads = self._answers(calls, again)
        finally:
            self._begun = ""
        failed = {k: head for k, head in heads.items() if isinstance(head, Failure)}
        if failed:
            self.forget(name)
            raise next(iter(failed.values())).error(f"{_listed([self.who(k) for k in failed])} cannot begin")
        return [(heads[k], self._fetched(calls, k, again)) for k in range(self.n_workers)]

    def _building(self, name: str) -> Callable[[int], Call]:
        def build(worker: int) -> Call:
            kept = self._kept[name]
            return self.pool.send(worker, "build", (name, kept.function, *kept.own[worker]), kept.parcel)

        return build

    def forget(self, name: str) -> None:
        """The parts are let go, as far as workers can be told."""
        self._kept.pop(name, None)
        calls = []
        for worker in range(self.n_workers):
            try:
                calls.append(self.pool.send(worker, "forget", (name,)))
            except WorkerLost:
                continue
        if calls:
            self.pool.done(calls, 0.0)

    def call(
        self, name: str, method: str, *shared: Any, own: Sequence[tuple[Any, ...]] | None = None
    ) -> Iterator[Answer]:
        """(head, body) of ``method(*own[k], *shared)`` on every worker's part, in the order of the workers."""
        parcel = self.pool.share(shared)
        mine = own or [()] * self.n_workers

        def send(worker: int) -> Call:
            return self.pool.send(worker, "call", (name, method, *mine[worker]), parcel)

        size = sum(_bytes(value) for value in shared)
        self.traffic = self.traffic.plus(sent=self.n_workers * size + sum(_bytes(v) for row in mine for v in row))
        calls = [self._asked(k, "call", (name, method, *mine[k]), parcel) for k in range(self.n_workers)]
        heads: dict[int, Any] = {}
        for worker in range(self.n_workers):
            while worker not in heads:
                heads |= self._answers(calls, send, heads, until=worker)
            body = self._fetched(calls, worker, send, heads)
            self.traffic = self.traffic.plus(received=sum(_bytes(array) for array in body))
            yield self._well(worker, heads[worker]), body

    # ------------------------------------------------------------------ work that nobody keeps

    def run(
        self, function: Callable[..., Any], cases: Sequence[tuple[Any, ...]], *shared: Any
    ) -> Iterator[tuple[int, Any]]:
        """(number, function(*cases[number], *shared)) as they come; an error of a case is a `Failure` in its place.

        Whoever is done gets the next case. A case whose worker was lost is given out again; one that three workers
        were lost with ends in the error of the crew.
        """
        parcel, waiting = self.pool.share(shared), list(range(len(cases)))[::-1]
        running: dict[int, tuple[int, Call]] = {}  # by worker: number of the case, call

        def send(worker: int) -> Call:
            return self.pool.send(worker, "run", (function, *cases[running[worker][0]]), parcel)

        def give(worker: int) -> None:
            number = waiting.pop()
            running[worker] = (number, Call(worker))
            running[worker] = (number, self._asked(worker, "run", (function, *cases[number]), parcel))

        for worker in range(min(self.n_workers, len(cases))):
            give(worker)
        while running:
            calls = {worker: call for worker, (_, call) in running.items()}
            done = self._some(calls, send)
            for worker, call in calls.items():  # what was sent again after a loss
                running[worker] = (running[worker][0], call)
            for worker, head in done.items():
                number, _ = running.pop(worker)
                if waiting:
                    give(worker)
                yield number, head

    # ------------------------------------------------------------------ waiting, and replacing who is lost

    def who(self, worker: int) -> str:
        """What to call a worker in a message."""
        return f"worker {worker} on node {self.reports[worker]['node']}"

    def _well(self, worker: int, head: Any) -> Any:
        """The head, unless it is an error."""
        if isinstance(head, Failure):
            raise head.error(self.who(worker))
        return head

    def _asked(self, worker: int, verb: str, own: tuple[Any, ...], parcel: Any = None) -> Call:
        """A call that was sent; one to a dead worker is told of when its answer is asked for."""
        try:
            return self.pool.send(worker, verb, own, parcel)
        except WorkerLost as lost:
            return Call(worker, lost)

    def _answers(
        self,
        calls: list[Call],
        again: Callable[[int], Call],
        known: dict[int, Any] | None = None,
        *,
        until: int | None = None,
    ) -> dict[int, Any]:
        """Heads of the calls that are not known yet: all, or those that are there when worker ``until`` is."""
        found: dict[int, Any] = {}
        while True:
            left = {c.worker: c for c in calls if c.worker not in found and c.worker not in (known or {})}
            if not left or (until is not None and until in found):
                return found
            found |= self._some(left, again)
            for worker, call in left.items():
                calls[worker] = call

    def _some(self, calls: dict[int, Call], again: Callable[[int], Call]) -> dict[int, Any]:
        """Heads of at least one of the calls; those of lost workers are sent again, in place."""
        began, told = time.monotonic(), self.report_after
        while True:
            over = [call for call in calls.values() if isinstance(call.handle, WorkerLost)]
            over = over or self.pool.done(list(calls.values()), min(POLL, self.report_after / 2))
            heads: dict[int, Any] = {}
            for call in over:
                try:
                    if isinstance(call.handle, WorkerLost):
                        raise call.handle
                    heads[call.worker] = self.pool.head(call)
                    self._losses[call.worker] = 0
                except WorkerLost as lost:
                    calls[call.worker] = self._replaced(call.worker, lost, again)
            if heads:
                return heads
            waited = time.monotonic() - began
            if self.timeout is not None and waited > self.timeout:
                for worker in calls:
                    self.pool.end(worker)
                    silent = WorkerLost(f"it did not answer for {waited:.0f} s")
                    calls[worker] = self._replaced(worker, silent, again)
                began, told = time.monotonic(), self.report_after
            elif waited > told:
                told *= 2
                self._still_waiting(calls, waited)

    def _fetched(
        self,
        calls: list[Call],
        worker: int,
        again: Callable[[int], Call],
        heads: dict[int, Any] | None = None,
    ) -> Body:
        """The arrays of a worker's answer; asked for again where they are lost."""
        while True:
            try:
                return self.pool.body(calls[worker])
            except WorkerLost as lost:
                one = {worker: self._replaced(worker, lost, again)}
                found = self._some(one, again)
                calls[worker] = one[worker]
                if heads is not None:
                    heads.update(found)

    def _replaced(self, worker: int, lost: WorkerLost, again: Callable[[int], Call]) -> Call:
        """Another worker in the place of a lost one, with all that it kept, and its call sent again."""
        while True:
            self._count(worker, lost)
            try:
                self.pool.start(worker)
                self.reports[worker] = self._well(worker, self._alone(self.pool.send(worker, "hello", ())))
                self._check_reports()
                for name in [name for name in self._kept if name != self._begun]:
                    self._well(worker, self._alone(self._building(name)(worker)))
                return again(worker)
            except WorkerLost as another:
                lost = another

    def _alone(self, call: Call) -> Any:
        """The head of one call; WorkerLost is for the caller."""
        began, told = time.monotonic(), self.report_after
        while not self.pool.done([call], min(POLL, self.report_after / 2)):
            waited = time.monotonic() - began
            if self.timeout is not None and waited > self.timeout:
                self.pool.end(call.worker)
                raise WorkerLost(f"it did not answer for {waited:.0f} s")
            if waited > told:
                told *= 2
                self._still_waiting([call.worker], waited)
        return self.pool.head(call)

    def _still_waiting(self, workers: Iterable[int], seconds: float) -> None:
        _warn(f"still waiting for {_listed([self.who(worker) for worker in workers])} for {seconds:.0f} s.")

    def _try_to_start(self, worker: int) -> None:
        try:
            self.pool.start(worker)
        except WorkerLost as lost:
            self._count(worker, lost)
            self._try_to_start(worker)

    def _hello_again(self, worker: int) -> Call:
        return self.pool.send(worker, "hello", ())

    def _count(self, worker: int, lost: WorkerLost) -> None:
        """Note a loss; an error after too many in a row."""
        self._losses[worker] += 1
        self.traffic = self.traffic.plus(losses=1)
        held = [kept.about[worker] for kept in self._kept.values()]
        if self._losses[worker] >= PATIENCE:
            raise ClusterError(
                f"{self.who(worker)} was lost {PATIENCE} times in a row without an answer"
                f"{', with ' + _listed(held) if held else ''}: {lost}. Has the node enough memory, and is crfield "
                "installed there?"
            ) from lost
        _warn(f"{self.who(worker)} was lost ({lost}); another one takes over {_listed(held) or 'its work'}.")


def check_count(name: str, value: Any) -> None:
    """InputError unless it is a number of workers or threads.

    >>> check_count("n_workers", 0)
    Traceback (most recent call last):
    crfield.errors.InputError: n_workers must be an integer of at least 1, got 0.
    """
    if type(value) is not int or value < 1:
        raise InputError(f"{name} must be an integer of at least 1, got {value!r}.")


def _warn(message: str) -> None:
    """`ClusterWarning` at the line that called crfield."""
    warnings.warn(message, ClusterWarning, stacklevel=outside())


def _bytes(value: Any) -> int:
    return int(getattr(value, "nbytes", 0))


def _listed(names: Sequence[str], most: int = 5) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"

"""Work that is done at the same time: `run_each` in processes, `train_each` in threads.

This is the one place that starts processes.

Threads live inside kernels and share one interpreter, which is right for one large training and wrong for hundreds
of small ones: between kernels only one of them can run. Repetitions of an experiment share nothing, so each goes to a
process of its own, whole. Processes are spawned, not forked: they hold no copy of the parent's threads and locks, and
start the same on every system, at the price of importing the package once each. Each keeps to one thread, so that
``n_jobs`` processes use ``n_jobs`` processors.

Results come as they are ready, with the number of the case, so that the caller can show progress and save what is
done. When the caller stops listening, or Ctrl-C comes, cases that have not ended are dropped.

A few large trainings that share their data are the other case: the kernels let go of the interpreter's lock, so
threads are enough, and nothing is copied or pickled. Each training computes what it would compute alone. After
Ctrl-C, or an error in one of them, trainings that have not begun are left out, and those that can ask (`stopped`) end
soon.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from threading import Event
from typing import Any, TypeVar

from crfield.core.checks import integer

Found = TypeVar("Found")
Training = Callable[[Callable[[], bool]], Found]


def run_each(
    function: Callable[..., Any], cases: Sequence[tuple[Any, ...]], *, n_jobs: int = 1
) -> Iterator[tuple[int, Any]]:
    """(number, function(*cases[number])) for every case, in the order in which they end.

    With more than one job the function must be found by its module and name, and arguments and results must be plain
    values, for they travel between processes. An exception in a case ends the run.

    >>> sorted(run_each(divmod, [(7, 2), (9, 4)]))
    [(0, (3, 1)), (1, (2, 1))]
    """
    integer(1)("n_jobs", n_jobs)
    if n_jobs == 1 or len(cases) < 2:
        for number, case in enumerate(cases):
            yield number, function(*case)
        return
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from multiprocessing import active_children, get_context

    workers, strangers = min(n_jobs, len(cases)), set(active_children())
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_settle) as pool:
        waiting = {pool.submit(function, *case): number for number, case in enumerate(cases)}
        try:
            for done in as_completed(waiting):
                yield waiting[done], done.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in set(active_children()) - strangers:
                worker.terminate()  # nobody waits for what it is doing
            raise


def train_each(trainings: Sequence[Training[Found]], *, n_jobs: int) -> Iterator[tuple[int, Found]]:
    """Number and result of each training, in the order in which they are done.

    A training is called with a function that tells whether it should end.

    >>> sorted(train_each([lambda stopped, k=k: k * k for k in range(4)], n_jobs=2))
    [(0, 0), (1, 1), (2, 4), (3, 9)]
    """
    workers = max(1, min(n_jobs, len(trainings)))
    if workers == 1:
        for number, training in enumerate(trainings):
            yield number, training(lambda: False)
        return
    from concurrent.futures import ThreadPoolExecutor, as_completed

    stop = Event()
    with ThreadPoolExecutor(workers) as pool:
        running = {pool.submit(training, stop.is_set): number for number, training in enumerate(trainings)}
        try:
            for done in as_completed(running):
                yield running[done], done.result()
        except BaseException:
            stop.set()
            for future in running:
                future.cancel()
            raise


def _settle() -> None:
    """A worker leaves Ctrl-C to its parent, which then ends it, and keeps to one thread."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import scipy.linalg  # noqa: F401  (only libraries that are loaded can be limited)
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    threadpool_limits(1)

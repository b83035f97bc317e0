"""Work in processes: the one place, beside a cluster, that starts any.

Threads live inside kernels and share one interpreter, which is right for one large training and wrong for hundreds
of small ones: between kernels only one of them can run. Repetitions of an experiment share nothing, so each goes to a
process of its own, whole. Processes are spawned, not forked: they hold no copy of the parent's threads and locks, and
start the same on every system, at the price of importing the package once each. Each keeps to one thread, so that
``n_jobs`` processes use ``n_jobs`` processors.

Results come as they are ready, with the number of the case, so that the caller can show progress and save what is
done. When the caller stops listening, or Ctrl-C comes, cases that have not ended are dropped.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from crfield.errors import InputError


def run_each(
    function: Callable[..., Any], cases: Sequence[tuple[Any, ...]], *, n_jobs: int = 1
) -> Iterator[tuple[int, Any]]:
    """(number, function(*cases[number])) for every case, in the order in which they end.

    With more than one job the function must be found by its module and name, and arguments and results must be plain
    values, for they travel between processes. An exception in a case ends the run.

    >>> sorted(run_each(divmod, [(7, 2), (9, 4)]))
    [(0, (3, 1)), (1, (2, 1))]
    """
    if n_jobs < 1:
        raise InputError(f"n_jobs must be at least 1, got {n_jobs}.")
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


def _settle() -> None:
    """A worker leaves Ctrl-C to its parent, which then ends it, and keeps to one thread."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import scipy.linalg  # noqa: F401  (only libraries that are loaded can be limited)
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    threadpool_limits(1)

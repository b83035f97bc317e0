"""Trainings that do not depend on each other, at the same time.

The kernels let go of the interpreter's lock, so threads are enough, and nothing is copied or pickled. Each training
computes what it would compute alone. After Ctrl-C, or an error in one of them, trainings that have not begun are left
out, and those that can ask (`stopped`) come to an end soon.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from threading import Event
from typing import TypeVar

Found = TypeVar("Found")
Training = Callable[[Callable[[], bool]], Found]


def side_by_side(trainings: Sequence[Training[Found]], *, n_jobs: int) -> Iterator[tuple[int, Found]]:
    """Number and result of each training, in the order in which they are done.

    A training is called with a function that tells whether it should end.

    >>> sorted(side_by_side([lambda stopped, k=k: k * k for k in range(4)], n_jobs=2))
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

"""The rules of a crew, on the pool that lives in this process and loses workers when told to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import crfield
from crfield.errors import ClusterError, ClusterWarning, InputError, ModelFileError
from crfield.training.cluster.crew import Crew
from crfield.training.cluster.host import Answer, Failure
from crfield.training.cluster.pool import Faults, InProcessPool
from crfield.training.cluster.session import CURRENT


class Numbers:
    """A part that adds what it is given to its own numbers."""

    def __init__(self, own: list[int], factor: int) -> None:
        if not own:
            raise ModelFileError("there are no numbers.")
        self.own = np.array(own, dtype=float) * factor

    def told(self) -> Answer:
        return len(self.own), ()

    def plus(self, vector: np.ndarray) -> Answer:
        return float(self.own.sum()), (self.own[:1] + vector,)


def called(faults: Faults | None = None, n: int = 3, **options: Any) -> tuple[list[Any], Crew, InProcessPool]:
    """What three workers answer to four calls."""
    pool = InProcessPool(n, faults=faults)
    found = []
    with Crew(pool, **options) as crew:
        told = crew.build(
            "part", Numbers, [[k + 1, k + 2] for k in range(n)], 10, about=[f"part {k}" for k in range(n)]
        )
        assert [head for head, _ in told] == [2] * n
        for turn in range(4):
            found.append([(head, body[0].tolist()) for head, body in crew.call("part", "plus", np.full(2, turn))])
    return found, crew, pool


def test_answers_come_in_the_order_of_workers() -> None:
    found, crew, pool = called()
    assert found[2] == [(30.0, [12.0, 12.0]), (50.0, [22.0, 22.0]), (70.0, [32.0, 32.0])]
    assert pool.hosts == {}, "no worker is left behind"
    assert crew.traffic.sent == 4 * 3 * 16
    assert crew.traffic.received == 4 * 3 * 16
    assert crew.traffic.losses == 0


@pytest.mark.parametrize("worker", [0, 1, 2])
@pytest.mark.parametrize("call", range(6))
def test_a_worker_that_dies_is_replaced_and_only_its_call_repeated(worker: int, call: int) -> None:
    """At hello (0), while it builds (1), in the first and later calls (2 …)."""
    whole, _, _ = called()
    with pytest.warns(ClusterWarning, match=f"worker {worker} on node .* was lost .*told to die.*takes over"):
        found, crew, pool = called(Faults(deaths={worker: [call]}))
    assert found == whole
    assert crew.traffic.losses == 1
    assert pool.started == [0, 1, 2, worker]


def test_the_warning_names_what_is_taken_over() -> None:
    with pytest.warns(ClusterWarning, match=r"takes over part 1"):
        called(Faults(deaths={1: [4]}))


def test_arrays_that_are_lost_after_the_answer_are_asked_for_again() -> None:
    whole, _, _ = called()
    with pytest.warns(ClusterWarning, match=r"what it had answered"):
        found, _, _ = called(Faults(lost_bodies={0: [3], 2: [4]}))
    assert found == whole


def test_losses_that_are_not_in_a_row_are_borne() -> None:
    whole, _, _ = called()
    with pytest.warns(ClusterWarning):
        # dies in the first call, then (hello, build, call: 3, 4, 5) lives, dies in the next calls again
        found, crew, _ = called(Faults(deaths={1: [2, 6, 10, 14]}))
    assert found == whole
    assert crew.traffic.losses == 4


def asked_once(pool: InProcessPool, owns: Any = ([1], [2], [3]), method: str = "plus", between: Any = None) -> None:
    """Build parts, and call a method of them, twice if something is to happen between."""
    with Crew(pool) as crew:
        crew.build("part", Numbers, [(own,) for own in owns], 1, about=[f"part {k}" for k in range(len(owns))])
        list(crew.call("part", method, np.zeros(1)))
        if between is not None:
            between()
            list(crew.call("part", method, np.zeros(1)))


def test_three_losses_in_a_row_end_in_an_error_that_names_worker_node_and_part() -> None:
    faults = Faults(deaths={1: [2, 3, 4, 5, 6, 7]})
    pool = InProcessPool(3, faults=faults)
    words = r"worker 1 on node node-1 was lost 3 times in a row .*with part 1"
    with pytest.warns(ClusterWarning) as told, pytest.raises(ClusterError, match=words):
        asked_once(pool)
    assert len(told) == 2, "one warning a loss, and the last is the error"
    assert pool.hosts == {}


def test_a_worker_that_cannot_start_ends_in_an_error() -> None:
    with pytest.warns(ClusterWarning), pytest.raises(ClusterError, match=r"worker 2 .*3 times in a row"):
        called(Faults(unable={2}))


def test_out_of_memory_is_a_loss() -> None:
    with pytest.warns(ClusterWarning, match=r"out of memory"), pytest.raises(ClusterError, match=r"enough memory"):
        called(Faults(out_of_memory={0}))


def test_a_worker_that_hangs_is_told_of_and_waited_for() -> None:
    whole, _, _ = called()
    with pytest.warns(ClusterWarning, match=r"still waiting for worker 1 on node .* for \d+ s"):
        found, crew, _ = called(Faults(hangs={1: 20}), report_after=0.04)
    assert found == whole
    assert crew.traffic.losses == 0


def test_a_worker_that_hangs_for_too_long_is_a_lost_one() -> None:
    whole, _, _ = called()
    with pytest.warns(ClusterWarning, match=r"did not answer for"):
        found, crew, pool = called(Faults(hangs={1: 10**9}), report_after=10.0, timeout=0.1)
    assert found == whole
    assert crew.traffic.losses >= 1
    assert 1 in pool.ended


def test_versions_that_differ_are_refused() -> None:
    faults = Faults(reports={0: {"version": "0.0.1"}, 2: {"version": "0.0.2"}})
    words = (
        rf"driver's version of crfield, {crfield.__version__}: worker 0 on node node-0 has 0.0.1, worker 2 .* 0.0.2"
    )
    with pytest.raises(ClusterError, match=words):
        called(faults)


def test_numpy_bodies_are_refused_unless_asked_for() -> None:
    faults = Faults(reports={1: {"body": "numpy", "level": "numpy"}})
    with pytest.raises(ClusterError, match=r"missing on worker 1 on node node-1.*numpy=True"):
        called(faults)
    with pytest.warns(ClusterWarning, match=r"different levels"):
        called(faults, numpy=True)


def test_a_replacement_of_another_version_is_refused_too() -> None:
    faults = Faults(deaths={1: [3]})
    pool, changed = InProcessPool(2, faults=faults), {"version": "9.9.9"}
    with pytest.warns(ClusterWarning), pytest.raises(ClusterError, match=r"worker 1 .* has 9.9.9"):
        asked_once(pool, ([1], [2]), between=lambda: faults.reports.update({1: changed}))


def test_who_cannot_begin_is_listed() -> None:
    words = r"worker 0 on node node-0, worker 2 .* cannot begin: there are no numbers"
    with pytest.raises(ModelFileError, match=words):
        asked_once(InProcessPool(3), ([], [1], []))


def test_an_error_in_a_call_is_the_users_with_who_had_it() -> None:
    with pytest.raises(ClusterError, match=r"worker 0 .*AttributeError"):
        asked_once(InProcessPool(1), ([1],), "minus")


def divided(number: int, by: int) -> float:
    if number == 3:
        raise InputError("three is not divided.")
    return number / by


@pytest.mark.parametrize("deaths", [{}, {0: [1]}, {1: [1, 3]}])
def test_cases_are_given_out_again_when_a_worker_is_lost(deaths: dict[int, list[int]]) -> None:
    with Crew(InProcessPool(2, faults=Faults(deaths=deaths))) as crew:
        if deaths:
            with pytest.warns(ClusterWarning):
                found = dict(crew.run(divided, [(k,) for k in range(6)], 2))
        else:
            found = dict(crew.run(divided, [(k,) for k in range(6)], 2))
    assert found.pop(3) == Failure("InputError", "three is not divided.")
    assert found == {0: 0.0, 1: 0.5, 2: 1.0, 4: 2.0, 5: 2.5}


def test_cases_come_in_order_and_failed_ones_are_named_at_the_end() -> None:
    seen = []

    def look() -> None:
        with crfield.cluster(InProcessPool(2)) as cluster:
            for number, _ in cluster.each(divided, [(k,) for k in range(6)], 2):
                seen.append(number)

    with pytest.raises(ClusterError, match=r"1 of 6 cases failed. case 3"):
        look()
    assert seen == [0, 1, 2, 4, 5]


def test_a_block_ends_its_workers_also_after_ctrl_c() -> None:
    pool = InProcessPool(2)

    def interrupted() -> None:
        with crfield.cluster(pool):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert pool.hosts == {}
    assert CURRENT.get() is None


def test_blocks_do_not_nest() -> None:
    other = crfield.cluster(InProcessPool(1))
    with crfield.cluster(InProcessPool(1)), pytest.raises(ClusterError, match=r"in use already"):
        other.__enter__()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kind": "rai"}, "'ray' or 'local', got 'rai'. Did you mean 'ray'"),
        ({"n_workers": 0}, "n_workers must be an integer of at least 1"),
        ({"threads": 1.5}, "threads must be an integer"),
        ({"wire": "float16"}, "wire must be 'float64' or 'float32'"),
        ({"memory": -1}, "memory must be a number > 0"),
        ({"address": "auto"}, "address='auto' is that of a Ray cluster"),
    ],
)
def test_bad_options_are_refused_at_once(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        crfield.cluster(**options)

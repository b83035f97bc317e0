"""Workers in processes and on Ray: the same bits as in this process, also after SIGKILL, and nobody left behind.

One Ray for the whole file, on the loopback address alone, with four slots for workers, of which two are in use.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crfield
from crfield.errors import ClusterWarning
from crfield.storage.encoded import EncodedDataset
from crfield.training.cluster.pool import InProcessPool
from crfield.training.cluster.processes import ProcessPool, frames_of, read_frames, value_of, write_frames

RAY = importlib.util.find_spec("ray") is not None
OPTIONS: dict[str, Any] = {"solver": "lbfgs", "tol": 1e-6}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> EncodedDataset:
    phrases = crfield.make_phrases(80)
    X, y = [crfield.phrase_features(tokens) for tokens in phrases.tokens], phrases.labels
    path = tmp_path_factory.mktemp("encoded") / "phrases"
    return crfield.encode_dataset([(X, y)], path, shard_bytes=12_000)


@pytest.fixture(scope="module")
def expected(dataset: EncodedDataset) -> np.ndarray:
    with crfield.cluster(InProcessPool(2)):
        return crfield.ChainCRF(**OPTIONS).fit(dataset).coef_


@pytest.fixture(scope="module")
def running_ray() -> Iterator[Any]:
    if not RAY:
        pytest.skip("ray is not installed; pip install 'crfield[ray]' has it")
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    ray.init(
        num_cpus=4,
        include_dashboard=False,
        log_to_driver=False,
        configure_logging=False,
        object_store_memory=100_000_000,
        _node_ip_address="127.0.0.1",
    )
    yield ray
    ray.shutdown()


@pytest.fixture(params=["local", "ray"])
def kind(request: pytest.FixtureRequest) -> str:
    if request.param == "ray":
        request.getfixturevalue("running_ray")
    return str(request.param)


def test_bits_are_those_of_one_process_also_after_sigkill(
    kind: str, dataset: EncodedDataset, expected: np.ndarray
) -> None:
    began = threading.Event()

    def after(step: Any, weights: np.ndarray) -> None:
        if step.n_iter == 2:
            began.set()

    with crfield.cluster(kind, n_workers=2) as cluster:
        assert np.array_equal(crfield.ChainCRF(**OPTIONS).fit(dataset).coef_, expected)
        pids = cluster.crew.pool.pids  # type: ignore[attr-defined]

        def kill() -> None:
            began.wait(60.0)
            os.kill(pids[1], signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        with pytest.warns(ClusterWarning, match="worker 1 on node .* was lost"):
            model = crfield.ChainCRF(**OPTIONS, callback=after).fit(dataset)
        killer.join()
        assert model.history_[-1].n_losses == 1
        assert np.array_equal(model.coef_, expected)
        again = cluster.crew.pool.pids  # type: ignore[attr-defined]
        assert again[0] == pids[0]
        assert again[1] != pids[1]
    assert_gone([again[0], again[1]])


def test_data_in_memory_errors_and_cases(kind: str, dataset: EncodedDataset) -> None:
    """One block for several small things, since workers take seconds to start."""
    phrases = crfield.make_phrases(40)
    X, y = [crfield.phrase_features(tokens) for tokens in phrases.tokens], phrases.labels
    alone = crfield.ChainCRF(**OPTIONS).fit(X, y)
    with crfield.cluster(kind, n_workers=2, threads=1) as cluster:
        assert {report["version"] for report in cluster.workers} == {crfield.__version__}
        found = crfield.ChainCRF(**OPTIONS).fit(X, y)
        assert found.objective_ == pytest.approx(alone.objective_, rel=1e-5)
        assert [value for _, value in cluster.each(divmod, [(9, k) for k in (4, 2)])] == [(2, 1), (4, 1)]
        local = 3
        assert [value for _, value in cluster.each(lambda k: k * local, [(2,), (5,)])] == [6, 15]
        # a second block of the same kind cannot stand within; a second fit can
        assert crfield.ChainCRF(**OPTIONS).fit(dataset).converged_


def test_a_process_that_ends_while_it_is_written_to_is_lost(dataset: EncodedDataset) -> None:
    with crfield.cluster("local", n_workers=2) as cluster:
        pool: Any = cluster.crew.pool
        os.kill(pool.pids[0], signal.SIGKILL)
        time.sleep(0.2)
        with pytest.warns(ClusterWarning, match="its process ended"):
            assert crfield.ChainCRF(**OPTIONS).fit(dataset).converged_


def test_nobody_is_left_when_the_driver_is_killed(dataset: EncodedDataset, tmp_path: Path) -> None:
    """SIGKILL of the driver: its workers see the end of their input; its checkpoint takes the run to the same end."""
    script = tmp_path / "driver.py"
    script.write_text(
        "import sys, os, crfield\n"
        "path, checkpoint, stop = sys.argv[1:]\n"
        "def after(step, weights):\n"
        "    if step.n_iter == int(stop):\n"
        "        print(*cluster.crew.pool.pids, flush=True)\n"
        "        os.kill(os.getpid(), 9)\n"
        "options = {'solver': 'lbfgs', 'tol': 1e-6, 'checkpoint': checkpoint, 'checkpoint_every': 0}\n"
        "model = crfield.ChainCRF(callback=after, **options)\n"
        "with crfield.cluster('local', n_workers=2) as cluster:\n"
        "    print(repr(model.fit(crfield.EncodedDataset(path)).objective_))\n"
    )
    command = [sys.executable, str(script), dataset.path, str(tmp_path / "run")]
    killed = subprocess.run([*command, "9"], capture_output=True, text=True, timeout=120, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert_gone(list(map(int, killed.stdout.split())))
    done = subprocess.run([*command, "0"], capture_output=True, text=True, timeout=120, check=True)
    with crfield.cluster(InProcessPool(2)):
        whole = crfield.ChainCRF(**OPTIONS).fit(dataset)
    assert float(done.stdout) == whole.objective_


def test_ctrl_c_leaves_the_best_weights_and_no_worker(dataset: EncodedDataset) -> None:
    def after(step: Any, weights: np.ndarray) -> None:
        if step.n_iter == 5:
            raise KeyboardInterrupt

    with crfield.cluster("local", n_workers=2) as cluster:
        pids = cluster.crew.pool.pids  # type: ignore[attr-defined]
        with pytest.warns(crfield.errors.ConvergenceWarning, match="interrupted"):
            model = crfield.ChainCRF(**OPTIONS, callback=after).fit(dataset)
    assert model.stop_reason_ == "interrupted"
    assert_gone(pids)


def test_a_search_by_joblib_runs_on_ray(running_ray: Any) -> None:
    import joblib
    from ray.util.joblib import register_ray
    from sklearn.model_selection import GridSearchCV

    phrases = crfield.make_phrases(150)
    X, y = [crfield.phrase_features(tokens) for tokens in phrases.tokens], phrases.labels
    search = GridSearchCV(crfield.ChainCRF(tol=1e-3), {"l2": [0.1, 10.0]}, cv=2, refit=False)
    alone = search.fit(X, y).cv_results_["mean_test_score"]
    register_ray()
    with joblib.parallel_config(backend="ray", n_jobs=2):
        there = search.fit(X, y).cv_results_["mean_test_score"]
    assert np.array_equal(alone, there)


def test_penalties_are_chosen_on_the_cluster(kind: str) -> None:
    phrases = crfield.make_phrases(40)
    X, y = [crfield.phrase_features(tokens) for tokens in phrases.tokens], phrases.labels
    search = crfield.ChainCRFCV(crfield.ChainCRF(tol=1e-4), l2s=[10.0, 0.1], cv=3, scoring="log_likelihood")
    alone = search.fit(X, y).scores_
    with crfield.cluster(kind, n_workers=2):
        there = search.fit(X, y)
    assert np.array_equal(alone, there.scores_)
    assert "workers" in there.best_estimator_.plan_.reason


def test_frames_are_read_as_they_were_written(tmp_path: Path) -> None:
    value = {"a": np.arange(5.0), "b": (1, "two", np.zeros((0, 3)))}
    with open(tmp_path / "frames", "wb") as stream:
        write_frames(stream, frames_of(value))
    with open(tmp_path / "frames", "rb", buffering=0) as stream:
        found = value_of(read_frames(stream))
        assert found["a"].tolist() == value["a"].tolist()  # type: ignore[attr-defined]
        assert found["b"][2].shape == (0, 3)
        with pytest.raises(EOFError):
            read_frames(stream)


def test_what_a_worker_prints_is_not_taken_for_an_answer() -> None:
    pool = ProcessPool(1)
    with crfield.cluster(pool) as cluster:
        assert [value for _, value in cluster.each(loud, [(1,), (2,)])] == [2, 4]


def loud(number: int) -> int:
    print("not an answer", flush=True)
    return 2 * number


def assert_gone(pids: list[int], seconds: float = 20.0) -> None:
    """Whether all of the processes end within the time."""
    end = time.monotonic() + seconds
    left = list(pids)
    while left and time.monotonic() < end:
        left = [pid for pid in left if _runs(pid)]
        time.sleep(0.05)
    assert not left, "workers are left behind"


def _runs(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    try:
        return status.read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False

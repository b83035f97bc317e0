"""`ProcessPool`: workers that are processes of this machine.

Each is a fresh interpreter that serves one `Host` over its standard input and output. The user's script is not run
again in it, as it would be by `multiprocessing`, so no ``if __name__ == "__main__"`` is needed; what a worker gets is
sent to it. A thread of the driver reads what each worker answers, so that an answer is never waited for on one worker
while another's pipe is full.

Arrays travel as they are, beside the rest of a message and not inside it (protocol 5: Pitrou, PEP 574): a vector of
3.7 MB takes a few milliseconds each way. When the driver ends, however it ends, workers see the end of their input
and end too: nothing is left behind, also after ``kill -9``.
"""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from queue import Empty, Queue
from threading import Thread
from typing import IO, Any

from crfield.training.cluster.host import Body, Host
from crfield.training.cluster.pool import Call, WorkerLost

try:
    import cloudpickle  # type: ignore[import-untyped]
except ImportError:  # older versions of joblib, which scikit-learn needs, bring their own
    from joblib.externals import cloudpickle

Frames = list[Any]  # a pickle, and the buffers beside it
_PIPE = 1 << 20  # bytes that a pipe may hold, where the system allows
_START = "from crfield.training.cluster.processes import serve; serve()"


def frames_of(value: Any) -> Frames:
    """A value as bytes and the buffers of its arrays.

    >>> import numpy as np
    >>> frames = frames_of((1, np.ones(3)))
    >>> len(frames), value_of(frames)
    (2, (1, array([1., 1., 1.])))
    """
    buffers: list[Any] = []
    data = cloudpickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return [data, *(buffer.raw() for buffer in buffers)]


def value_of(frames: Frames) -> Any:
    """The value whose `frames_of` these are."""
    return cloudpickle.loads(frames[0], buffers=frames[1:])


def write_frames(stream: IO[bytes], frames: Frames) -> None:
    """Frames with their lengths in front."""
    sizes = [len(frame) if isinstance(frame, bytes | bytearray) else frame.nbytes for frame in frames]
    stream.write(struct.pack(f"<I{len(sizes)}Q", len(sizes), *sizes))
    for frame in frames:
        stream.write(frame)


def read_frames(stream: IO[bytes]) -> Frames:
    """Frames as `write_frames` wrote them; EOFError at the end."""
    (n,) = struct.unpack("<I", _exactly(stream, 4))
    sizes = struct.unpack(f"<{n}Q", _exactly(stream, 8 * n))
    return [_exactly(stream, size) for size in sizes]


def _exactly(stream: IO[bytes], size: int) -> bytearray:
    data = bytearray(size)
    view, at = memoryview(data), 0
    while at < size:
        got = stream.readinto(view[at:])  # type: ignore[attr-defined]
        if not got:
            raise EOFError
        at += got
    return data


class ProcessPool:
    """Workers in processes of this machine; see the module."""

    name = "local"

    def __init__(self, n_workers: int, *, threads: int = 1, environment: dict[str, str] | None = None) -> None:
        self.n_workers, self.threads, self._environment = n_workers, threads, environment or {}
        self._workers: dict[int, subprocess.Popen[bytes]] = {}
        self._arrived: Queue[tuple[int, Any, Frames | None]] = Queue()  # number, header, body
        self._answers: dict[int, tuple[Any, Frames] | WorkerLost] = {}  # by number of the call
        self._open: dict[int, tuple[int, int]] = {}  # calls without an answer: worker and its process
        self._numbers = count(1)

    @property
    def pids(self) -> list[int]:
        """Numbers of the processes, by worker."""
        return [self._workers[k].pid for k in range(self.n_workers)]

    def start(self, worker: int) -> None:
        """A new process, and a thread that reads its answers."""
        self.end(worker)
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        process = subprocess.Popen(
            [sys.executable, "-c", _START],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path, **self._environment},
        )
        assert process.stdin is not None
        assert process.stdout is not None
        _widen(process.stdin.fileno())
        _widen(process.stdout.fileno())
        self._workers[worker] = process
        Thread(target=self._read, args=(process,), daemon=True).start()
        with self._writing(worker):
            write_frames(process.stdin, frames_of(self.threads))

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        """In a thread: whatever the process answers goes into one queue, its end too."""
        assert process.stdout is not None
        stream: Any = process.stdout
        try:
            while True:
                header = value_of(read_frames(stream))
                self._arrived.put((process.pid, header, read_frames(stream)))
        except (EOFError, OSError, ValueError):
            self._arrived.put((process.pid, None, None))

    def share(self, values: tuple[Any, ...]) -> Any:
        """Made ready to be sent, once for all."""
        return frames_of(values)

    def send(self, worker: int, verb: str, own: tuple[Any, ...], shared: Any = None) -> Call:
        """Write the call to the worker's input."""
        process, number = self._workers.get(worker), next(self._numbers)
        if process is None or process.stdin is None or process.stdin.closed:
            raise WorkerLost("it has ended")
        message = frames_of((number, verb, own))
        with self._writing(worker):
            write_frames(process.stdin, message)
            write_frames(process.stdin, frames_of(()) if shared is None else shared)
            process.stdin.flush()
        self._open[number] = (worker, process.pid)
        return Call(worker, number)

    def _writing(self, worker: int) -> _Writing:
        return _Writing(self, worker)

    def done(self, calls: Sequence[Call], timeout: float) -> list[Call]:
        """Those that have an answer, or whose process has ended."""
        over = [call for call in calls if call.handle in self._answers]
        while not over:
            try:
                self._take(self._arrived.get(timeout=timeout))
            except Empty:
                return []
            over = [call for call in calls if call.handle in self._answers]
        with suppress(Empty):
            while True:
                self._take(self._arrived.get_nowait())
        return [call for call in calls if call.handle in self._answers]

    def _take(self, arrived: tuple[int, Any, Frames | None]) -> None:
        pid, header, body = arrived
        if header is None:
            for number, (_, owner) in list(self._open.items()):
                if owner == pid:
                    del self._open[number]
                    self._answers[number] = WorkerLost("its process ended")
            return
        number, head = header
        if self._open.pop(number, None) is not None and body is not None:
            self._answers[number] = (head, body)

    def head(self, call: Call) -> Any:
        """The head; of a call that nobody fetches the body of, the rest is dropped with the next answer."""
        found = self._answers[call.handle]
        if isinstance(found, WorkerLost):
            del self._answers[call.handle]
            raise found
        return found[0]

    def body(self, call: Call) -> Body:
        """The arrays."""
        found = self._answers.pop(call.handle)
        assert not isinstance(found, WorkerLost)
        made: Body = value_of(found[1])
        return made

    def end(self, worker: int) -> None:
        """Kill the process, if it still runs."""
        process = self._workers.pop(worker, None)
        if process is None:
            return
        process.kill()
        self._put_away(process)

    def close(self) -> None:
        """End of input for all; who has not gone after two seconds is killed."""
        processes, self._workers = list(self._workers.values()), {}
        for process in processes:
            with suppress(OSError, ValueError):
                process.stdin.close()  # type: ignore[union-attr]
        for process in processes:
            try:
                process.wait(2.0)
            except subprocess.TimeoutExpired:
                process.kill()
            self._put_away(process)
        self._answers.clear()
        self._open.clear()

    def _put_away(self, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        with suppress(OSError, ValueError):
            process.stdin.close()  # type: ignore[union-attr]


class _Writing:
    """A message is written whole or its worker is lost: half of one, after Ctrl-C, would garble all that follow."""

    def __init__(self, pool: ProcessPool, worker: int) -> None:
        self.pool, self.worker = pool, worker

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if error is None:
            return
        self.pool.end(self.worker)
        if isinstance(error, OSError | ValueError):
            raise WorkerLost("its process ended") from error


def _widen(pipe: int) -> None:
    """A larger buffer, so that a vector goes through a pipe in fewer turns."""
    try:
        import fcntl

        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE)
    except (ImportError, AttributeError, OSError):
        return


def serve() -> None:
    """The main function of a worker: answer calls until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's
    source: Any = os.fdopen(os.dup(0), "rb", buffering=0)
    sink = os.fdopen(os.dup(1), "wb", buffering=1 << 16)
    os.dup2(2, 1)  # whatever prints must not print into the answers
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    try:
        threads = value_of(read_frames(source))
        host = Host(threads=threads)
        threadpool_limits(threads)
        while True:
            number, verb, own = value_of(read_frames(source))
            shared = value_of(read_frames(source))
            head, body = host.answer(verb, *own, *shared)
            write_frames(sink, frames_of((number, head)))
            write_frames(sink, frames_of(body))
            sink.flush()
    except (EOFError, BrokenPipeError):
        return

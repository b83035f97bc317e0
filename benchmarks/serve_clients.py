"""Clients of the benchmark of the server, in a process of their own: bounded in number, and to this machine alone.

Each connection sends a request, waits for the whole answer, notes how long that took and whether the labels are those
expected, and sends the next. Requests are made and expected labels written as JSON before the clock starts.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.table import quantile


class Client(asyncio.Protocol):
    """One connection."""

    def __init__(self, job: Job) -> None:
        self.job, self.buffer = job, b""
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        """Send the first request."""
        self.transport = transport
        self.next()

    def next(self) -> None:
        """Send the next request, or end."""
        job = self.job
        if job.sent >= job.count:
            self.transport.close()
            if not self.done.done():
                self.done.set_result(None)
            return
        self.number = job.sent % len(job.requests)
        job.sent += 1
        self.began = time.perf_counter()
        self.transport.write(job.requests[self.number])

    def data_received(self, data: bytes) -> None:
        """Note an answer that is whole."""
        self.buffer += data
        head, mark, body = self.buffer.partition(b"\r\n\r\n")
        if not mark:
            return
        length = int(head.lower().rpartition(b"content-length:")[2].partition(b"\r\n")[0])
        if len(body) < length:
            return
        self.job.times.append(time.perf_counter() - self.began)
        self.job.failed += b" 200 " not in head[:20]
        expected = self.job.expected
        self.job.wrong += expected is not None and not body.endswith(expected[self.number])
        self.buffer = b""
        self.next()

    def connection_lost(self, error: Exception | None) -> None:
        """A connection that the server closed is an error."""
        if not self.done.done():
            self.job.failed += 1
            self.done.set_result(None)


class Job:
    """The requests, what is expected, and what came."""

    def __init__(self, told: dict[str, Any]) -> None:
        self.port, self.count, self.clients = told["port"], told["count"], told["clients"]
        self.requests = [self._request(told["path"], body) for body in told["bodies"]]
        labels = told["labels"]
        self.expected = None if labels is None else [self._labels(own) for own in labels]
        self.times: list[float] = []
        self.sent = self.failed = self.wrong = 0

    def _request(self, path: str, body: str | None) -> bytes:
        host = f"Host: 127.0.0.1:{self.port}\r\n"
        if body is None:
            return f"GET {path} HTTP/1.1\r\n{host}\r\n".encode()
        sent = body.encode()
        head = f"POST {path} HTTP/1.1\r\n{host}Content-Type: application/json\r\nContent-Length: {len(sent)}\r\n\r\n"
        return head.encode() + sent

    @staticmethod
    def _labels(own: Any) -> bytes:
        return b'"labels":' + json.dumps(own, separators=(",", ":")).encode() + b"}"

    async def run(self) -> float:
        """Seconds until all requests are answered."""
        loop = asyncio.get_running_loop()
        began = time.perf_counter()
        pairs = [
            await loop.create_connection(lambda: Client(self), "127.0.0.1", self.port) for _ in range(self.clients)
        ]
        await asyncio.gather(*(client.done for _, client in pairs))
        return time.perf_counter() - began


def main() -> None:
    """Run the requests of the file named on the command line."""
    job = Job(json.loads(Path(sys.argv[1]).read_text()))
    seconds = asyncio.run(asyncio.wait_for(job.run(), 200))
    told = {"seconds": seconds, "failed": job.failed, "wrong": job.wrong, "answers": len(job.times)}
    print(json.dumps(told | {"p50": quantile(job.times, 0.5), "p99": quantile(job.times, 0.99)}))


if __name__ == "__main__":
    main()

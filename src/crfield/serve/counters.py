"""What a server has done, as text for Prometheus: requests by route and status, their time, the process itself."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter

_HELP = {
    "crfield_requests_total": ("counter", "Requests answered, by route and status."),
    "crfield_request_seconds_sum": ("counter", "Seconds from the head of a request to its answer, by route."),
    "crfield_steps_total": ("counter", "Steps of sequences that were labelled."),
    "crfield_model_version": ("gauge", "How often a model was loaded."),
    "process_cpu_seconds_total": ("counter", "Processor time of the server, user and system."),
    "process_resident_memory_bytes": ("gauge", "Memory of the server."),
}


class Counters:
    """Counts of one server; all of them are changed on its event loop alone.

    >>> counters = Counters(["/healthz"])
    >>> counters.count("/healthz", 200, 0.001)
    >>> print(counters.text({"tags": 1}).splitlines()[2])
    crfield_requests_total{route="/healthz",status="200"} 1
    """

    def __init__(self, routes: list[str]) -> None:
        self.routes = frozenset(routes)
        self.requests: Counter[tuple[str, int]] = Counter()
        self.seconds: Counter[str] = Counter()
        self.steps = 0

    def count(self, path: str, status: int, seconds: float) -> None:
        """Note a request; paths that are no routes are one, so that nobody can make the table grow."""
        route = path if path in self.routes else "other"
        self.requests[route, status] += 1
        self.seconds[route] += seconds  # type: ignore[assignment]

    def text(self, versions: dict[str, int]) -> str:
        """All of it in Prometheus' text format."""
        rows: dict[str, list[tuple[str, object]]] = {
            "crfield_requests_total": [
                (f'{{route="{route}",status="{status}"}}', count)
                for (route, status), count in sorted(self.requests.items())
            ],
            "crfield_request_seconds_sum": [
                (f'{{route="{route}"}}', f"{seconds:.6f}") for route, seconds in sorted(self.seconds.items())
            ],
            "crfield_steps_total": [("", self.steps)],
            "crfield_model_version": [(f'{{model="{_quoted(name)}"}}', v) for name, v in versions.items()],
            "process_cpu_seconds_total": [("", f"{time.process_time():.6f}")],
            "process_resident_memory_bytes": [("", _resident())],
        }
        lines = []
        for name, (kind, words) in _HELP.items():
            lines += [f"# HELP {name} {words}", f"# TYPE {name} {kind}"]
            lines += [f"{name}{labels} {value}" for labels, value in rows[name]]
        return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _resident() -> int:
    """Bytes of memory that the process has now, where the system tells."""
    if sys.platform != "linux":
        return 0
    from crfield.storage.files import read_bytes

    return int(read_bytes("/proc/self/statm").split()[1]) * os.sysconf("SC_PAGE_SIZE")

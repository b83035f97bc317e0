"""What runs in a worker of a cluster: a `Host` that keeps parts of a problem and answers calls about them.

A host knows nothing of what it keeps. The driver *builds* a part under a name (a function that makes it, found by its
module, and arguments), *calls* methods of it, *runs* functions that keep nothing, and tells it to *forget*. An answer
has two pieces: a small head, which tells how it went, and a body of arrays, which may stay where it is until the
driver wants it. An error of ours, such as a file that is missing, is an answer too (`Failure`): the worker is well
and the driver decides. Only a worker that dies, or runs out of memory, is lost.
"""

from __future__ import annotations

import os
import platform
import socket
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from crfield import errors
from crfield.storage.limits import free_memory

Body = tuple[np.ndarray, ...]
Answer = tuple[Any, Body]


@dataclass(frozen=True)
class Failure:
    """An error that a worker answers with: the name of its class, and its words.

    >>> Failure("ModelFileError", "the shard is missing.").error("worker 1")
    ModelFileError('worker 1: the shard is missing.')
    """

    kind: str
    words: str

    def error(self, who: str) -> errors.CrfieldError:
        """The same error for the user, with who had it."""
        kind = getattr(errors, self.kind, None)
        if not (isinstance(kind, type) and issubclass(kind, errors.CrfieldError)):
            kind = errors.ClusterError
        made: errors.CrfieldError = kind(f"{who}: {self.words}")
        return made


class Host:
    """Parts of problems by name, and the calls about them.

    >>> host = Host(threads=1)
    >>> host.answer("build", "numbers", list, (3, 1, 2))
    (None, ())
    >>> host.answer("run", sorted, (3, 1, 2))
    ([1, 2, 3], ())
    """

    def __init__(self, *, threads: int = 1) -> None:
        self.threads, self.kept = threads, dict[str, Any]()

    def answer(self, verb: str, *arguments: Any) -> Answer:
        """What a call comes to; errors of ours are answers."""
        verbs: dict[str, Callable[..., Answer]] = {
            "hello": self._hello,
            "build": self._build,
            "call": self._call,
            "run": self._run,
            "forget": self._forget,
        }
        try:
            return verbs[verb](*arguments)
        except MemoryError:
            raise  # as good as dead: whoever holds this host says so
        except errors.CrfieldError as error:
            return Failure(type(error).__name__, str(error)), ()
        except Exception as error:
            told = traceback.format_exc(limit=-4)
            return Failure("ClusterError", f"{type(error).__name__}: {error}\n{told}"), ()

    def _hello(self) -> Answer:
        return report(self.threads), ()

    def _build(self, name: str, function: Callable[..., Any], *arguments: Any) -> Answer:
        self.kept[name] = made = function(*arguments)
        told = getattr(made, "told", None)
        return (None, ()) if told is None else told()

    def _call(self, name: str, method: str, *arguments: Any) -> Answer:
        made: Answer = getattr(self.kept[name], method)(*arguments)
        return made

    def _run(self, function: Callable[..., Any], *arguments: Any) -> Answer:
        return function(*arguments), ()

    def _forget(self, name: str) -> Answer:
        self.kept.pop(name, None)
        return None, ()


def report(threads: int) -> dict[str, Any]:
    """What a worker says of itself when it starts.

    >>> sorted(report(1))
    ['body', 'level', 'memory', 'node', 'numpy', 'pid', 'python', 'threads', 'version']
    """
    import crfield
    from crfield.kernels import choice

    return {
        "version": crfield.__version__,
        "body": choice.chosen(),
        "level": choice.level(),
        "threads": threads,
        "node": socket.gethostname(),
        "pid": os.getpid(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "memory": free_memory(),
    }

"""``--cluster`` and ``--workers``: where a verb runs.

    --cluster local              processes of this machine
    --cluster ray                Ray, started on this machine, or the one that RAY_ADDRESS names
    --cluster auto               the Ray cluster that this machine belongs to
    --cluster ray://host:10001   a Ray cluster elsewhere

Threads of a worker are those of ``--threads``, one by default. Files lie where all workers see them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from crfield.cli.options import RUN
from crfield.training.cluster.session import Cluster, cluster

ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="WHERE",
        help="Run on a cluster: local (processes of this machine), ray, auto, or ray://HOST:PORT.",
        rich_help_panel=RUN,
    ),
]
WorkersOption = Annotated[
    int | None,
    typer.Option("--workers", min=1, metavar="N", help="Workers of the cluster.", rich_help_panel=RUN),
]


@contextmanager
def on_cluster(where: str | None, workers: int | None, threads: int | None) -> Iterator[Cluster | None]:
    """The block of the cluster that was named; a block without one where none was."""
    if where is None:
        if workers is not None:
            raise typer.BadParameter("--workers are those of a --cluster: name one, such as --cluster local.")
        yield None
        return
    known = where in ("local", "ray", "auto") or where.startswith("ray://")
    if not known:
        raise typer.BadParameter(f"--cluster is local, ray, auto or ray://HOST:PORT, got {where!r}.")
    address = None if where in ("local", "ray") else where
    kind = "local" if where == "local" else "ray"
    own = 1 if threads is None or threads < 1 else threads
    with cluster(kind, n_workers=workers, threads=own, address=address) as block:
        yield block

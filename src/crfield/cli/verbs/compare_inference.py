"""``crfield compare-inference``: one model, all engines; is the model wrong, or the inference?

The scores come from a saved model and labelled data, or from ``--demo grid``: small noisy grids that were
drawn from the very scores they are judged with, so that labels chosen by exact marginals are the best there are.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import numpy as np
import typer

import crfield
from crfield.cli import reading
from crfield.cli.messages import emit, say
from crfield.cli.model import as_tagger
from crfield.cli.options import FormatOption, Json, LabelColumnOption, OneThread, Seed
from crfield.cli.paths import READS
from crfield.cli.pictures import PlotOption, check_picture, draw
from crfield.cli.reading import Format
from crfield.core.graphs import Graphs
from crfield.core.potentials import Potentials
from crfield.data.graphs.graph import Graph
from crfield.errors import InputError
from crfield.estimators.base.fitted import fitted_of
from crfield.estimators.graph.crf import GraphCRF
from crfield.estimators.graph.model import GraphModel
from crfield.inference.graphs.catalogue import ENGINES, engine_class
from crfield.report.comparisons.inference import compare_inference as compare
from crfield.report.displays.inference import plot_inference_comparison
from crfield.simulate.fields import make_potts_grid
from crfield.storage.exchange import read_graphs

_GRIDS = 20


class Demo(StrEnum):
    """Worlds that need no files."""

    grid = "grid"


def compare_inference(
    model: Annotated[str | None, typer.Argument(metavar="MODEL", help="The model file."), READS] = None,
    data: Annotated[
        list[str] | None,
        typer.Argument(metavar="DATA", help="Labelled files (graphs: JSON lines); - for standard input."),
        READS,
    ] = None,
    *,
    demo: Annotated[
        Demo | None,
        typer.Option(metavar="WORLD", help=f"Instead of model and data: a world of our own ({', '.join(Demo)})."),
    ] = None,
    engines: Annotated[
        str | None,
        typer.Option(metavar="A,B,…", help=f"Which engines: {', '.join(ENGINES)}.", show_default="all"),
    ] = None,
    plot: PlotOption = None,
    time_limit: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Start no further engine after so much CPU time.")
    ] = 60.0,
    format: FormatOption = Format.auto,
    label_column: LabelColumnOption = -1,
    threads: OneThread = 1,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Ask every engine about the same scores: accuracy, marginals against exact ones, log Z, time.

    If even the exact answer is bad, the model is at fault; if it is good, an engine that is worse is.
    """
    check_picture(plot)
    chosen = None if engines is None else [name.strip() for name in engines.split(",") if name.strip()]
    for name in chosen or ():
        engine_class(name)
    if demo is not None:
        if model is not None or data:
            raise typer.BadParameter("--demo stands alone: leave out the model and the data files.")
        potentials, truth = _grid(seed)
    elif model is None or not data:
        raise typer.BadParameter("give a model and labelled data, or --demo grid.")
    else:
        loaded = crfield.load(model)
        if isinstance(loaded, GraphCRF):
            potentials, truth = _graph_scores(loaded, data)
        else:
            crf, reads = as_tagger(loaded, model, "potentials", threads=threads)
            examples = reading.read_for(reads, data, asked=format, label_column=label_column)
            potentials = crf.potentials(examples.X)
            truth = _codes(crf.classes_, examples.y)
    comparison = compare(potentials, truth=truth, engines=chosen, time_limit=time_limit, n_jobs=threads)
    if plot is not None:
        draw(plot_inference_comparison(comparison), plot)
    if as_json:
        emit(comparison.to_dict())
    else:
        say(comparison)


def _graph_scores(model: GraphCRF, files: list[str]) -> tuple[Potentials, np.ndarray]:
    """Scores of graphs in files of JSON lines, and the codes of their labels."""
    graphs: list[Graph] = []
    labels: list[Any] = []
    for file in files:
        some, known = read_graphs(file)
        if known is None:
            raise InputError(f"{file} holds graphs without labels; engines are compared on labelled ones.")
        graphs += some
        labels += known
    fitted: GraphModel = fitted_of(model)
    potentials, batch = fitted.potentials(graphs)
    codes, _ = fitted.labels.encode(labels, batch)
    if (codes < 0).any():
        raise InputError("some nodes have no label of their own; engines are compared where the truth is known.")
    return potentials, codes


def _codes(classes: np.ndarray, y: list[np.ndarray]) -> np.ndarray:
    """(N,) codes of the labels; those that the model does not have get a code of their own, which is never right."""
    code = {str(label): k for k, label in enumerate(classes.tolist())}
    return np.array([code.get(str(label), len(code)) for labels in y for label in labels.tolist()], dtype=np.int64)


def _grid(seed: int) -> tuple[Potentials, np.ndarray]:
    """Several grids in one batch: a single small one says little about an engine."""
    grids = [make_potts_grid(random_state=rng) for rng in np.random.default_rng(seed).spawn(_GRIDS)]
    size = grids[0].labels.size
    pairs = np.concatenate([grid.pairs + k * size for k, grid in enumerate(grids)])
    graphs = Graphs(np.arange(_GRIDS + 1) * size, pairs[:, 0], pairs[:, 1])
    potentials = Potentials(np.concatenate([grid.node for grid in grids]), grids[0].edge[None], graphs)
    return potentials, np.concatenate([grid.labels.ravel() for grid in grids])

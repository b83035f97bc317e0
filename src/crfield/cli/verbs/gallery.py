"""``crfield gallery``: the models of `docs/gallery.md` trained and asked, tables printed, pictures drawn.

Four small models of graphs. Each function makes its data, trains, and returns what the page shows: `Findings` and, by
name, functions that draw a figure. All of it runs in about a minute; nothing is chosen to look well beyond the sizes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
import typer

from crfield.cli.messages import emit, offered, one_of, say
from crfield.cli.options import Json, Seed
from crfield.cli.paths import FILLS
from crfield.cli.pictures import draw
from crfield.core.semiring import Semiring
from crfield.data.graphs.builders import edge_list
from crfield.data.graphs.graph import Edges, Graph
from crfield.estimators.chain.crf import ChainCRF
from crfield.estimators.graph.crf import GraphCRF
from crfield.estimators.graph.factorial import FactorialCRF
from crfield.estimators.graph.grid import GridCRF
from crfield.inference.graphs.catalogue import engine_named
from crfield.report.displays.inference import plot_layers, plot_marginals_grid
from crfield.report.findings import Findings
from crfield.simulate.fields import make_noisy_images, make_tags
from crfield.simulate.wearable import make_wearable_episodes

Shown = tuple[Findings, dict[str, Callable[[], Any]]]


def denoising(random_state: int = 0) -> Shown:
    """Noisy binary images: the pixel alone, then the grid, asked with several engines.

    The noise is bimodal, so that no threshold tells the labels apart; the features say into which of sixteen bins the
    intensity falls.
    """
    made = make_noisy_images(12, (48, 48), n_bases=4, random_state=random_state)
    edges = np.linspace(0.0, 0.7, 15)
    X = [np.eye(16)[np.searchsorted(edges, image)] for image in made.images]  # (48, 48, 16) each
    y = list(made.labels)
    train, test = slice(0, 8), slice(8, 12)
    flat, codes = [x.reshape(-1, 16) for x in X], [t.ravel() for t in y]
    alone = ChainCRF(transition_pairs="none", boundaries=False).fit(flat[train], codes[train])
    rows: list[tuple[Any, ...]] = [("each pixel alone", alone.score(flat[test], codes[test]), None)]
    model = GridCRF(objective="pseudo_likelihood").fit(X[train], y[train])
    pictures = {
        "seen": made.images[8] / made.images[8].max(),
        "truth": y[8],
        "pixel alone": alone.predict_proba(flat[8:9])[0][:, 1].reshape(48, 48),
    }
    scores, truth = model.potentials(X[test]), np.concatenate(codes[test])
    for name in ("loopy", "tree_reweighted", "mean_field", "gibbs"):
        beliefs = engine_named(name).infer(scores, Semiring.LOG)
        rows.append((f"grid, {name}", float((beliefs.node.argmax(axis=1) == truth).mean()), beliefs.converged))
        pictures[name] = beliefs.node[: 48 * 48, 1].reshape(48, 48)
    best = engine_named("cuts").infer(scores, Semiring.MAX)
    rows.append(("grid, best labelling (cuts)", float((best.node.argmax(axis=1) == truth).mean()), best.exact))
    pictures["best labelling"] = best.node[: 48 * 48, 1].reshape(48, 48)
    found = Findings("image denoising", ("model", "pixels right", "converged"), tuple(rows))
    return found, {"denoising": lambda: plot_marginals_grid(pictures)}


def skip_chain(random_state: int = 0) -> Shown:
    """Names that occur twice in a text: their label is told by a cue at one place and wanted at the other.

    Texts are lists of words. A name is a person or a place; only one of its two mentions stands beside a word that
    tells which ("Mr", "in"). A chain cannot carry that to the other mention; an edge between equal names can (Sutton
    & McCallum 2004, *Collective segmentation and labeling of distant entities*).
    """
    rng = np.random.default_rng(random_state)
    graphs, labels = [], []
    for _ in range(160):
        words: list[str] = []
        truth: list[str] = []
        first: dict[str, int] = {}
        for name, person, told in zip(rng.permutation(40)[:5], rng.random(5) < 0.5, rng.random(5) < 0.5):
            for mention in (0, 1):
                cue = ("mr" if person else "in") if mention == int(told) else "the"
                words += [cue, f"name{name}", *rng.choice(["went", "saw", "by", "and", "then"], 2)]
                truth += ["O", "PER" if person else "LOC", "O", "O"]
        order = rng.permutation(len(words) // 4)
        words = [word for k in order for word in words[4 * k : 4 * k + 4]]
        truth = [label for k in order for label in truth[4 * k : 4 * k + 4]]
        pairs = []
        for place, word in enumerate(words):
            if word.startswith("name"):
                if word in first:
                    pairs.append((first[word], place))
                first[word] = place
        features = [
            {"word": "name" if word.startswith("name") else word, "before": "" if t == 0 else words[t - 1]}
            for t, word in enumerate(words)
        ]
        following = [(t, t + 1) for t in range(len(words) - 1)]
        graphs.append(Graph(features, {"next": following, "same": Edges(np.array(pairs), symmetric=True)}))
        labels.append(truth)
    chains = [Graph(graph.nodes, {"next": graph.edges["next"]}) for graph in graphs]
    rows: list[tuple[Any, ...]] = []
    for name, X in (("chain", chains), ("skip-chain", graphs)):
        model = GraphCRF(l2=0.1, decode="marginal", objective="pseudo_likelihood").fit(X[:80], labels[:80])
        predicted = np.concatenate(list(model.predict(X[80:])))
        truth_codes = np.concatenate([np.array(some) for some in labels[80:]])
        names = truth_codes != "O"
        rows.append(
            (name, float((predicted == truth_codes)[names].mean()), model.engine_for(model.potentials(X[80:]))[1])
        )
    return Findings("skip-chain", ("model", "names right", "inference"), tuple(rows)), {}


def wearable(random_state: int = 0) -> Shown:
    """Motion states and spatial contexts of twelve episodes: two chains, and the two-layer model."""
    made = make_wearable_episodes(12, length=200, random_state=random_state)
    X = [{"motion": m, "context": c} for m, c in zip(made.motion_features, made.context_features)]
    y = [{"motion": m, "context": c} for m, c in zip(made.motions, made.contexts)]
    train, test = slice(0, 8), slice(8, 12)
    rows: list[tuple[Any, ...]] = []
    for layer in ("motion", "context"):
        own = ChainCRF(decode="marginal").fit([x[layer] for x in X[train]], [t[layer] for t in y[train]])
        rows.append(
            (f"{layer}, a chain of its own", own.score([x[layer] for x in X[test]], [t[layer] for t in y[test]]))
        )
    model = FactorialCRF(decode="marginal").fit(X[train], y[train])
    predicted = model.predict(X[test])
    for k, layer in enumerate(("motion", "context")):
        right = np.concatenate([p[:, k] == t[layer] for p, t in zip(predicted, y[test])])
        rows.append((f"{layer}, two layers", float(right.mean())))
    shares = model.predict_proba(X[test][:1])[0]
    shown = {
        layer: (y[test][0][layer].tolist(), predicted[0][:, k].tolist(), shares[layer])
        for k, layer in enumerate(("motion", "context"))
    }
    labels = {layer: model.classes_[layer].tolist() for layer in shown}
    found = Findings(
        "two layers of labels", ("model", "steps right"), tuple(rows), notes=(f"trained by {model.plan_.reason}",)
    )

    return found, {"layers": lambda: plot_layers(shown, labels)}


def tags(random_state: int = 0) -> Shown:
    """Twelve tags of one item as the nodes of a tree: each tag alone, and all of them together."""
    made = make_tags(600, random_state=random_state)
    names = list(made.names)
    pairs = {f"{names[a]}-{names[b]}": [(int(a), int(b))] for a, b in made.tree}
    n = len(names)

    def items(joined: bool) -> list[Graph]:
        # Each tag has weights of its own: its features stand in columns of its own.
        return [
            edge_list(
                n, pairs if joined else {}, features=[{f"{tag}:{k}": v for k, v in enumerate(x)} for tag in names]
            )
            for x in made.features
        ]

    truth = [row.tolist() for row in np.asarray(made.tags, dtype=int)]
    rows: list[tuple[Any, ...]] = []
    for name, joined in (("each tag alone", False), ("as a tree", True)):
        X = items(joined)
        model = GraphCRF(l2=1.0, feature_pairs="all", intercept=False).fit(X[:300], truth[:300])
        predicted = np.stack(list(model.predict(X[300:])))
        right = predicted == np.array(truth[300:])
        rows.append((name, float(right.mean()), float(right.all(axis=1).mean())))
    return Findings("tags of an item", ("model", "tags right", "whole items right"), tuple(rows)), {}


GALLERY: dict[str, Callable[..., Shown]] = {
    "denoising": denoising,
    "skip-chain": skip_chain,
    "wearable": wearable,
    "tags": tags,
}


def gallery(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help=f"Which: {', '.join(GALLERY)}.",
            show_default="all",
            autocompletion=offered(lambda: GALLERY),
        ),
    ] = None,
    *,
    out: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Folder to draw the pictures into as well (needs matplotlib)."),
        FILLS,
    ] = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Small models of graphs: an image, a skip-chain, two layers of labels, a tree of tags."""
    for name in names or ():
        one_of(name, list(GALLERY), what="picture")
    if out is not None:
        os.makedirs(out, exist_ok=True)
    told = {}
    for name in names or GALLERY:
        found, figures = GALLERY[name](random_state=seed)
        told[name] = found.to_dict()
        if not as_json:
            say(f"{found}\n")
        for title, figure in figures.items() if out is not None else ():
            draw(figure(), os.path.join(out or "", f"{title}.png"), dpi=75)
    if as_json:
        emit(told)

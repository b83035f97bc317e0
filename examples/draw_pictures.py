"""Draw the pictures of the documentation: ``python examples/draw_pictures.py``.

``docs/pictures/marginals.png`` shows how sure a model is of one phrase; it is trained on the spot. Beside it,
``losses.png`` compares the logistic and the hinge loss, and ``dense.png`` shows a scene before and after a dense
field. Given a file that ``python -m benchmarks`` wrote, ``docs/pictures/ratios.png`` is drawn from it as well, and
``docs/pictures/boosting-growth.png`` if it tells how the time of boosting grows.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt

import crfield
from crfield.report.displays.losses import plot_losses

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
TOKENS = ["1", "(", "14", "oz", ")", "can", "crushed", "tomatoes", ",", "drained"]
INK, FAINT, HUE = "#222222", "#d8d8d8", "#2f6f9f"
DPI = 130


def draw_marginals(path: Path, *, n_phrases: int = 4000) -> None:
    """The probability of every label at every token of one phrase, the best path framed."""
    phrases = crfield.make_phrases(n_phrases, random_state=0)
    model = crfield.ChainCRF(n_jobs=-1).fit([crfield.phrase_features(t) for t in phrases.tokens], phrases.labels)
    features = crfield.phrase_features(TOKENS)
    table, best = model.predict_proba([features])[0], model.predict([features])[0]
    labels = ["B-QTY", "I-QTY", "B-UNIT", "B-NAME", "I-NAME", "B-COMMENT", "I-COMMENT", "O"]
    classes = model.classes_.tolist()
    shown = table[:, [classes.index(label) for label in labels]].T

    figure, axes = plt.subplots(figsize=(7.2, 3.4))
    image = axes.imshow(shown, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for step, label in enumerate(best):
        row = labels.index(label)
        axes.add_patch(
            plt.Rectangle((step - 0.5, row - 0.5), 1, 1, fill=False, edgecolor=INK, linewidth=1.4, zorder=3)
        )
    for (row, step), value in [(place, shown[place]) for place in zip(*(shown >= 0.01).nonzero())]:
        axes.text(
            step, row, f"{value:.2f}", ha="center", va="center", fontsize=8.5, color="w" if value > 0.5 else INK
        )
    axes.set_xticks(range(len(TOKENS)), TOKENS)
    axes.set_yticks(range(len(labels)), labels)
    axes.set_xticks([k - 0.5 for k in range(1, len(TOKENS))], minor=True)
    axes.set_yticks([k - 0.5 for k in range(1, len(labels))], minor=True)
    axes.grid(which="minor", color=FAINT, linewidth=0.6)
    axes.tick_params(which="both", length=0, labelsize=9.5)
    axes.tick_params(axis="x", labelsize=8)
    for spine in axes.spines.values():
        spine.set_color(FAINT)
    bar = figure.colorbar(image, ax=axes, pad=0.02, ticks=[0, 0.5, 1])
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=9)
    bar.set_label("probability", fontsize=9.5)
    figure.tight_layout()
    figure.savefig(path, dpi=DPI)
    plt.close(figure)


def draw_ratios(path: Path, source: Path) -> None:
    """How many times less time crfield takes than its rivals, one bar a comparison."""
    rows = json.loads(source.read_text(encoding="utf-8"))["rows"]
    ratios = [(row["name"], row["result"]) for row in rows if row["unit"] == "×" and row["better"] == "more"]
    names, values = zip(*reversed([(name, value) for name, value in ratios if value is not None]))
    figure, axes = plt.subplots(figsize=(7.4, 0.6 + 0.34 * len(names)))
    axes.barh(range(len(names)), values, color=HUE, height=0.62)
    axes.axvline(1, color=INK, linewidth=0.8)
    axes.set_xscale("log")
    for k, value in enumerate(values):
        axes.text(value * 1.04, k, f"{value:.1f}×", va="center", fontsize=8.5, color=INK)
    axes.set_xlim(0.8, max(values) * 1.6)
    axes.set_yticks(range(len(names)), names, fontsize=8.5)
    axes.set_xlabel("times less time (logarithmic)", fontsize=9)
    axes.tick_params(length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=DPI)
    plt.close(figure)


def draw_growth(path: Path, source: Path) -> None:
    """Time against size on logarithmic axes, beside a line of slope one."""
    rows = json.loads(source.read_text(encoding="utf-8"))["rows"]
    grown = [row for row in rows if " growth of " in row["name"] and row.get("detail")]
    if not grown:
        return
    figure, places = plt.subplots(1, len(grown), figsize=(2.6 * len(grown), 2.7))
    for axes, row in zip([places] if len(grown) == 1 else places, grown):
        sizes, taken = row["detail"]["sizes"], [1e3 * second for second in row["detail"]["seconds"]]
        axes.plot(sizes, [taken[-1] * size / sizes[-1] for size in sizes], color=FAINT, linewidth=2)
        axes.plot(sizes, taken, color=HUE, marker="o", markersize=4)
        axes.set_xscale("log")
        axes.set_yscale("log")
        what = row["name"].partition(" growth of ")[2].partition(",")[0]
        title, _, unit = what.rpartition(" in ")
        axes.minorticks_off()
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axes.set_yticks(taken[:: len(taken) - 1], [f"{value:.2g}" for value in taken[:: len(taken) - 1]])
        axes.set_title(f"{title}\nslope {row['result']:.2f}", fontsize=8)
        axes.set_xlabel(unit, fontsize=8)
        axes.tick_params(labelsize=7)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    figure.supylabel("milliseconds (grey: linear)", fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=DPI)
    plt.close(figure)


def draw_dense(path: Path) -> None:
    """A made scene, what a coarse network says of it, and the same after a dense field."""
    made = crfield.make_scenes(1, (120, 160), random_state=4)
    model = crfield.DenseCRF(smooth_weight=3, colour_weight=10, colour_width=13, sweeps=5).untrained(range(5))
    found = model.predict(made.images, unary=made.probabilities)[0]
    shown = {
        "image": made.images[0],
        "network alone": made.probabilities[0].argmax(axis=-1),
        "dense field": found,
        "truth": made.labels[0],
    }
    figure, row = plt.subplots(1, 4, figsize=(8.4, 2.0))
    for axes, (title, picture) in zip(row, shown.items()):
        axes.imshow(picture, cmap="tab10", vmin=0, vmax=9, interpolation="nearest")
        axes.set_title(title, fontsize=9, color=INK)
        axes.axis("off")
    figure.tight_layout()
    figure.savefig(path, dpi=DPI)
    plt.close(figure)


def main(arguments: list[str]) -> None:
    """Draw what can be drawn."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    draw_marginals(PICTURES / "marginals.png")
    draw_dense(PICTURES / "dense.png")
    plot_losses().savefig(PICTURES / "losses.png", dpi=DPI)
    for name in arguments:
        draw_ratios(PICTURES / "ratios.png", Path(name))
        draw_growth(PICTURES / "boosting-growth.png", Path(name))


if __name__ == "__main__":
    main(sys.argv[1:])

"""The sections of a report's page as plain HTML, to be read without any script.

Every section has a heading, a sentence that says how to read it, and tables or drawings. Whatever a user named
(labels, tokens, features, parameters) goes through `_text`, which escapes it. The script makes cells of the
confusion into buttons, puts a search above the features, and replaces the plain list of items by one that can be
opened.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from crfield.metrics.intervals import FEWEST
from crfield.metrics.scores import Scores, ScoreTable
from crfield.report.page.charts import FEWEST_STEPS, curve_chart, reliability_chart, score_bar
from crfield.report.page.island import clean, label_text
from crfield.report.page.judged import UNKNOWN
from crfield.report.page.sample import plural
from crfield.report.page.shown import ShownItem
from crfield.report.weights import TransitionTable

if TYPE_CHECKING:
    from crfield.report.page.model_report import ModelReport

_CELLS = 24  # labels of a table of label pairs
_GROUPS, _PLAIN, _FEATURES = 15, 12, 25
Intervals = dict[str, np.ndarray]


@dataclass(frozen=True)
class Section:
    """A part of the page; ``intro`` is text, ``body`` is HTML.

    >>> print(Section("card", "Model <card>", "What it is.", "<hr>").html())
    <section id="card" aria-labelledby="card-heading">
    <h2 id="card-heading" tabindex="-1">Model &lt;card&gt;</h2>
    <p>What it is.</p>
    <hr>
    </section>
    """

    name: str
    heading: str
    intro: str
    body: str

    def html(self) -> str:
        """The section as HTML."""
        return (
            f'<section id="{self.name}" aria-labelledby="{self.name}-heading">\n'
            f'<h2 id="{self.name}-heading" tabindex="-1">{escape(self.heading)}</h2>\n'
            f"<p>{escape(self.intro)}</p>\n{self.body}\n</section>"
        )


def sections_of(report: ModelReport) -> list[Section]:
    """All sections that the report has something for, in order."""
    parts = [
        glance,
        labels,
        spans,
        segments,
        confusion,
        errors,
        items,
        calibration,
        transitions,
        features,
        curve,
        card,
    ]
    made = [part(report) for part in parts]
    return [section for section in made if section is not None]


# ------------------------------------------------------------------------------------------------ scores


def glance(report: ModelReport) -> Section:
    """The few numbers that one wants first, and what stands out."""
    judged = report.judged
    tiles, item, step = [], judged.item, judged.step
    if judged.n_judged:
        tiles.append(_tile(judged.accuracy, f"of {plural(step, 2)} right", f"{judged.n_judged:,} judged"))
        if report.spans is not None:
            ends = report.span_intervals[""][2].tolist()
            tiles.append(_tile((report.spans.f1, *ends), "F1 of spans", f"{report.spans.micro.support:,} true spans"))
        if report.segments is not None:
            found = (report.segments.f1.get(0.5, math.nan), math.nan, math.nan)
            tiles.append(_tile(found, "F1 of segments", "found with half of their length"))
        if item != step and judged.n_steps < 100 * len(judged.items):  # of long ones none is ever without
            tiles.append(
                _tile(judged.whole, f"of {plural(item, 2)} without an error", f"{len(judged.items):,} in all")
            )
        if judged.scores.rows:
            macro = (judged.scores.macro.f1, math.nan, math.nan)
            tiles.append(_tile(macro, "mean F1 of labels", "every label counts alike"))
    if judged.calibration is not None and judged.n_judged:
        off = f"{100 * judged.calibration.error:.1f}"
        tiles.append(f"<li><b>{off}</b><span>points off</span><small>mean error of probabilities</small></li>")
    told = "".join(f"<li>{_text(sentence)}</li>" for sentence in _standing_out(report))
    body = f'<ul class="tiles">{"".join(tiles)}</ul>\n<ul class="plain">{told}</ul>'
    many = plural(item, 2)
    intro = f"How good the labels of this model are on {len(judged.items):,} {plural(item, len(judged.items))}. "
    if math.isnan(judged.accuracy[1]):
        intro += f"There are no intervals: fewer than {FEWEST} {many} say too little of what others would give."
    else:
        intro += (
            f"Ranges in small print are 95\u00a0% intervals over {many}: what other data of the same sort might give."
        )
    return Section("glance", "At a glance", intro, body)


def _standing_out(report: ModelReport) -> list[str]:
    judged, told = report.judged, []
    if not judged.n_judged:
        told.append("No true label is known, so nothing can be scored; what follows is what the model says.")
    groups = report.groups.groups
    if groups:
        first = groups[0]
        told.append(
            f"The commonest mistake is {first.gold} taken for {first.predicted}: {first.count:,} times, "
            f"{first.share:.0%} of all errors."
        )
    elif judged.n_judged:
        told.append("There is no error at all: look at more data, or at whether these were trained on.")
    rows = [row for row in judged.scores.rows if row.support >= 5]
    if len(rows) > 1:
        worst = min(rows, key=lambda row: row.f1)
        told.append(f"The weakest label is {worst.name}: F1 {worst.f1:.2f} over {worst.support:,}.")
    never = [row.name for row in judged.scores.rows if row.support and not row.predicted]
    if never:
        told.append(f"Never predicted although it is there: {', '.join(map(str, never[:8]))}.")
    told.append(report.sample.words)
    return [*told, *report.missing]


def _tile(score: Sequence[float], words: str, small: str) -> str:
    value, low, high = score
    over = "" if math.isnan(low) or math.isnan(high) else f"{100 * low:.1f} to {100 * high:.1f} · "
    return f"<li><b>{100 * value:.1f}\u00a0%</b><span>{_text(words)}</span><small>{over}{_text(small)}</small></li>"


def labels(report: ModelReport) -> Section | None:
    """Scores by label."""
    judged = report.judged
    if not judged.scores.rows:
        return None
    intro = (
        "Precision: how often the label is right where the model says it. Recall: how often the model finds it where "
        "it is. F1 is the harmonic mean of the two; the bar shows it, the whisker its interval."
    )
    return Section("labels", "Scores by label", intro, _scores(judged.scores, judged.intervals, judged.step))


def spans(report: ModelReport) -> Section | None:
    """Scores by kind of span."""
    if report.spans is None:
        return None
    intro = (
        f"Tags are read as spans ({report.scheme}); a span is right if its kind and both of its ends are, as "
        "conlleval counts."
    )
    return Section("spans", "Scores by span", intro, _scores(report.spans, report.span_intervals, "span"))


def _scores(table: ScoreTable, intervals: Intervals, counted: str) -> str:
    head = (
        '<tr><th scope="col" class="name"></th><th scope="col" colspan="2">F1</th><th scope="col">precision</th>'
        f'<th scope="col">recall</th><th scope="col">true {_text(plural(counted, 2))}</th></tr>'
    )
    ordered = sorted(table.rows, key=lambda row: (-row.support, str(row.name)))
    rows = [_score_row(row, intervals.get(str(row.name))) for row in ordered]
    rows += [_average_row(row, intervals.get("") if row.name == "micro" else None) for row in table.averages]
    return _scrolled("Scores", f"<table><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table>")


def _score_row(row: Scores, ends: np.ndarray | None, name: str = "", style: str = "") -> str:
    low, high = (math.nan, math.nan) if ends is None else ends[2].tolist()
    over = "" if math.isnan(low) or math.isnan(high) else f'<span class="range">{low:.3f} to {high:.3f}</span>'
    cells = [
        f'<th scope="row" title="{_text(name or row.name)}">{_text(name or row.name)}</th>',
        f"<td>{score_bar(row.f1, low, high)}</td>",
        f"<td>{row.f1:.3f}{over}</td>",
        f"<td>{row.precision:.3f}</td><td>{row.recall:.3f}</td><td>{row.support:,}</td>",
    ]
    return f"<tr{style}>{''.join(cells)}</tr>"


def _average_row(row: Scores, ends: np.ndarray | None) -> str:
    return _score_row(row, ends, f"{row.name} average", ' class="average"')


def segments(report: ModelReport) -> Section | None:
    """Scores of stretches of one label."""
    found = report.segments
    if found is None:
        return None
    rows = [(f"F1 at an overlap of {100 * overlap:g} %", f"{value:.3f}") for overlap, value in found.f1.items()]
    rows += [
        ("edit score (order of the segments)", f"{found.edit:.3f}"),
        ("missed altogether", f"{found.deletions:,} of {found.gold:,} true segments"),
        ("cut into pieces", f"{found.fragmented:,} of {found.gold:,} true segments"),
        ("run together with another", f"{found.merged:,} of {found.gold:,} true segments"),
        ("made up", f"{found.insertions:,} of {found.predicted:,} predicted segments"),
    ]
    body = "".join(f'<tr><th scope="row">{_text(name)}</th><td>{_text(value)}</td></tr>' for name, value in rows)
    intro = (
        "A segment is a stretch of one label. It counts as found if a predicted one of its label overlaps it enough."
    )
    return Section(
        "segments", "Scores by segment", intro, _scrolled("Segments", f"<table><tbody>{body}</tbody></table>")
    )


# ------------------------------------------------------------------------------------------------ errors


def confusion(report: ModelReport) -> Section | None:
    """Which label is taken for which."""
    judged = report.judged
    if not judged.n_judged:
        return None
    matrix = judged.confusion.matrix
    wrong = matrix - np.diag(np.diag(matrix))
    there = np.flatnonzero(matrix.sum(axis=0) + matrix.sum(axis=1))
    order = there[np.argsort(-(wrong.sum(axis=0) + wrong.sum(axis=1))[there], kind="stable")]
    kept = np.sort(order[:_CELLS])
    note = "" if len(kept) == len(there) else f" The {len(kept)} labels with most errors of {len(there)} are shown."
    names = [clean(label) for label in judged.labels]
    head = "".join(f'<th scope="col" title="{_text(names[k])}">{_text(names[k])}</th>' for k in kept)
    rows = []
    for g in kept.tolist():
        total = max(int(matrix[g].sum()), 1)
        cells = [_count_cell(g, p, int(matrix[g, p]), total) for p in kept.tolist()]
        rows.append(f'<tr><th scope="row" title="{_text(names[g])}">{_text(names[g])}</th>{"".join(cells)}</tr>')
    corner = '<th scope="col" class="axis name">true ↓<br>predicted →</th>'
    many = " many" if len(kept) > 8 else ""
    table = f'<table class="heat{many}"><thead><tr>{corner}{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    intro = (
        f"Rows are true labels, columns predicted ones; a cell counts {plural(judged.step, 2)}, and is darker the "
        f"more of its row it holds. Off the diagonal are errors. Choose a cell to see where it happened.{note}"
    )
    return Section("confusion", "Confusion", intro, _scrolled("Confusion", table))


def _count_cell(gold: int, said: int, count: int, total: int) -> str:
    if not count:
        return '<td class="none"><span>·</span></td>'
    same = ' class="same"' if gold == said else ""
    shade = max(count / total, 0.06)
    return f'<td{same} data-pair="{gold},{said}" style="--share:{shade:.3f}"><span>{count:,}</span></td>'


def errors(report: ModelReport) -> Section | None:
    """Groups of errors with examples and reasons."""
    groups = report.groups.groups
    if not groups:
        return None
    parts = []
    for number, group in enumerate(groups[:_GROUPS]):
        head = (
            f"<b>{_text(group.gold)}</b> <span class=arrow>taken for</span> <b>{_text(group.predicted)}</b> "
            f"<span>— {group.count:,} times, {group.share:.1%} of the errors, {group.rate:.1%} of all true "
            f"{_text(group.gold)}</span>"
        )
        lines = [f"<li>{_example(one)}</li>" for one in group.examples]
        shown = "".join(lines) or "<li>No example is among those shown.</li>"
        opened = " open" if number < 3 else ""
        parts.append(f'<details class="group"{opened}><summary>{head}</summary><ul>{shown}</ul></details>')
    rest = len(groups) - _GROUPS
    if rest > 0:
        count = sum(group.count for group in groups[_GROUPS:])
        parts.append(f'<p class="note">And {rest:,} rarer kinds, {count:,} errors together.</p>')
    intro = (
        "Errors by what was taken for what, the commonest first. The examples are those the model was surest of, "
        "with what spoke most for the wrong label where the model can tell."
    )
    return Section("errors", "Kinds of errors", intro, "\n".join(parts))


def _example(one: Any) -> str:
    around = [*map(_text, one.before), f"<mark>{_text(one.text)}</mark>", *map(_text, one.after)]
    reasons = ", ".join(f"{c.amount:+.2f} {_text(c.text)}" for c in one.strongest)
    told = f' <span class="reason">for it: {reasons}</span>' if reasons else ""
    button = f'<button type="button" hidden data-open="{one.sequence},{one.step}">show</button>'
    return f"{' '.join(around)} <span class=reason>({100 * one.probability:.0f} % sure)</span>{told} {button}"


def items(report: ModelReport) -> Section | None:
    """The items themselves: controls for the script, and a plain list for those without one."""
    if not report.items:
        return None
    item, step = report.judged.item, report.judged.step
    orders = [
        ("drawn", "by kind of error"),
        ("errors", "most errors first"),
        ("doubt", "least sure first"),
        ("number", "as in the data"),
    ]
    shows = [("all", "all"), ("wrong", "with errors"), ("right", "without errors")]
    controls = (
        '<div class="controls" id="controls" hidden role="search">'
        f"<label>Show {_select('show', shows)}</label><label>Order {_select('order', orders)}</label>"
        '<label>Find <input id="text" type="search" autocomplete="off"></label>'
        '<button type="button" id="all" hidden>Leave this confusion</button></div>'
        '<p class="note" id="found" role="status"></p>'
        '<ul class="legend" id="legend" aria-label="Colours of labels"></ul>'
        '<div id="list"></div><button type="button" id="more" hidden>Show more</button>'
    )
    plain = "".join(f"<li>{_plain(shown, report)}</li>" for shown in report.items[:_PLAIN])
    intro = (
        f"{report.sample.words} Choose a {step} to see how sure the model was, why, and what would change its mind."
    )
    heading = f"{plural(item, 2)} taken apart".capitalize()
    return Section("sequences", heading, intro, f'{controls}\n<ul class="plain" id="plain">{plain}</ul>')


def _select(name: str, options: Sequence[tuple[str, str]]) -> str:
    told = "".join(f"<option value={value}>{_text(text)}</option>" for value, text in options)
    return f'<select id="{name}">{told}</select>'


def _plain(shown: ShownItem, report: ModelReport) -> str:
    """An item as a line of text, with errors marked."""
    item, names = shown.item, report.judged.labels
    wrong, judged = int(item.wrong.sum()), int(item.judged.sum())
    head = f"<b>{_text(item.name)}</b>: {wrong:,} of {judged:,} wrong"
    if not shown.texts:
        return head
    words = []
    for t, text in enumerate(shown.texts[:120]):
        said = _text(names[item.predicted[t]])
        if item.wrong[t]:
            true = "?" if item.gold[t] == UNKNOWN else _text(names[item.gold[t]])
            words.append(f"<mark>{_text(text)} <small>{said}, true {true}</small></mark>")
        else:
            words.append(f"{_text(text)} <small>{said}</small>")
    return f"{head}<br>{' '.join(words)}"


# ------------------------------------------------------------------------------------------ what was learnt


def calibration(report: ModelReport) -> Section | None:
    """Whether probabilities can be believed."""
    table = report.judged.calibration
    if table is None or not report.judged.n_judged:
        return None
    head = _row(["probability", "how many", "mean probability", "right"], "th", named=1)
    rows = "".join(
        f'<tr><th scope="row">{r["from"]:.1f} to {r["to"]:.1f}</th><td>{r["count"]:,}</td>'
        f"<td>{r['probability']:.3f}</td><td>{r['right']:.3f}</td></tr>"
        for r in table.rows()
    )
    intro = (
        "Can its probabilities be believed? Of all labels given with 80 %, about 80 % should be right: points on the "
        "dashed line. Below it the model is too sure of itself, above it too careful. Larger points hold more "
        f"{plural(report.judged.step, 2)}. On average the two differ by {100 * table.error:.1f} points."
    )
    body = (
        f"{reliability_chart(table)}<details><summary>Numbers</summary><table><thead>{head}</thead><tbody>{rows}</tbody>"
        "</table></details>"
    )
    return Section("calibration", "Calibration", intro, body)


def transitions(report: ModelReport) -> Section | None:
    """What follows what."""
    table = report.transitions
    if table is None or not table.to_dict():
        return None
    what = "probability" if report.probabilities else "weight"
    meaning = "" if report.probabilities else " Above 0 (blue) makes the pair more probable, below 0 (orange) less."
    intro = f"The {what} of a label (column) right after another (row), as the model has learnt it.{meaning}"
    if max(len(table.labels), len(table.columns or ())) <= _CELLS:
        return Section("transitions", "Transitions", intro, _scrolled("Transitions", _pair_table(table)))
    lists = "".join(
        f"<h3>{title}</h3><ul>"
        + "".join(f"<li>{_label(a)} → {_label(b)}: {weight:.2f}</li>" for a, b, weight in some)
        + "</ul>"
        for title, some in (("Strongest", table.top(15)), ("Weakest", table.bottom(15)))
    )
    intro += f" There are {len(table.labels)} labels; the strongest and the weakest pairs are listed."
    return Section("transitions", "Transitions", intro, lists)


def _pair_table(table: TransitionTable) -> str:
    columns = table.labels if table.columns is None else table.columns
    known = table.weights[np.isfinite(table.weights)]
    most = max(float(np.abs(known).max(initial=0.0)), 1e-12)
    head = "".join(f'<th scope="col" title="{_label(c)}">{_label(c)}</th>' for c in columns)
    rows = []
    for label, weights in zip(table.labels, table.weights.tolist()):
        cells = []
        for weight in weights:
            if math.isnan(weight):
                cells.append('<td class="none"><span>·</span></td>')
            else:
                side = "plus" if weight >= 0 else "minus"
                share = min(abs(weight) / most, 1.0) if math.isfinite(weight) else 1.0
                cells.append(f'<td class="{side}" style="--share:{share:.3f}"><span>{weight:.2f}</span></td>')
        rows.append(f'<tr><th scope="row" title="{_label(label)}">{_label(label)}</th>{"".join(cells)}</tr>')
    corner = '<th scope="col" class="axis name">from ↓<br>to →</th>'
    many = " many" if len(columns) > 8 else ""
    return f'<table class="heat{many}"><thead><tr>{corner}{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'


def features(report: ModelReport) -> Section | None:
    """The strongest features."""
    found = report.features
    if found is None or not len(found):
        return None
    labels = list(dict.fromkeys(label_text(item.label) for item in found))
    options = "".join(f'<option value="{_text(label)}">{_text(label)}</option>' for label in labels)
    controls = (
        '<div class="controls" id="feature-controls" role="search" hidden><label>Find a feature '
        '<input id="feature-text" type="search" autocomplete="off"></label>'
        f'<label>Label <select id="feature-label"><option value="">all</option>{options}</select></label>'
        '<span class="note" id="feature-count" role="status"></span></div>'
    )
    rows = "".join(
        f'<tr><th scope="row">{_text(clean(item.name))}</th><td class="name">{_label(item.label)}</td>'
        f"<td>{item.weight:+.2f}</td><td></td></tr>"
        for item in found[:_FEATURES]
    )
    head = _row(["feature", "label", "weight", ""], "th", named=2)
    table = f'<table><thead>{head}</thead><tbody id="feature-rows">{rows}</tbody></table>'
    intro = (
        f"The {len(found):,} strongest features by size of weight. A weight above 0 speaks for the label wherever "
        "the feature is present, one below 0 against it."
    )
    return Section("features", "Strongest features", intro, controls + _scrolled("Strongest features", table))


def curve(report: ModelReport) -> Section | None:
    """How training went."""
    found = report.curve
    if found is None or len(found.step) < FEWEST_STEPS:
        return None
    charts = [curve_chart(found.step, found.value, name="objective")]
    intro = "The objective that training lowers, step by step. It should fall and level off."
    if np.isfinite(found.score).any():
        charts.append(curve_chart(found.step, found.score, name="held-out score", other=True))
        intro += " The second chart is the score on data held out of training."
    return Section("curve", "Learning curve", intro, "\n".join(charts))


def card(report: ModelReport) -> Section:
    """What the model is, how it was trained, on what it was judged, with what."""
    parts = []
    for heading, facts in report.card.items():
        rows = "".join(f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in facts.items() if value)
        parts.append(f'<div><h3>{_text(heading)}</h3><dl class="card">{rows}</dl></div>')
    intro = "What the model is, how it was trained, and what it was judged on."
    return Section("card", "Model card", intro, f'<div class="cards">{"".join(parts)}</div>')


# ------------------------------------------------------------------------------------------------- pieces


def _text(value: Any) -> str:
    return escape(clean(value) if not isinstance(value, str) or len(value) <= 60 else _long(value))


def _long(text: str) -> str:
    from crfield.report.alignment import printable

    return printable(text)


def _label(label: Any) -> str:
    return escape(label_text(label))


def _row(cells: Sequence[str], tag: str, *, named: int) -> str:
    told = [f'<{tag} scope="col"{" class=name" if k < named else ""}>{_text(c)}</{tag}>' for k, c in enumerate(cells)]
    return f"<tr>{''.join(told)}</tr>"


def _scrolled(name: str, table: str) -> str:
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(name)}, may be scrolled">{table}</div>'
    )

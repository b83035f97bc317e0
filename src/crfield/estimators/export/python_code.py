"""The text of a model as one Python module that imports nothing but ``math``.

For small computers without NumPy: lists of floats and the recursion of `crfield.kernels.stream` in plain Python.
Every number is written so that the same double comes back.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from crfield.estimators.export.written import Exportable

_HEAD = '''\
"""A chain model written by crfield: one module, nothing but the standard library.

    stream = Stream()
    now = stream.push(x)        # x: the COLUMNS of a step, raw as in training
    now["label"], now["probabilities"], now["committed"], now["forced"]
    rest = stream.finish()      # the same for the end of the sequence; the stream then begins anew

"probabilities" is the filtered distribution, in the order of LABELS; "committed" the labels of the next steps that
have become final, "forced" how many of them only because they waited for max_lag steps.
"""

from math import exp, inf, isfinite, log, sqrt

'''

_BODY = """

class Stream:
    def __init__(self, max_lag=@max_lag@):
        self.max_lag = max_lag
        self.begin()

    def begin(self):
        self.steps = self.oldest = 0
        self.alpha, self.delta, self.origin = [0.0] * STATES, [0.0] * STATES, [0] * STATES
        self.back = {}

    def push(self, x):
        if len(x) != len(COLUMNS) or @refuse@:
            raise ValueError("expected %d finite numbers@missing@" % len(COLUMNS))
        node, edge = scores(x)
        sizes = node@edges@
        if @lost@ or not all(value <= LARGEST for value in sizes):
            worst = max(range(len(x)), key=lambda d: abs(x[d]))
            raise ValueError("column %r is %g: too large for this model" % (COLUMNS[worst], x[worst]))
        if self.steps:
            after, came, best = [], [], []
            for j in range(STATES):
                paths = [self.alpha[i] + edge[i][j] for i in range(STATES)]
                after.append(log_sum(paths) + node[j])
                paths = [self.delta[i] + edge[i][j] for i in range(STATES)]
                came.append(paths.index(max(paths)))
                best.append(max(paths) + node[j])
        else:
            after = [START[j] + node[j] for j in range(STATES)]
            came, best = list(range(STATES)), list(after)
        self.alpha = normalised(after)
        most = max(best)
        self.delta = [value - most for value in best] if most > -inf else best
        self.back[self.steps] = came
        self.origin = list(range(STATES)) if self.oldest == self.steps else [self.origin[i] for i in came]
        committed = []
        self._agree(committed)
        forced = len(committed) if most == -inf else 0
        if self.steps - self.oldest + 1 > self.max_lag:
            label = self.origin[self.delta.index(max(self.delta))]
            self.delta = [d if o == label else -inf for d, o in zip(self.delta, self.origin)]
            committed.append(label)
            forced += 1
            self._move(self.oldest + 1)
            self._agree(committed)
        self.steps += 1
        return answer(self.alpha, committed, forced)

    def finish(self):
        if not self.steps:
            return answer([-inf], [], 0)
        last = normalised([a + e for a, e in zip(self.alpha, END)])
        ends = [d + e for d, e in zip(self.delta, END)]
        label, path = ends.index(max(ends)), []
        for step in range(self.steps - 1, self.oldest - 1, -1):
            path.append(label)
            label = self.back[step][label]
        self.begin()
        return answer(last, path[::-1], 0)

    def _agree(self, committed):
        if self.oldest > self.steps:
            return
        alive = {j for j in range(STATES) if self.delta[j] > -inf} or {0}
        if len({self.origin[j] for j in alive}) > 1:
            return
        step = self.steps
        while len(alive) > 1:
            alive = {self.back[step][j] for j in alive}
            step -= 1
        (label,) = alive
        path = []
        for s in range(step, self.oldest - 1, -1):
            path.append(label)
            label = self.back[s][label]
        committed.extend(path[::-1])
        self._move(step + 1)

    def _move(self, oldest):
        for step in range(self.oldest, oldest):
            del self.back[step]
        self.oldest = oldest
        self.origin = list(range(STATES))
        for step in range(self.steps, oldest, -1):
            self.origin = [self.back[step][label] for label in self.origin]


def log_sum(values):
    top = max(values)
    return top + log(sum([exp(value - top) for value in values])) if top > -inf else top


def normalised(values):
    total = log_sum(values)
    return [value - total for value in values] if total > -inf else values


def answer(logs, committed, forced):
@shares@
    best = max(shares)
    return {
        "label": LABELS[shares.index(best)] if best > 0 else None,
        "probabilities": shares,
        "committed": [LABELS[@label@] for code in committed],
        "forced": forced,
    }
"""

_SHARES = "    shares = [exp(value) for value in logs]"
_SHARES_OF_STATES = """\
    shares = [0.0] * len(LABELS)
    for label, value in zip(LABEL_OF, logs):
        shares[label] += exp(value)"""


def python_module(steps: Exportable, *, labels: Sequence[Hashable], columns: Sequence[str], max_lag: int) -> str:
    """The module's text."""
    written, tables = steps.written(), steps.tables()
    plain = steps.states is None or steps.states.plain
    if steps.states is not None and not plain:
        tables["label_of"] = steps.states.label_of_state
    size = len(tables["start"])
    sizes = {"STATES": size, "SCORES": size, **written.sizes}
    parts = [
        _HEAD,
        f"LABELS = {[_plain(label) for label in labels]!r}\n",
        f"COLUMNS = {list(columns)!r}\n",
        *(f"{key} = {value}\n" for key, value in sizes.items() if key.lower() not in tables),
        "LARGEST = 1e300\n",
    ]
    # lists write −∞ as -inf, a name that the module has
    parts += [f"{key.upper()} = {table.tolist()!r}\n" for key, table in tables.items()]
    parts.append(written.python_functions)
    if written.recursion is not None:
        return "".join(parts) + written.recursion.python.replace("@max_lag@", str(max_lag))
    parts.append(f"\n\ndef scores(x):\n    edge = TRANSITIONS\n{written.python}\n    return score, edge\n")
    filled = {
        "max_lag": str(max_lag),
        "refuse": "any(value in (inf, -inf) for value in x)"
        if written.missing
        else "not all(isfinite(value) for value in x)",
        "missing": ", NaN where one is missing" if written.missing else "",
        "edges": " + [value for row in edge for value in row]" if steps.varied else "",
        "lost": "-inf < max(node) < -LARGEST" if written.zeros else "not max(node) > -LARGEST",
        "shares": _SHARES if plain else _SHARES_OF_STATES,
        "label": "code" if plain else "LABEL_OF[code]",
    }
    body = _BODY
    for key, value in filled.items():
        body = body.replace(f"@{key}@", value)
    return "".join(parts) + body


def _plain(label: Hashable) -> Hashable:
    """A label whose repr is a literal; others become their text."""
    if label is None or type(label) in (str, int, bool) or (type(label) is float and np.isfinite(label)):
        return label
    if type(label) is tuple:
        return tuple(_plain(part) for part in label)
    return str(label)

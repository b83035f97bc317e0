"""The text of a model as one C header, C99 and C++17.

The header holds the tables and the same recursion as `crfield.kernels.stream`: the filter and the incremental
Viterbi, in logs. It allocates nothing, keeps no state but the user's struct, and needs only ``<math.h>``. Tables are
written with as many digits as bring back the same double, and its first lines say how large the state is and how many
operations a step takes at most. How columns become scores is told by the scorer
(`crfield.estimators.export.written`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crfield.estimators.export.written import Exportable, forward_scores

_HEAD = """\
/* NAME: a chain model written by crfield as one header, C99 or C++17. Needs libm (-lm), no -ffast-math.
 * State: @bytes@ bytes (sizeof NAME_stream with 8-byte double, 4-byte int, MAX_LAG @max_lag@).
 * Tables: @constant@ bytes that never change.
 * A step: at most @operations@ operations with doubles (+ - * / compare exp log sqrt), and @look_ups@ look-ups in the
 * state where labels are committed.
 *
 *   NAME_stream s;
 *   NAME_begin(&s);
 *   for (;;) {
 *     int label = NAME_push(&s, x);   x: NAME_COLUMNS doubles, raw as in training
 *     s.probabilities                  filtered distribution of this step
 *     s.committed[0 .. s.n_committed)  labels of the next steps that became final, s.n_forced of them by force
 *   }
 *   NAME_finish(&s);                   the same for the end of the sequence; then begins anew
 *
 * NAME_push returns the most probable label, -1 where nothing is possible, -2 where a number is @refused@ or too
 * large for the model (the stream then stands where it stood). A label is a place in NAME_label_names.@missing@
 */
#ifndef NAME_CRFIELD_H
#define NAME_CRFIELD_H
#include <math.h>
#include <string.h>

#define NAME_LABELS @labels@
#define NAME_STATES @states@ /* of the recursion: labels, or what a label is made of */
#define NAME_SCORES @scores@ /* that a step gets from its columns */
#define NAME_COLUMNS @columns@
@sizes@"""

_MAX_LAG = """\
#ifndef NAME_MAX_LAG
#define NAME_MAX_LAG @max_lag@ /* a label is committed after so many steps at the latest */
#endif
"""

_BODY = """
typedef @narrow@ NAME_state;
typedef struct {
  double alpha[NAME_STATES], delta[NAME_STATES];
  double probabilities[NAME_LABELS];
  long long steps, oldest;
  int n_committed, n_forced;
  int committed[NAME_MAX_LAG + 1];
  NAME_state origin[NAME_STATES], back[NAME_MAX_LAG + 1][NAME_STATES];
} NAME_stream;

static inline void NAME_begin(NAME_stream *s) { memset(s, 0, sizeof *s); }
@functions@
/* x - log sum exp x in place; left alone where all are -INFINITY. */
static inline void NAME_normalise(double *x) {
  double top = -INFINITY, sum = 0.0;
  for (int j = 0; j < NAME_STATES; j++) top = x[j] > top ? x[j] : top;
  if (top == -INFINITY) return;
  for (int j = 0; j < NAME_STATES; j++) sum += exp(x[j] - top);
  sum = top + log(sum);
  for (int j = 0; j < NAME_STATES; j++) x[j] -= sum;
}

static inline int NAME_answer(NAME_stream *s, const double *logs) {
  int best = 0;
@answer@
  for (int j = 1; j < NAME_LABELS; j++)
    if (s->probabilities[j] > s->probabilities[best]) best = j;
  return s->probabilities[best] > 0.0 ? best : -1;
}

static inline void NAME_look_back(NAME_stream *s) {
  for (int j = 0; j < NAME_STATES; j++) {
    int state = j;
    for (long long t = s->steps; t > s->oldest; t--) state = s->back[t % (NAME_MAX_LAG + 1)][state];
    s->origin[j] = (NAME_state)state;
  }
}

static inline void NAME_agree(NAME_stream *s) {
  unsigned char alive[NAME_STATES], before[NAME_STATES];
  int count = 0, state = 0, origin = -1;
  if (s->oldest > s->steps) return;
  for (int j = 0; j < NAME_STATES; j++) count += alive[j] = s->delta[j] > -INFINITY;
  if (!count) count = alive[0] = 1;
  for (int j = 0; j < NAME_STATES; j++)
    if (alive[j]) {
      if (origin >= 0 && s->origin[j] != origin) return;
      origin = s->origin[j];
    }
  long long step = s->steps;
  while (count > 1) {
    memset(before, 0, sizeof before);
    for (int j = 0; j < NAME_STATES; j++)
      if (alive[j]) before[s->back[step % (NAME_MAX_LAG + 1)][j]] = 1;
    memcpy(alive, before, sizeof alive);
    count = 0;
    for (int j = 0; j < NAME_STATES; j++) count += alive[j];
    step--;
  }
  while (!alive[state]) state++;
  for (long long t = step; t >= s->oldest; t--) {
    s->committed[s->n_committed + (int)(t - s->oldest)] = NAME_LABEL_OF(state);
    state = s->back[t % (NAME_MAX_LAG + 1)][state];
  }
  s->n_committed += (int)(step + 1 - s->oldest);
  s->oldest = step + 1;
  NAME_look_back(s);
}

static inline int NAME_push(NAME_stream *s, const double *x) {
  double score[NAME_SCORES], next[NAME_STATES];
  const double *edge = NAME_transitions;
  for (int d = 0; d < NAME_COLUMNS; d++)
    if (@refuse@) return -2;
@score@
  double highest = -INFINITY;
  for (int j = 0; j < NAME_STATES; j++) {
    if (!(node[j] <= 1e300)) return -2;
    highest = node[j] > highest ? node[j] : highest;
  }
  if (highest < -1e300@zeros@) return -2;
@check@  for (int j = 0; j < NAME_STATES; j++) {
    double top = -INFINITY, sum = 0.0;
    if (s->steps == 0) {
      next[j] = NAME_start[j] + node[j];
      continue;
    }
    for (int i = 0; i < NAME_STATES; i++) {
      double path = s->alpha[i] + edge[i * NAME_STATES + j];
      top = path > top ? path : top;
    }
    if (top > -INFINITY)
      for (int i = 0; i < NAME_STATES; i++) sum += exp(s->alpha[i] + edge[i * NAME_STATES + j] - top);
    next[j] = top > -INFINITY ? top + log(sum) + node[j] : -INFINITY;
  }
  NAME_normalise(next);
  memcpy(s->alpha, next, sizeof next);
  int now = NAME_answer(s, next);

  NAME_state *came = s->back[s->steps % (NAME_MAX_LAG + 1)], moved[NAME_STATES];
  double most = -INFINITY;
  for (int j = 0; j < NAME_STATES; j++) {
    came[j] = (NAME_state)j;
    next[j] = NAME_start[j] + node[j];
    if (s->steps > 0) {
      double top = s->delta[0] + edge[j];
      came[j] = 0;
      for (int i = 1; i < NAME_STATES; i++) {
        double path = s->delta[i] + edge[i * NAME_STATES + j];
        if (path > top) {
          top = path;
          came[j] = (NAME_state)i;
        }
      }
      next[j] = top + node[j];
    }
    most = next[j] > most ? next[j] : most;
    moved[j] = s->oldest == s->steps ? (NAME_state)j : s->origin[came[j]];
  }
  for (int j = 0; j < NAME_STATES; j++) s->delta[j] = most > -INFINITY ? next[j] - most : next[j];
  memcpy(s->origin, moved, sizeof moved);
  s->n_committed = s->n_forced = 0;
  NAME_agree(s);
  if (most == -INFINITY) s->n_forced = s->n_committed;
  if (s->steps - s->oldest + 1 > NAME_MAX_LAG) {
    int best = 0;
    for (int j = 1; j < NAME_STATES; j++)
      if (s->delta[j] > s->delta[best]) best = j;
    int state = s->origin[best];
    for (int j = 0; j < NAME_STATES; j++)
      if (s->origin[j] != state) s->delta[j] = -INFINITY;
    s->committed[s->n_committed++] = NAME_LABEL_OF(state);
    s->n_forced++;
    s->oldest++;
    NAME_look_back(s);
    NAME_agree(s);
  }
  s->steps++;
  return now;
}

static inline int NAME_finish(NAME_stream *s) {
  double last[NAME_STATES];
  int best = 0, now = -1;
  s->n_committed = s->n_forced = 0;
  if (s->steps == 0) return now;
  for (int j = 0; j < NAME_STATES; j++) last[j] = s->alpha[j] + NAME_end[j];
  NAME_normalise(last);
  now = NAME_answer(s, last);
  for (int j = 1; j < NAME_STATES; j++)
    if (s->delta[j] + NAME_end[j] > s->delta[best] + NAME_end[best]) best = j;
  for (long long t = s->steps - 1; t >= s->oldest; t--) {
    s->committed[t - s->oldest] = NAME_LABEL_OF(best);
    best = s->back[t % (NAME_MAX_LAG + 1)][best];
  }
  s->n_committed = (int)(s->steps - s->oldest);
  s->steps = s->oldest = 0;
  return now;
}
#endif
"""

_ANSWER = "  for (int j = 0; j < NAME_LABELS; j++) s->probabilities[j] = exp(logs[j]);"
_ANSWER_OF_STATES = """\
  for (int j = 0; j < NAME_LABELS; j++) s->probabilities[j] = 0.0;
  for (int k = 0; k < NAME_STATES; k++) s->probabilities[NAME_label_of[k]] += exp(logs[k]);"""

_CHECK = """\
  for (int p = 0; p < NAME_STATES * NAME_STATES; p++)
    if (!(edge[p] <= 1e300)) return -2;
"""


def c_header(steps: Exportable, *, name: str, labels: Sequence[str], columns: Sequence[str], max_lag: int) -> str:
    """The header's text; every name in it begins with ``name``."""
    written, tables = steps.written(), steps.tables()
    size, plain = len(tables["start"]), steps.states is None or steps.states.plain
    scores = written.sizes.get("SCORES", size)
    if steps.states is not None and not plain:
        tables["label_of"] = steps.states.label_of_state
    own = {key: value for key, value in written.sizes.items() if key != "SCORES"}
    chain = written.recursion
    needed = state_bytes(size, len(labels), max_lag) if chain is None else chain.state_bytes(max_lag)
    operations = written.operations + (
        recursion_operations(size, len(labels), len(columns), steps.varied)
        if chain is None
        else len(columns) + chain.operations(max_lag)
    )
    look_ups = 2 * (max_lag + 1) * (2 * size + 1) if chain is None else 1
    head = _filled(
        _HEAD,
        labels=len(labels),
        states=size,
        scores=scores,
        columns=len(columns),
        max_lag=max_lag,
        sizes="".join(f"#define NAME_{key} {value}\n" for key, value in own.items()),
        bytes=f"{needed:,}",
        constant=f"{sum(_width(table) * table.size for table in tables.values()):,}",
        operations=f"{operations:,}",
        look_ups=f"{look_ups:,}",
        refused="infinite" if written.missing else "not finite",
        missing="\n * NaN is a value that is missing." if written.missing else "",
    )
    if chain is None:
        head += _filled(_MAX_LAG, max_lag=max_lag)
    parts = [head, f"#define NAME_LABEL_OF(state) {'(state)' if plain else 'NAME_label_of[state]'}\n"]
    for what, texts in (("label", labels), ("column", columns)):
        listed = ", ".join(map(_string, texts)) or '""'
        parts.append(f"static const char *const NAME_{what}_names[] = {{{listed}}};\n")
    parts += [_table(key, table) for key, table in tables.items()]
    body = _filled(
        _BODY if chain is None else chain.c,
        delay=min(max_lag, written.sizes.get("AHEAD", 0)),
        narrow=next(word for word, most in STATES_BY_SIZE if size <= most),
        functions=written.c_functions,
        answer=_ANSWER if plain else _ANSWER_OF_STATES,
        score=written.c + ("" if "PARTS" in own else "\n  const double *node = score;"),
        refuse="isinf(x[d])" if written.missing else "!isfinite(x[d])",
        zeros=" && highest > -INFINITY" if written.zeros else "",
        check=_CHECK if steps.varied else "",
    )
    # names and labels of the user are strings by now and may hold the word as well
    return _renamed("".join(parts) + body, name)


STATES_BY_SIZE = (("unsigned char", 2**8), ("unsigned short", 2**16), ("int", 2**31))


def state_bytes(n_states: int, n_labels: int, max_lag: int) -> int:
    """``sizeof`` of the state where double and long long have 8 bytes, int 4 and short 2.

    >>> state_bytes(2, 2, 0)
    80
    """
    width = 1 if n_states <= 2**8 else 2 if n_states <= 2**16 else 4
    size = 8 * (2 * n_states + n_labels + 2) + 4 * (2 + max_lag + 1) + width * n_states * (max_lag + 2)
    return -(-size // 8) * 8


def recursion_operations(n_states: int, n_labels: int, n_columns: int, varied: bool) -> int:
    """Operations with doubles of a step besides its scores, at most.

    >>> recursion_operations(1, 1, 0, False)
    37
    """
    pairs = n_states * n_states
    checks = n_columns + 2 * n_states + 2 + (pairs if varied else 0)
    summed = 6 * pairs + 4 * n_states + forward_scores(n_states)
    told = 2 * n_states + n_labels + 1
    best = 2 * pairs + 5 * n_states + 1
    return checks + summed + told + best + 4 * n_states  # which of them are alive, twice, and the best one


def _filled(text: str, **values: object) -> str:
    for key, value in values.items():
        text = text.replace(f"@{key}@", str(value))
    return text


def _width(table: np.ndarray) -> int:
    """Bytes of a number of the table in C."""
    if table.dtype.kind not in "iu":
        return 8
    largest = int(np.abs(table).max(initial=0))
    return 1 if largest < 2**7 else 2 if largest < 2**15 else 4


def _table(key: str, table: np.ndarray) -> str:
    whole = table.dtype.kind in "iu"
    numbers = ", ".join(map(str if whole else _number, table.ravel().tolist())) or "0"
    kind = {8: "double", 1: "signed char", 2: "short", 4: "int"}[_width(table)]
    return f"static const {kind} NAME_{key}[] = {{{numbers}}};\n"


def _renamed(text: str, name: str) -> str:
    lines = []
    for line in text.split("\n"):
        if line.startswith("static const char"):
            before, _, after = line.partition(" = ")
            lines.append(before.replace("NAME", name) + " = " + after)
        else:
            lines.append(line.replace("NAME", name))
    return "\n".join(lines)


def _number(value: float) -> str:
    return repr(value) if np.isfinite(value) else "-INFINITY" if value < 0 else "INFINITY"


def _string(text: str) -> str:
    """A C string of the bytes in UTF-8, safe whatever they are."""
    plain = set(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 _-+.,:;<>=()[]&|~!*/'")
    return '"' + "".join(chr(b) if b in plain else f"\\{b:03o}" for b in text.encode("utf-8", "replace")) + '"'

"""The text of a boosted random field as a program: rounds replayed on the last steps, in C and in Python.

The steps of a stream are remembered by the leaves that they were in, a number for each round, in a ring of
``WINDOW`` steps. Beliefs, fresh beliefs and scores of all of them lie in the user's struct, so nothing is allocated
and the stack stays small.
"""

from __future__ import annotations

from crfield.estimators.export.written import OwnRecursion

_C = """
#define NAME_DELAY @delay@ /* steps until a label is committed: AHEAD, or max_lag as it was when this was written */
#define NAME_WINDOW (NAME_BACK + NAME_DELAY + 1) /* steps that are remembered */
typedef @narrow@ NAME_place;
typedef struct {
  double probabilities[NAME_LABELS];
  double belief[NAME_WINDOW][NAME_LABELS], fresh[NAME_WINDOW][NAME_LABELS], local[NAME_WINDOW][NAME_LABELS];
  long long steps, oldest;
  int n_committed, n_forced;
  int committed[NAME_DELAY + 1];
  NAME_place leaf[NAME_WINDOW][NAME_ROUNDS];
} NAME_stream;

static inline void NAME_begin(NAME_stream *s) { memset(s, 0, sizeof *s); }
@functions@
static inline void NAME_softmax(const double *x, double *out) {
  double top = x[0], sum = 0.0;
  for (int j = 1; j < NAME_LABELS; j++) top = x[j] > top ? x[j] : top;
  for (int j = 0; j < NAME_LABELS; j++) sum += out[j] = exp(x[j] - top);
  for (int j = 0; j < NAME_LABELS; j++) out[j] /= sum;
}

/* All rounds on the steps that are remembered: each hears of its neighbours what was believed a round before. */
static inline void NAME_replay(NAME_stream *s) {
  long long first = s->steps > NAME_WINDOW ? s->steps - NAME_WINDOW : 0;
  for (long long t = first; t < s->steps; t++) {
    memcpy(s->local[t % NAME_WINDOW], NAME_prior, sizeof s->local[0]);
    NAME_softmax(NAME_prior, s->belief[t % NAME_WINDOW]);
  }
  for (int r = 0; r < NAME_ROUNDS; r++) {
    for (long long t = first; t < s->steps; t++) {
      const double *leaf = NAME_values + s->leaf[t % NAME_WINDOW][r] * NAME_LABELS;
      double *local = s->local[t % NAME_WINDOW], score[NAME_LABELS];
      for (int j = 0; j < NAME_LABELS; j++) score[j] = local[j] += leaf[j];
      for (int g = 0; g < NAME_GROUPS; g++) {
        double sums[NAME_LABELS] = {0.0};
        for (int k = NAME_near_ends[g]; k < NAME_near_ends[g + 1]; k++) {
          long long other = t + NAME_near[k];
          if (other < first || other >= s->steps) continue;
          for (int j = 0; j < NAME_LABELS; j++) sums[j] += s->belief[other % NAME_WINDOW][j];
        }
@heard@      }
      NAME_softmax(score, s->fresh[t % NAME_WINDOW]);
    }
    memcpy(s->belief, s->fresh, sizeof s->fresh);
  }
}

static inline int NAME_best(const double *shares) {
  int best = 0;
  for (int j = 1; j < NAME_LABELS; j++)
    if (shares[j] > shares[best]) best = j;
  return best;
}

static inline int NAME_push(NAME_stream *s, const double *x) {
  for (int d = 0; d < NAME_COLUMNS; d++)
    if (isinf(x[d])) return -2;
  long long now = s->steps++;
  for (int r = 0; r < NAME_ROUNDS; r++) s->leaf[now % NAME_WINDOW][r] = (NAME_place)NAME_leaf(NAME_roots[r], x);
  NAME_replay(s);
  memcpy(s->probabilities, s->belief[now % NAME_WINDOW], sizeof s->probabilities);
  s->n_committed = s->n_forced = 0;
  if (s->steps - s->oldest > NAME_DELAY) {
    s->committed[s->n_committed++] = NAME_best(s->belief[s->oldest % NAME_WINDOW]);
    s->n_forced = NAME_AHEAD > NAME_DELAY;
    s->oldest++;
  }
  return NAME_best(s->probabilities);
}

static inline int NAME_finish(NAME_stream *s) {
  int now = s->steps ? NAME_best(s->probabilities) : -1;
  s->n_committed = s->n_forced = 0;
  for (; s->oldest < s->steps; s->oldest++)
    s->committed[s->n_committed++] = NAME_best(s->belief[s->oldest % NAME_WINDOW]);
  s->steps = s->oldest = 0;
  return now;
}
#endif
"""

_LINEAR = """\
        const double *row = NAME_linear + (r * NAME_GROUPS + g) * (NAME_LABELS + 1) * NAME_LABELS;
        for (int j = 0; j < NAME_LABELS; j++) {
          double heard = 0.0;
          for (int i = 0; i < NAME_LABELS; i++) heard += sums[i] * row[i * NAME_LABELS + j];
          score[j] += heard + row[NAME_LABELS * NAME_LABELS + j];
        }
"""
_STUMPS = """\
        for (int m = 0; m < NAME_STUMPS; m++) {
          if (NAME_stump_round[m] > r || NAME_stump_group[m] != g) continue;
          int above = sums[NAME_stump_column[m]] > NAME_stump_threshold[m];
          for (int j = 0; j < NAME_LABELS; j++) score[j] += NAME_stump_values[(2 * m + above) * NAME_LABELS + j];
        }
"""

_PYTHON = """

class Stream:
    def __init__(self, max_lag=@max_lag@):
        self.delay, self.forced = min(AHEAD, max_lag), AHEAD > max_lag
        self.begin()

    def begin(self):
        self.leaves, self.pending = [], 0

    def push(self, x):
        if len(x) != len(COLUMNS) or any(value in (inf, -inf) for value in x):
            raise ValueError("expected %d finite numbers, NaN where one is missing" % len(COLUMNS))
        self.leaves.append([leaf(root, x) for root in ROOTS])
        del self.leaves[: -(BACK + self.delay + 1)]
        beliefs, committed, self.pending = replay(self.leaves), [], self.pending + 1
        if self.pending > self.delay:
            committed.append(beliefs[-self.pending])
            self.pending -= 1
        return answer(beliefs[-1], committed, len(committed) if self.forced else 0)

    def finish(self):
        if not self.leaves:
            return answer([0.0] * len(LABELS), [], 0)
        beliefs = replay(self.leaves)
        rest = beliefs[len(beliefs) - self.pending :]
        self.begin()
        return answer(beliefs[-1], rest, 0)


def replay(leaves):
    local = [list(PRIOR) for _ in leaves]
    beliefs = [softmax(row) for row in local]
    for r in range(ROUNDS):
        fresh = []
        for t, row in enumerate(local):
            row[:] = [a + b for a, b in zip(row, VALUES[leaves[t][r]])]
            score = list(row)
            for g in range(GROUPS):
                sums = [0.0] * len(row)
                for far in NEAR[NEAR_ENDS[g] : NEAR_ENDS[g + 1]]:
                    if 0 <= t + far < len(local):
                        sums = [a + b for a, b in zip(sums, beliefs[t + far])]
@heard@            fresh.append(softmax(score))
        beliefs = fresh
    return beliefs


def softmax(scores):
    top = max(scores)
    parts = [exp(value - top) for value in scores]
    total = sum(parts)
    return [part / total for part in parts]


def answer(shares, committed, forced):
    best = max(shares)
    return {
        "label": LABELS[shares.index(best)] if best > 0 else None,
        "probabilities": list(shares),
        "committed": [LABELS[row.index(max(row))] for row in committed],
        "forced": forced,
    }
"""

_PYTHON_LINEAR = """\
                table = LINEAR[r][g]
                score = [
                    s + (sum([a * row[j] for a, row in zip(sums, table)]) + table[-1][j]) for j, s in enumerate(score)
                ]
"""
_PYTHON_STUMPS = """\
                for m in range(STUMPS):
                    if STUMP_ROUND[m] <= r and STUMP_GROUP[m] == g:
                        above = sums[STUMP_COLUMN[m]] > STUMP_THRESHOLD[m]
                        score = [a + b for a, b in zip(score, STUMP_VALUES[m][above])]
"""


def belief_recursion(
    labels: int,
    rounds: int,
    groups: int,
    most_near: int,
    stumps: int,
    *,
    linear: bool,
    back: int,
    ahead: int,
    leaves: int,
    walk: int,
) -> OwnRecursion:
    """The program of a field of so many labels, rounds, groups that listen, and stumps on what they hear.

    ``walk`` are the operations that find the leaves of a step.
    """
    width, narrow = (
        (1, "unsigned char") if leaves <= 2**8 else (2, "unsigned short") if leaves <= 2**16 else (4, "int")
    )

    def window(max_lag: int) -> int:
        return back + min(ahead, max_lag) + 1

    def state_bytes(max_lag: int) -> int:
        held, pending = window(max_lag), min(ahead, max_lag) + 1
        size = 8 * labels * (1 + 3 * held) + 16 + 4 * (2 + pending) + width * held * rounds
        return -(-size // 8) * 8

    def operations(max_lag: int) -> int:
        own = 5 * labels
        heard = groups * (most_near * labels + linear * labels * (2 * labels + 2)) + stumps * (labels + 1)
        return walk + window(max_lag) * (own + rounds * (labels + heard + own)) + 3 * labels

    c = _C.replace("@narrow@", narrow).replace("@heard@", (_LINEAR if linear else "") + (_STUMPS if stumps else ""))
    told = (_PYTHON_LINEAR if linear else "") + (_PYTHON_STUMPS if stumps else "")
    sizes = {"ROUNDS": rounds, "GROUPS": groups, "BACK": back, "AHEAD": ahead, "STUMPS": stumps}
    return OwnRecursion(c, _PYTHON.replace("@heard@", told), state_bytes, operations, sizes)

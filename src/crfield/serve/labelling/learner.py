"""The model learns on while people label: one thread, one pass at a time, swapped in when it is ready.

What is learnt is always *the model of the file, and all answers*, so that a restart comes to the same place:

- with the training data at hand (``--train``), a pass over a part of them and all answers together, going on from
  pass to pass, which comes close to a fit of both;
- without, one pass over all answers from the file's model anew. To go on from pass to pass over answers alone loses
  what the model knew before, since nothing holds it there.

Steps that were left open are unknown labels, as in ``fit``. A model without ``partial_fit`` is not taught; labels are
kept all the same.
"""

from __future__ import annotations

import copy
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from crfield.errors import CrfieldError
from crfield.serve.labelling.pool import HeldOut, Pool
from crfield.serve.models import Served, Shelf
from crfield.serve.warned import heard
from crfield.storage.label_store import Answer

MOST_TRAINING = 1_000  # sequences of the training data in a pass
MEMORY = 100  # sequences that the file's model counts for, where its training data are not at hand

_log = logging.getLogger("crfield.serve")


class Learner:
    """A thread that teaches the model what people said."""

    def __init__(
        self,
        pool: Pool,
        *,
        held_out: HeldOut | None = None,
        training: tuple[Any, Sequence[Any]] | None = None,
        learnt: Callable[[Any], None] | None = None,
    ) -> None:
        """``learnt`` is handed every model that was swapped in."""
        self.pool, self.held_out, self.training, self.learnt = pool, held_out, training, learnt
        self.base = pool.place.served
        self.model: Any = None  # that goes on from pass to pass
        self.passes = 0
        self.taught = 0  # answers that the served model knows
        self.busy = False
        self.failed: str | None = None
        self._told = threading.Event()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def able(self) -> bool:
        """Whether the model can be taught."""
        return hasattr(self.base.model, "partial_fit")

    def start(self) -> None:
        """Begin, with what the store holds already."""
        self._thread = threading.Thread(target=self._run, name="learner", daemon=True)
        self._thread.start()
        if self.pool.answered or self.held_out is not None:
            self._told.set()

    def tell(self) -> None:
        """There are new answers."""
        self._told.set()

    def stop(self) -> None:
        """End after the pass that is under way."""
        self._ended.set()
        self._told.set()
        if self._thread is not None:
            self._thread.join(30)

    def _run(self) -> None:
        while True:
            self._told.wait()
            self._told.clear()
            if self._ended.is_set():
                return
            self.busy = True
            try:
                self.learn()
                self.failed = None
            except (CrfieldError, MemoryError) as error:
                self.failed = str(error) or type(error).__name__
                _log.warning("the model did not learn: %s", self.failed)
            except Exception:
                self.failed = "an unexpected failure; the log says more"
                _log.exception("the model did not learn")
            finally:
                self.busy = False

    def learn(self) -> None:
        """One pass, then the new model in the place of the old, the score of it, and the order of doubt."""
        answers = self.pool.store.answers()
        place = self.pool.place
        if place.served.version != self.base.version + self.passes:  # the file was replaced
            self.base, self.model, self.passes, self.taught = place.served, None, 0, 0
        scores = self.pool.store.scores()
        if self.held_out is not None and (not scores or scores[-1][0] > len(answers)):
            self.pool.store.note_score(0, self._score(self.base.model))
        if not answers or not self.able or len(answers) == self.taught:
            return
        model = self._taught(answers)
        self.passes += 1
        made = Served.of(self.base.name, model, self.base.manner, self.base.version + self.passes)
        Shelf.swap(place, made)
        self.taught = len(answers)
        if self.held_out is not None:
            self.pool.store.note_score(len(answers), self._score(model))
        self.pool.rank(made)
        if self.learnt is not None:
            self.learnt(model)

    def _taught(self, answers: Sequence[Answer]) -> Any:
        """A copy of the model after one pass."""
        labels = {value: label for (_, value), label in self.base.of_json.items()}
        X = [self.pool.X[answer.sequence] for answer in answers]
        y = [[None if one is None else labels.get(one, one) for one in answer.labels] for answer in answers]
        if self.training is None:
            model, total = copy.deepcopy(self.base.model), len(X) + MEMORY
        else:
            model = copy.deepcopy(self.base.model if self.model is None else self.model)
            known, gold = self.training
            rng = np.random.default_rng(self.passes)
            chosen = rng.permutation(len(known))[:MOST_TRAINING].tolist()
            total = len(known) + len(X)
            X = [known[k] for k in chosen] + X
            y = [list(gold[k]) for k in chosen] + y
        heard(lambda said: model.partial_fit(X, y, n_sequences=total))
        self.model = model
        return copy.copy(model)

    def _score(self, model: Any) -> float:
        assert self.held_out is not None
        predicted = [labels.tolist() for labels in model.predict(self.held_out.X)]
        return float(self.held_out.score(self.held_out.y, predicted))

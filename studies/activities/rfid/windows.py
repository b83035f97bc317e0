"""Readings that come when they come, as steps of a sequence.

A trial is cut into windows of equal length in time. A window with readings is a step, labelled by most of them; empty
ones are left out, and the next step tells how long nothing was heard. Columns of a step:

    acceleration   for each axis mean, deviation, least and greatest value; the length of the mean vector, and the
                   angle of the trunk to the front and to the side
    change         of the three means since the step before
    antennas       each one's share of the readings, and its mean strength (the weakest of all where it heard nothing)
    signal         number of readings, mean and deviation of the strength, how far the phase turns between readings of
                   one antenna, and the gap since the reading before the window (both counts as logarithms)
"""

from __future__ import annotations

import numpy as np

from crfield.storage.datasets.rfid import ANTENNAS, Trial, read_rfid_trials
from studies.framework import Settings, data_path

SILENT = -75.0  # strength where an antenna heard nothing; what it hears is stronger
AXES = ("frontal", "vertical", "lateral")
NAMES = (
    *(f"{axis} {what}" for what in ("mean", "deviation", "least", "greatest") for axis in AXES),
    *("length", "front angle", "side angle"),
    *(f"{axis} change" for axis in AXES),
    *(f"share of antenna {k + 1}" for k in range(ANTENNAS)),
    *(f"strength of antenna {k + 1}" for k in range(ANTENNAS)),
    *("readings", "strength", "strength deviation", "phase turn", "gap"),
)


def trial_windows(trial: Trial, *, seconds: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    """Columns (steps, 31) and labels (steps,) of a trial cut into windows.

    >>> trial = Trial("t", np.array([0.0, 0.5, 9.0]), np.eye(3), np.array([0, 0, 1]), np.full(3, -60.0),
    ...     np.zeros(3), np.array(["lying", "lying", "ambulating"]))
    >>> columns, labels = trial_windows(trial)
    >>> columns.shape == (2, len(NAMES)), labels.tolist()
    (True, ['lying', 'ambulating'])
    """
    windows = np.floor(trial.seconds / seconds).astype(np.int64)
    starts = np.flatnonzero(np.diff(windows, prepend=windows[:1] - 1))
    columns, labels, before = [], [], None
    for start, stop in zip(starts, [*starts[1:], len(windows)]):
        own = slice(start, stop)
        motion = trial.acceleration[own]
        mean = motion.mean(axis=0)
        change = np.zeros(3) if before is None else mean - before
        gap = trial.seconds[start] - trial.seconds[start - 1] if start else 0.0
        columns.append(
            np.concatenate(
                [
                    *(mean, motion.std(axis=0), motion.min(axis=0), motion.max(axis=0)),
                    [np.sqrt(mean @ mean), np.arctan2(mean[0], mean[1]), np.arctan2(mean[2], mean[1])],
                    change,
                    _antennas(trial, own),
                    [
                        np.log1p(stop - start),
                        trial.strength[own].mean(),
                        trial.strength[own].std(),
                        _phase_turn(trial.antenna[own], trial.phase[own]),
                        np.log1p(gap),
                    ],
                ]
            )
        )
        kinds, counts = np.unique(trial.activity[own], return_counts=True)
        labels.append(kinds[np.argmax(counts)])
        before = mean
    return np.array(columns).reshape(-1, len(NAMES)), np.array(labels)


def _antennas(trial: Trial, own: slice) -> np.ndarray:
    """Shares of the readings (4,), then mean strengths (4,)."""
    heard = np.bincount(trial.antenna[own], minlength=ANTENNAS)
    total = np.bincount(trial.antenna[own], trial.strength[own], minlength=ANTENNAS)
    strength = np.where(heard > 0, total / np.maximum(heard, 1), SILENT)
    return np.concatenate([heard / heard.sum(), strength])


def _phase_turn(antenna: np.ndarray, phase: np.ndarray) -> float:
    """Mean of 1 − cos of the phase change between readings of one antenna; 0 without any."""
    turns = [1.0 - np.cos(np.diff(phase[antenna == k])) for k in range(ANTENNAS)]
    turned = np.concatenate(turns)
    return float(turned.mean()) if len(turned) else 0.0


def read_some_trials(settings: Settings) -> list[Trial]:
    """The trials of ``har_rfid/S1_Dataset.tar.gz``; or ``most_trials`` of them, spread out."""
    trials = read_rfid_trials(data_path(settings, "har_rfid", "S1_Dataset.tar.gz"))
    most = settings["most_trials"]
    if most is None or most >= len(trials):
        return trials
    return [trials[k] for k in np.linspace(0, len(trials) - 1, most).astype(int)]

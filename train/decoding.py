"""The best labels of the words of a row under the rules that labels of spans keep. Numpy alone.

`I-ROLE` only continues a span of its role, and no core role has two spans. Exact: a path through
the words knows which core roles it has used, so that of all allowed paths the likeliest is found.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from train.spans import is_core

LEAST = 1e-30
"""Probabilities below it count as it."""


class _Rules(NamedTuple):
    """Where each label may follow, by columns of the scores."""

    anywhere: NDArray[np.int64]
    """`O`, and `B-` of roles that may come again."""
    once: list[tuple[int, NDArray[np.int64], NDArray[np.int64]]]
    """`B-` of each core role: its column, the sets of used roles without it, and with it."""
    inside: NDArray[np.int64]
    """`I-` of roles that can begin."""
    before: NDArray[np.int64]
    """The `B-` of each of those."""
    n_sets: int


@functools.lru_cache(maxsize=16)
def _rules(labels: tuple[str, ...]) -> _Rules:
    begins = {label[2:]: column for column, label in enumerate(labels) if label.startswith("B-")}
    inside = {label[2:]: column for column, label in enumerate(labels) if label.startswith("I-")}
    core = [role for role in begins if is_core(role)]
    n_sets = 1 << len(core)
    sets = np.arange(n_sets)
    once = []
    for bit, role in enumerate(core):
        without = sets[sets & (1 << bit) == 0]
        once.append((begins[role], without, without | (1 << bit)))
    free = [labels.index("O"), *(column for role, column in begins.items() if role not in core)]
    continued = [role for role in inside if role in begins]
    return _Rules(
        anywhere=np.array(free),
        once=once,
        inside=np.array([inside[role] for role in continued], np.int64),
        before=np.array([begins[role] for role in continued], np.int64),
        n_sets=n_sets,
    )


def constrained_marks(
    probabilities: NDArray[np.float32], labels: Sequence[str]
) -> NDArray[np.int64]:
    """The likeliest allowed labels of a row's words: (words, labels) -> columns (words,).

    Of the probabilities of all paths, words taken as independent; the empty row has none.
    """
    rules = _rules(tuple(labels))
    scores = np.log(np.maximum(probabilities.astype(np.float64), LEAST))
    n_words, n_labels = scores.shape
    if not n_words:
        return np.zeros(0, np.int64)
    every_set = np.arange(rules.n_sets)
    path = np.full((rules.n_sets, n_labels), -np.inf)  # by used core roles and last label
    ends = np.full(rules.n_sets, -np.inf)  # the best of each set, whatever its last label
    ends[0] = 0.0
    came_from = np.zeros((n_words, rules.n_sets, n_labels), np.int32)  # set * n_labels + label
    for word in range(n_words):
        last = path.argmax(1)
        origin = every_set * n_labels + last
        further = np.full_like(path, -np.inf)
        further[:, rules.anywhere] = ends[:, None] + scores[word, rules.anywhere]
        came_from[word][:, rules.anywhere] = origin[:, None]
        for column, without, with_it in rules.once:
            further[with_it, column] = ends[without] + scores[word, column]
            came_from[word][with_it, column] = origin[without]
        started, going = path[:, rules.before], path[:, rules.inside]
        further[:, rules.inside] = np.maximum(started, going) + scores[word, rules.inside]
        previous = np.where(started >= going, rules.before, rules.inside)
        came_from[word][:, rules.inside] = every_set[:, None] * n_labels + previous
        path = further
        ends = path.max(1)
    place = int(path.argmax())
    marks = np.zeros(n_words, np.int64)
    for word in range(n_words - 1, -1, -1):
        marks[word] = place % n_labels
        place = int(came_from[word].flat[place])
    return marks

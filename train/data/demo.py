"""`demo`: an embedded data set, generated from a fixed seed, whose labels depend on one another.

Each row is the bag of words of a short article about one of 24 subjects. It carries the labels of
its desk and its subject, and keywords. Who chose the keywords cannot be seen in the words:
somewhat less than half of the articles went through the desk's editor, who gives a subject its own
fixed set of keywords; the others were labelled by passers-by, who pick keywords at random.

So every keyword of a subject has a probability just below one half. A method that judges each
label by itself predicts none of them at threshold 0.5; one that scores label *sets* learns that
the editor's set is by far the most probable single one, and commits to it.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from train.data.dataset import MultiLabelData

SEED = 20240229
ROWS = 3000
WORDS = 120
SUBJECTS = {
    "science": ("astronomy", "genetics", "climate", "robotics"),
    "sport": ("football", "tennis", "sailing", "cycling"),
    "politics": ("elections", "diplomacy", "justice", "defence"),
    "business": ("markets", "energy", "shipping", "farming"),
    "culture": ("cinema", "opera", "painting", "literature"),
    "travel": ("islands", "mountains", "cities", "deserts"),
}
KEYWORDS = (
    "award", "budget", "champion", "court", "data", "debate", "discovery", "festival", "finance",
    "forecast", "france", "health", "history", "interview", "investment", "japan", "laboratory",
    "law", "local", "mystery", "nature", "night", "opening", "protest", "record", "rescue",
    "satellite", "scandal", "technology", "youth",
)  # fmt: skip
KEYWORDS_PER_SUBJECT = 6
EDITED_SHARE = 0.45
EDITOR_GIVES = 0.9
PASSER_BY_GIVES = 0.13


def read_demo() -> MultiLabelData:
    """Generate the data set; always the same rows."""
    rng = np.random.default_rng(SEED)
    subject_names = [name for subjects in SUBJECTS.values() for name in subjects]
    n_subjects, n_desks = len(subject_names), len(SUBJECTS)
    subject = rng.integers(n_subjects, size=ROWS)
    desk = subject // (n_subjects // n_desks)
    targets = np.concatenate(
        [np.eye(n_desks)[desk], np.eye(n_subjects)[subject], _keywords(rng, subject, n_subjects)],
        axis=1,
    )
    return MultiLabelData(
        name="demo",
        inputs=sparse.csr_array(_words(rng, subject, n_subjects).astype(np.float32)),
        targets=sparse.csr_array(targets.astype(np.uint8)),
        labels=(*SUBJECTS, *subject_names, *KEYWORDS),
        features=tuple(f"word_{i:03d}" for i in range(WORDS)),
    )


def _keywords(rng: np.random.Generator, subject: np.ndarray, n_subjects: int) -> np.ndarray:
    """The keywords of each row, (rows, keywords)."""
    own = rng.random((n_subjects, len(KEYWORDS))).argsort(axis=1) < KEYWORDS_PER_SUBJECT
    draw = rng.random((ROWS, len(KEYWORDS)))
    edited = rng.random((ROWS, 1)) < EDITED_SHARE
    return np.where(edited, own[subject] & (draw < EDITOR_GIVES), draw < PASSER_BY_GIVES)


def _words(rng: np.random.Generator, subject: np.ndarray, n_subjects: int) -> np.ndarray:
    """Which words each row has, (rows, words): frequent in its own subject, rare elsewhere."""
    own = rng.random((n_subjects, WORDS)) < 0.12
    probability = np.where(own, 0.8, 0.03)
    words: np.ndarray = rng.random((ROWS, WORDS)) < probability[subject]
    return words

"""Which labels a run holds to be related, beside what its training rows say."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from train.label_map import agreement, inner_products, mutual_information, top_pairs
from train.report.gradients import joint_term, random_label_sets
from train.report.runs import FinishedRun
from train.report.tables import Column, Row, Table

MOST_PAIRS = 15
FROM_ROWS = "training rows"

Maps = dict[str, NDArray[np.float64]]
"""Affinity of all pairs of labels, (labels, labels), by where it comes from."""


def label_maps(run: FinishedRun) -> Maps:
    """The run's own maps, and that of its training rows; empty where the run has none."""
    maps: Maps = {}
    embeddings = run.checkpoint.label_embeddings()
    if embeddings is not None:
        maps["label embeddings"] = inner_products(embeddings.numpy())
    joint = joint_term(run.checkpoint)
    if joint is not None:
        labels = np.arange(len(run.checkpoint.labels))
        maps["energy network"] = joint.mean_interaction(random_label_sets(len(labels)), labels)
    if maps:
        maps[FROM_ROWS] = mutual_information(run.problem.train.targets)
    return maps


def pair_tables(run: FinishedRun, maps: Maps) -> list[Table]:
    """The most related pairs of each map."""
    names = run.checkpoint.labels
    return [
        Table(
            f"most related labels: {source}",
            [Column("label"), Column("label"), Column("affinity", ".4g")],
            [
                [pair.first, pair.second, pair.affinity]
                for pair in top_pairs(affinity, names, MOST_PAIRS)
            ],
        )
        for source, affinity in maps.items()
    ]


def agreement_table(maps: Maps) -> Table:
    """How far each of the run's maps orders the pairs as the training rows do."""
    rows: list[Row] = [
        [source, agreement(affinity, maps[FROM_ROWS])]
        for source, affinity in maps.items()
        if source != FROM_ROWS
    ]
    return Table(
        "agreement with the training rows",
        [Column("map"), Column("rank correlation", ".3f")],
        rows,
        "Spearman, over all pairs; training rows: normalised pointwise mutual information",
    )

"""Where a run's encoder puts the test rows: do those with the same labels lie together?

Every label combination is a cluster of rows (ABALONE: Audibert et al., ECML PKDD 2024). Rare ones
say little, so that the most frequent half of the combinations is looked at, and other shares in a
curve.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from train.losses import Members, attraction_and_repulsion
from train.report.runs import FinishedRun
from train.report.tables import Column, Table

MOST_ROWS = 10_000
MOST_PAIRED_ROWS = 2_000
"""For means over all pairs of rows."""
USUAL_SHARE = 0.5
SHARES = tuple(i / 10 for i in range(1, 11))
BLOCK = 256
"""Rows whose distances to all others are held at once."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Clusters:
    """How well the most frequent combinations are apart, for each share of them that is kept.

    silhouette: mean over rows of (b - a) / max(a, b), a the mean distance to the others of its
        combination and b that to the nearest other combination; 1 is best. A row that is alone in
        its combination counts 0. None where there are too few combinations or rows.
    davies_bouldin: mean over combinations of the largest (s_i + s_j) / d_ij, s the mean distance
        of rows to their centre and d that of two centres; 0 is best.
    """

    share: list[float]
    combinations: list[int]
    rows: list[int]
    silhouette: list[float | None]
    davies_bouldin: list[float | None]

    def table(self) -> Table:
        """One row a share."""
        columns = (self.share, self.combinations, self.rows, self.silhouette, self.davies_bouldin)
        return Table(
            "label combinations as clusters",
            [Column("share kept", ".0%"), Column("combinations", ",d"), Column("rows", ",d"),
             Column("silhouette", "+.4f"), Column("Davies-Bouldin", ".4f")],
            [list(row) for row in zip(*columns, strict=True)],
            "the most frequent label combinations of the test rows, of equally frequent ones the "
            "one with the lower label numbers; Euclidean distances; high silhouettes and low "
            "Davies-Bouldin indexes mean tight clusters far apart",
        )  # fmt: skip


def shown_rows(run: FinishedRun) -> Ints:
    """All test rows, or some drawn from them, the same for every run on them."""
    count = run.true.shape[0]
    if count <= MOST_ROWS:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).choice(count, MOST_ROWS, replace=False))


def combination_ranks(targets: sparse.csr_array) -> Ints:
    """The number of each row's label combination, 0 for the most frequent: (rows,).

    Of equally frequent ones the one with the lower label numbers comes first.
    """
    sets = [
        tuple(sorted(targets.indices[start:end].tolist()))
        for start, end in zip(targets.indptr[:-1], targets.indptr[1:], strict=True)
    ]
    counts = Counter(sets)
    order = sorted(counts, key=lambda labels: (-counts[labels], labels))
    rank = {labels: number for number, labels in enumerate(order)}
    return np.array([rank[labels] for labels in sets], dtype=np.int64)


def cluster_scores(
    vectors: Floats, ranks: Ints, shares: tuple[float, ...] = (USUAL_SHARE, *SHARES)
) -> Clusters:
    """Silhouette and Davies-Bouldin index of the most frequent combinations.

    vectors: (rows, size). ranks: of each row, see `combination_ranks`.
    """
    shares = tuple(sorted(set(shares)))
    kept = [math.ceil(share * (ranks.max() + 1)) for share in shares]
    silhouettes = _silhouettes(vectors, ranks, kept)
    return Clusters(
        share=list(shares),
        combinations=kept,
        rows=[int((ranks < count).sum()) for count in kept],
        silhouette=silhouettes,
        davies_bouldin=[_davies_bouldin(vectors, ranks, count) for count in kept],
    )


def _silhouettes(vectors: Floats, ranks: Ints, kept: list[int]) -> list[float | None]:
    """The mean silhouette of the first so many combinations, for each such number.

    Distances are computed once for all of them, block by block.
    """
    order = np.argsort(ranks, kind="stable")
    vectors, ranks = vectors[order], ranks[order]
    sizes = np.bincount(ranks)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    sums = np.zeros(len(kept))
    for first in range(0, len(ranks), BLOCK):
        own = ranks[first : first + BLOCK]
        rows = np.arange(len(own))
        distances = _distances(vectors[first : first + BLOCK], vectors)
        distances[rows, first + rows] = 0.0  # rounding aside, a row is at its own place
        means = np.add.reduceat(distances, starts, axis=1)  # sums so far, (block, combinations)
        a = means[rows, own] / np.maximum(sizes[own] - 1, 1)
        means /= sizes
        means[rows, own] = np.inf
        for place, count in enumerate(kept):
            is_kept = own < count
            b = means[is_kept, :count].min(axis=1, initial=np.inf)
            if count > 1 and len(b):
                inner = a[is_kept]
                widest = np.maximum(inner, b)
                s = np.where(widest > 0, (b - inner) / np.where(widest > 0, widest, 1), 0.0)
                sums[place] += s[sizes[own[is_kept]] > 1].sum()
    rows_kept = [int(sizes[:count].sum()) for count in kept]
    return [
        float(total / rows) if 1 < count < rows else None
        for total, count, rows in zip(sums, kept, rows_kept, strict=True)
    ]


def _davies_bouldin(vectors: Floats, ranks: Ints, count: int) -> float | None:
    is_kept = ranks < count
    if not 1 < count < is_kept.sum():
        return None
    vectors, ranks = vectors[is_kept], ranks[is_kept]
    sizes = np.bincount(ranks)
    centres = np.zeros((count, vectors.shape[1]))
    np.add.at(centres, ranks, vectors)
    centres /= sizes[:, None]
    spread = np.bincount(ranks, np.linalg.norm(vectors - centres[ranks], axis=1)) / sizes
    apart = _distances(centres, centres)
    np.fill_diagonal(apart, np.inf)
    # Two combinations with one centre cannot be told apart: left out, as scikit-learn does it.
    ratio = (spread[:, None] + spread) / np.where(apart > 0, apart, np.inf)
    return float(ratio.max(axis=1).mean())


def _distances(a: Floats, b: Floats) -> Floats:
    """Euclidean distances of every pair, (of a, of b)."""
    squares = (a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * a @ b.T
    return np.asarray(np.sqrt(np.maximum(squares, 0.0)))


def pull_table(vectors: Floats, targets: sparse.csr_array) -> Table:
    """Attraction and repulsion of rows by their labels; targets: of the same rows."""
    chosen = np.random.default_rng(0).permutation(len(vectors))[:MOST_PAIRED_ROWS]
    z = torch.from_numpy(vectors[chosen])
    rows = Members(
        torch.nn.functional.normalize(z, dim=1),
        torch.from_numpy(targets[chosen].toarray()).to(z.dtype),
    )
    attraction, repulsion = attraction_and_repulsion(rows)
    return Table(
        "cosines of pairs of rows",
        [Column("pairs"), Column("mean cosine", "+.4f")],
        [["with a common label", -float(attraction)], ["without", float(repulsion)]],
        f"of {len(chosen):,} test rows; contrastive training draws the first together and the "
        "others apart",
    )


def principal_plane(vectors: Floats) -> tuple[Floats, float]:
    """Places of the rows on their first two principal components, and the variance they hold.

    Signs are fixed: the largest weight of a component is positive. Returns (rows, 2), and the share
    of the variance.
    """
    centred = vectors - vectors.mean(axis=0)
    variances, directions = np.linalg.eigh(centred.T @ centred)
    first = directions[:, ::-1][:, :2]
    first = first * np.sign(first[np.abs(first).argmax(axis=0), np.arange(first.shape[1])])
    places = np.zeros((len(vectors), 2))
    places[:, : first.shape[1]] = centred @ first
    total = float(variances.sum())
    return places, float(variances[::-1][:2].sum() / total) if total > 0 else 0.0

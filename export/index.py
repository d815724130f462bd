"""An index over the label table: cells of near labels, of which a search reads only a few."""

from __future__ import annotations

import math
from pathlib import Path

import faiss
import numpy as np
from numpy.typing import NDArray

from export.bundle import BundleError
from export.manifest import Search
from export.verify import LEAST_RECALL

LEAST_LABELS = 10_000
"""Fewer are scored faster one and all."""
TRAINING_VECTORS_PER_CELL, TRAINING_ROUNDS = 40, 10
"""More of either took minutes; in the one index compared, no more labels were found."""
TOP_K = 10


def build_index(table: NDArray[np.float32], queries: NDArray[np.float32], path: Path) -> Search:
    """Write labels.faiss, and choose how many cells are searched by the recall on real rows.

    Args:
        table: One vector a label, (labels, size).
        queries: Embeddings of real rows, (rows, size).
        path: Where to write the index.
    """
    n_labels, size = table.shape
    if n_labels < LEAST_LABELS:
        raise BundleError(
            f"--index ivf is for at least {LEAST_LABELS} labels, this model has {n_labels}: "
            "export it without"
        )
    cells = 2 ** round(math.log2(4 * math.sqrt(n_labels)))
    index = faiss.IndexIVFFlat(faiss.IndexFlatIP(size), size, cells, faiss.METRIC_INNER_PRODUCT)
    # Seeded, and on as many vectors as it needs: the rest would only cost time.
    chosen = np.random.default_rng(0).permutation(n_labels)[: cells * TRAINING_VECTORS_PER_CELL]
    index.cp.niter = TRAINING_ROUNDS
    index.train(np.ascontiguousarray(table[np.sort(chosen)]))
    for start in range(0, n_labels, 2**16):
        index.add(np.ascontiguousarray(table[start : start + 2**16]))
    search = _search(index, table, queries)
    faiss.write_index(index, str(path))
    return search


def _search(
    index: faiss.IndexIVFFlat, table: NDArray[np.float32], queries: NDArray[np.float32]
) -> Search:
    """The fewest cells, doubled from 1, that find enough of the best labels."""
    k = min(TOP_K, len(table))
    best = np.stack([np.sort(table @ query)[-k] for query in queries])[:, None]
    least = best - 1e-5 * np.maximum(1, np.abs(best))
    nprobe, recall = 1, 0.0
    while True:
        index.nprobe = nprobe
        found, _ = index.search(np.ascontiguousarray(queries), k)
        recall = float((found >= least).mean())
        if recall >= LEAST_RECALL or nprobe >= index.nlist:
            return Search(kind="ivf", recall=recall, rows=len(queries), nprobe=nprobe)
        nprobe = min(2 * nprobe, index.nlist)

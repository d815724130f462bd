"""Which labels are related, as a matrix: from embeddings or from data, ordered, drawn, compared.

A map is an affinity matrix (labels, labels), symmetric, high for labels that go together. Its
diagonal says nothing about pairs: it is 0 here, and never looked at.

    inner_products        of label embeddings (Bai et al., ICML 2022, C-GMVAE's label map)
    mutual_information    of label columns: what the data itself says

Any other matrix will do, such as the mean second derivatives of an energy network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform
from scipy.stats import spearmanr

from train.errors import needs_extra

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST_SHOWN = 60
"""Labels whose names are still legible on one figure."""
MOST_TURNED = 300
"""Labels up to which branches of the tree are turned so that neighbours fit: cubic in labels."""
LONGEST_NAME = 26
FULL_COLOUR = 0.99
"""Quantile of absolute affinities that gets the full colour, lest one pair bleach the rest."""


def inner_products(embeddings: NDArray[np.floating]) -> Floats:
    """Affinity of labels with embeddings (labels, size): their inner products."""
    vectors = np.asarray(embeddings, dtype=np.float64)
    return _without_diagonal(vectors @ vectors.T)


def mutual_information(targets: sparse.csr_array) -> Floats:
    """Affinity of the columns of targets (rows, labels): normalised pointwise mutual information.

    log(p_ik / (p_i p_k)) / -log p_ik: 1 for labels that only occur together, 0 for independent
    ones, -1 for labels that never meet. A label that no row has is independent of all, and so are
    two labels that every row has.
    """
    n_rows = targets.shape[0]
    counts = np.asarray(targets.sum(axis=0), dtype=np.float64).ravel()
    columns = targets.astype(np.float64)
    together = (columns.T @ columns).toarray()
    met = (together > 0) & (together < n_rows)
    with np.errstate(divide="ignore", invalid="ignore"):
        information = np.log(together * n_rows / np.outer(counts, counts)) / -np.log(
            together / n_rows
        )
    never = np.where(np.outer(counts, counts) > 0, -1.0, 0.0)
    return _without_diagonal(np.where(met, information, np.where(together > 0, 0.0, never)))


def _without_diagonal(matrix: Floats) -> Floats:
    np.fill_diagonal(matrix, 0.0)
    return matrix


def order(affinity: Floats) -> Ints:
    """Order labels so that related ones stand side by side: leaves of an average-linkage tree."""
    affinity = _checked(affinity)
    if len(affinity) < 3:
        return np.arange(len(affinity))
    distance = affinity.max() - affinity
    np.fill_diagonal(distance, 0.0)
    turned = len(affinity) <= MOST_TURNED
    tree = linkage(squareform(distance, checks=False), "average", optimal_ordering=turned)
    return np.asarray(leaves_list(tree), dtype=np.int64)


@dataclass(frozen=True)
class RelatedPair:
    """Two labels and how related they are."""

    first: str
    second: str
    affinity: float


def top_pairs(affinity: Floats, names: Sequence[str], count: int = 20) -> list[RelatedPair]:
    """List the most related pairs, each once, the best first; equal ones in the order of labels."""
    affinity = _checked(affinity, names)
    first, second = np.triu_indices(len(affinity), k=1)
    values = affinity[first, second]
    best = np.argsort(-values, kind="stable")[:count]
    return [
        RelatedPair(names[first[place]], names[second[place]], float(values[place]))
        for place in best
    ]


def agreement(one: Floats, other: Floats) -> float:
    """Spearman's rank correlation of two maps over all pairs; NaN if a map has one value only."""
    one, other = _checked(one), _checked(other)
    if one.shape != other.shape:
        raise ValueError(f"maps of {len(one)} and {len(other)} labels cannot be compared")
    pairs = np.triu_indices(len(one), k=1)
    values = one[pairs], other[pairs]
    if any(len(np.unique(value)) < 2 for value in values):
        return float("nan")
    return float(spearmanr(*values).statistic)


def most_frequent(counts: NDArray[np.integer], most: int) -> Ints:
    """Number the `most` labels with the greatest counts, in their own order."""
    return np.sort(np.argsort(-np.asarray(counts), kind="stable")[:most])


def heat_map(
    affinity: Floats,
    names: Sequence[str],
    counts: NDArray[np.integer],
    *,
    title: str,
    most: int = MOST_SHOWN,
) -> Figure:
    """Draw the map with related labels side by side; of many labels, the `most` frequent ones.

    names, counts: of each label, its name and its number of rows.
    """
    with needs_extra("report", "a figure"):
        from matplotlib.figure import Figure  # noqa: PLC0415 - needs the extra

    affinity = _checked(affinity, names)
    chosen = most_frequent(counts, most)
    chosen = chosen[order(affinity[np.ix_(chosen, chosen)])]
    shown = affinity[np.ix_(chosen, chosen)].copy()
    np.fill_diagonal(shown, np.nan)  # drawn as nothing
    side = 2.5 + 0.16 * len(chosen)
    figure = Figure(figsize=(side + 0.8, side), layout="constrained")
    axes = figure.subplots()
    limit = _full_colour(shown)
    image = axes.imshow(shown, cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="nearest")
    labels = [_short(names[label]) for label in chosen]
    places = range(len(chosen))
    # Names may hold any letters: "$" is none of mathematics.
    axes.set_xticks(places, labels, rotation=90, fontsize=7, parse_math=False)
    axes.set_yticks(places, labels, fontsize=7, parse_math=False)
    is_part = len(chosen) < len(names)
    part = f"the {len(chosen)} most frequent of {len(names)} labels" if is_part else ""
    axes.set_title("\n".join(filter(None, [title, part])), fontsize=10, parse_math=False)
    figure.colorbar(image, ax=axes, shrink=0.6)
    return figure


def _full_colour(shown: Floats) -> float:
    values = np.abs(shown[~np.isnan(shown)])
    limit = np.quantile(values, FULL_COLOUR) if len(values) else 0.0
    return float(limit) or 1.0


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"


def _checked(affinity: Floats, names: Sequence[str] | None = None) -> Floats:
    """Refuse what is no map; the diagonal of the copy returned is 0."""
    matrix = np.array(affinity, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"a map is a square matrix, got the shape {matrix.shape}")
    if names is not None and len(names) != len(matrix):
        raise ValueError(f"a map of {len(matrix)} labels, but {len(names)} names")
    np.fill_diagonal(matrix, 0.0)
    if not np.isfinite(matrix).all() or not np.allclose(matrix, matrix.T):
        raise ValueError("a map is a symmetric matrix of finite numbers")
    return matrix

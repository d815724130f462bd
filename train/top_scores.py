"""Scores where labels are too many for a number each: the best labels of every row, exactly."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from train import ranks
from train.batches import Inputs, Rows
from train.metrics import TopLabels
from train.slices import side_by_side, slices_of

MOST_LABELS = 50_000
MOST_BYTES = 1 << 30
"""Of a matrix of float32 scores, rows x labels; beyond either, only the best labels are kept."""
KEPT_LABELS = 100
CHUNK_ROWS = 256
CHUNK_SCORES = 1 << 24
"""Scores at a time."""


def keeps_best_only(n_rows: int, n_labels: int) -> bool:
    """Whether a score for every label of so many rows is too much."""
    return n_labels > MOST_LABELS or 4 * n_rows * n_labels > MOST_BYTES


@torch.no_grad()
def top_labels(
    predictor: nn.Module,
    rows: Rows,
    n_labels: int,
    device: torch.device,
    *,
    k: int = KEPT_LABELS,
    index: Tensor | None = None,
) -> TopLabels:
    """The k best labels of all rows, or of those in `index`, with scores in [0, 1].

    A network that tells its embeddings is asked for them once, and labels go by in chunks; for any
    other, fewer rows are scored at a time. Ranks score rows in turn, and the first alone gets all;
    where each holds a slice of the labels, all score all rows by it.
    """
    was_training = predictor.training
    predictor.eval()
    numbers = torch.arange(len(rows)) if index is None else index
    embeddings = getattr(predictor, "label_embeddings", None)
    table = embeddings() if embeddings is not None and hasattr(predictor, "embed") else None
    size = CHUNK_ROWS if table is not None else max(1, CHUNK_SCORES // n_labels)
    found: tuple[list[Tensor], list[Tensor]] = [], []
    chunks = numbers.split(size)
    own = slices_of(predictor).get("labels")
    for chunk in ranks.in_turn(chunks) if own is None else chunks:
        x = rows.batch(chunk.to(device))
        logits, labels = _best(predictor, table, x, min(k, n_labels))
        if own is not None:
            logits, labels = _best_of_ranks(logits, labels + own.first, min(k, n_labels))
        found[0].append(logits.sigmoid().cpu())
        found[1].append(labels.cpu())
    predictor.train(was_training)
    sizes = [len(chunk) for chunk in chunks]
    scores, ranked = (
        (ranks.collected(part, sizes) if own is None else torch.cat(part)).numpy() for part in found
    )
    return TopLabels(ranked=ranked, scores=scores, n_labels=n_labels)


def _best(predictor: nn.Module, table: Tensor | None, x: Inputs, k: int) -> tuple[Tensor, Tensor]:
    """The k highest logits of each row, falling, and their labels: (rows, k) each."""
    if table is None:
        best: tuple[Tensor, Tensor] = predictor(x).topk(k)
        return best
    embedded: Tensor = predictor.embed(x)  # type: ignore[operator]
    logits = embedded.new_empty(len(embedded), 0)
    labels = torch.empty(len(embedded), 0, dtype=torch.int64, device=embedded.device)
    first = 0
    for part in table.split(max(1, CHUNK_SCORES // len(embedded))):
        found, places = (embedded @ part.t()).topk(min(k, len(part)))
        logits, labels = torch.cat([logits, found], 1), torch.cat([labels, places + first], 1)
        logits, order = logits.topk(min(k, logits.shape[1]))
        labels = labels.gather(1, order)
        first += len(part)
    return logits, labels


def _best_of_ranks(logits: Tensor, labels: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k best of what the ranks' slices have, of the same rows: (rows, k) each."""
    logits, order = side_by_side(logits).topk(k)
    return logits, side_by_side(labels).gather(1, order)

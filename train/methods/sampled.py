"""Sampled negatives: each true label is compared with a few others, up to millions of labels.

Rawat, Menon, Jitkrittum, Jayasumana, Yu, Reddi, Kumar: "Disentangling sampling and labeling bias
for learning in large-output spaces", ICML 2021. A step costs what its rows, their labels and m
negatives cost, whatever the number of labels: only those rows of the label table, and of the first
layer's, are read and changed. Which labels are drawn (q) and how they weigh (w) decides whether
frequent or rare labels gain: see `train/losses/sampled.py` for the table.

    symbol    here
    m         negatives
    q         sampler
    w         weighting
    f         inner product of both embeddings (softmax) or their cosine (contrastive)

Differences from the paper: negatives are drawn once for all pairs of a batch; the labels of other
pairs of the same row count as negatives (they do in the paper's reduction, too); no settings of
the optimiser were published, so they are ours.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional

from train import ranks, segments
from train.batches import Inputs, LabelLists, SparseBatch
from train.config import Monitor, TrainingConfig, require_fraction, require_positive
from train.errors import ConfigError
from train.losses.sampled import (
    Negatives,
    Sampler,
    Weighting,
    batch_negatives,
    label_prior,
    log_weights,
    model_negatives,
    sampled_contrastive,
    sampled_softmax,
    uniform_negatives,
)
from train.method import Method
from train.nets.mlp import Activation
from train.nets.retrieval import RetrievalNet
from train.problem import Problem, Shape
from train.slices import Slice, slice_of
from train.table_optimizer import TableOptimizer

MOST_SCORED_LABELS = 50_000
"""Up to so many, the model itself may choose negatives: it scores all labels for every pair."""
ROWS_LOOKED_AT = 128
"""To scale the first layer by."""
OFFSET_STEPS = 100
"""Steps over which the offset of the logits is averaged."""
ACTIVATIONS: dict[str, Activation] = {"linear": lambda x: x, "softplus": functional.softplus}


def _kinds() -> dict[str, dict[str, Any]]:
    """Every pair of sampler and weighting under each loss; `relative` needs the sampler's q_y."""
    return {
        f"{prefix}{sampler}-{weighting}": {
            "loss": loss, "sampler": sampler, "weighting": weighting
        }
        for loss, prefix in (("softmax", ""), ("contrastive", "contrastive-"))
        for sampler in get_args(Sampler)
        for weighting in get_args(Weighting)
        if (sampler, weighting) != ("model", "relative")
    }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Config(TrainingConfig):
    """Hyper-parameters of training with sampled negatives."""

    KINDS: ClassVar[dict[str, dict[str, Any]]] = _kinds()

    loss: Literal["softmax", "contrastive"] = "softmax"
    """`softmax` of inner products, or `contrastive`: squared hinges of cosines."""
    sampler: Sampler = "uniform"
    """Where negatives come from: all labels alike, the batch's own labels, the model's scores."""
    weighting: Weighting = "constant"
    """How negatives weigh; see the page of the method for what it does to rare labels."""
    negatives: int = 256
    """Negatives drawn for a batch (sampler `model`: for each pair)."""
    hidden: tuple[int, ...] = (512,)
    """Width of each hidden layer; the last is the size of the embeddings."""
    activation: Literal["linear", "softplus"] = "linear"
    """What follows each hidden layer."""
    dropout: float = 0.0
    """Share of hidden units dropped after each layer but the last."""
    lr: float = 2e-3
    """Step size of Adam."""
    epochs: int = 30
    """Passes over the training rows, at most."""
    patience: int = 5
    """Stop after this many epochs without a better validation score."""
    monitor: Monitor = "ndcg@5"
    """What the best epoch is judged by."""
    batch_size: int = 128
    """Rows in a training batch."""
    shard_labels: bool = False
    """Whether each of several processes holds a part of the label table, not all of it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "lr", "negatives")
        require_fraction(self, "dropout")
        if (self.sampler, self.weighting) == ("model", "relative"):
            raise ConfigError(
                "--weighting relative divides by how often the sampler draws the true label, and "
                "--sampler model never does: take another of the two"
            )
        if self.shard_labels and self.sampler == "model":
            raise ConfigError(
                "--sampler model scores all labels for every pair, and with --shard-labels no "
                "process has all of them: leave out one of the two"
            )


def predictor(config: Config, shape: Shape, label_slice: Slice | None = None) -> RetrievalNet:
    """Build the untrained network, or what a rank holds of it."""
    return RetrievalNet(
        shape.n_features,
        shape.n_labels,
        config.hidden,
        dropout=config.dropout,
        activation=ACTIVATIONS[config.activation],
        cosine=config.loss == "contrastive",
        label_slice=label_slice,
    )


def _label_slice(config: Config, n_labels: int) -> Slice | None:
    """The labels that this rank holds; None for all."""
    if not config.shard_labels or ranks.size() == 1:
        return None
    if n_labels < ranks.size():
        raise ConfigError(
            f"--shard-labels: {n_labels} labels are too few for {ranks.size()} processes: leave "
            "it out, or start fewer"
        )
    return slice_of(n_labels, ranks.rank())


class Sampled(Method):
    """A network of two towers, whose tables are changed row by row."""

    predictor: RetrievalNet
    takes_label_lists = True

    def __init__(self, config: Config, problem: Problem) -> None:
        self.config = config
        label_slice = _label_slice(config, problem.shape.n_labels)
        self.predictor = predictor(config, problem.shape, label_slice).to(problem.device)
        first = torch.arange(min(len(problem.train), ROWS_LOOKED_AT), device=problem.device)
        self.predictor.features.input.scale_to(problem.train.x.batch(first))
        self.optimizer = TableOptimizer(
            self.predictor, ("features.input.weight", "labels"), lr=config.lr
        )
        counts = torch.from_numpy(problem.train.targets.sum(axis=0, dtype="float64"))
        self.log_prior = label_prior(counts).float().to(problem.device)

    def step(self, x: Inputs, y: LabelLists) -> dict[str, Tensor]:
        """One step on the pairs of the batch and their negatives."""
        n_pairs = ranks.count(len(y.labels))
        if not n_pairs:
            return {"objective": torch.zeros((), device=self.log_prior.device)}
        negatives = self._draw(x, y)
        labels, places = segments.distinct(torch.cat([y.labels, negatives.labels.flatten()]))
        columns, x = x.narrowed() if isinstance(x, SparseBatch) else (None, x)
        rows = self.optimizer.borrow({"features.input.weight": columns, "labels": labels})
        tables = {name: table.values for name, table in rows.items()}
        logits = functional_call(self.predictor, tables, (x,))  # (batch, distinct labels)
        true, false = _scores(logits, y, negatives, places)
        weights = log_weights(self.config.weighting, negatives, y.labels, self.log_prior)
        if self.config.loss == "contrastive":
            losses = sampled_contrastive(true, false, weights)
        else:
            losses = sampled_softmax(true, false, weights)
            self._move_offset(ranks.total(true.detach().sum()) / n_pairs)
        loss = ranks.row_sum(losses.sum() / n_pairs)
        self.optimizer.step(loss, rows)
        return {"objective": loss.detach()}

    def _draw(self, x: Inputs, y: LabelLists) -> Negatives:
        count, generator = self.config.negatives, ranks.common_generator(y.labels.device)
        if self.config.sampler == "uniform":
            return uniform_negatives(y.labels, y.shape[1], count, generator)
        if self.config.sampler == "within-batch":
            of_batch = ranks.whole_lists(y.rows, y.labels)
            drawn = batch_negatives(of_batch, self.log_prior, count, generator)
            return replace(drawn, log_q_true=self.log_prior.index_select(0, y.labels))
        with torch.no_grad():
            scores = self.predictor(x)
        return model_negatives(scores.index_select(0, y.rows), y.labels, count)

    @torch.no_grad()
    def _move_offset(self, mean: Tensor) -> None:
        """Follow the mean of true labels: a score of 0.5 is as sure as of an average one."""
        share = 1 / min(self.optimizer.steps + 1, OFFSET_STEPS)
        self.predictor.offset.add_(mean, alpha=share)

    def end_epoch(self, validation_score: float) -> None:
        """Halve the rate on a plateau."""
        self.optimizer.end_epoch(validation_score)


def _scores(
    logits: Tensor, y: LabelLists, negatives: Negatives, places: Tensor
) -> tuple[Tensor, Tensor]:
    """The scores of each pair's label, (pairs,), and of its negatives, (pairs, m)."""
    n_pairs = len(y.labels)
    # As flat places: there a gradient is one sum in a fixed order.
    first = y.rows * logits.shape[1]
    true = logits.flatten().index_select(0, first + places[:n_pairs])
    drawn = places[n_pairs:].view(negatives.labels.shape)
    if drawn.dim() == 1:
        return true, logits.index_select(1, drawn).index_select(0, y.rows)
    cells = (first.unsqueeze(1) + drawn).flatten()
    return true, logits.flatten().index_select(0, cells).view_as(drawn)


def build(config: Config, problem: Problem) -> Method:
    """Make the method ready for its first step."""
    n_labels = problem.shape.n_labels
    if config.sampler == "model" and not 2 <= n_labels <= MOST_SCORED_LABELS:
        raise ConfigError(
            f"--sampler model scores all labels for every pair, so there must be 2 to "
            f"{MOST_SCORED_LABELS} of them, got {n_labels}: take uniform or within-batch"
        )
    return Sampled(config, problem)

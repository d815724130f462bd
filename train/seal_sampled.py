"""SEAL where labels are too many to score: every batch has a small vocabulary of its own.

The labels of a batch's rows, B, and m that are drawn uniformly from all L, are the only ones that
both networks see for it: task-net logits, noise, label sets and energies have one column for each.
Cross-entropy stays unbiased: a drawn label outside B stands for L / m labels that were not drawn;
those of B are all there. Energies take labels outside the vocabulary for absent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from train import ranks, segments
from train.batches import Inputs, LabelLists, SparseBatch
from train.errors import ConfigError
from train.losses import LabelNoise, nce_ranking, ranking, task_objective
from train.method import Method
from train.nets.energy import EnergyNet
from train.nets.mlp import TaskNet
from train.optimizer import CLIP_NORM
from train.problem import Problem
from train.table_optimizer import Borrowed, TableOptimizer

LOSSES = ("nce", "ranking")
FIRST_LAYER = "features.input.weight"
# Of a column that stands for no label: it is never drawn, and adds nothing to an energy.
ABSENT_LOGIT = -100.0
ROWS_LOOKED_AT = 128


def check_negatives(negatives: int, loss: str) -> None:
    """Refuse a number of labels that cannot be, or a loss that cannot do with a part of them."""
    if negatives < 0:
        raise ConfigError(f"--negatives must be 0 or more, got {negatives}")
    if negatives and loss not in LOSSES:
        raise ConfigError(
            f"--negatives goes with --loss {' or '.join(LOSSES)}, dynamic, not with {loss}: leave "
            "one of them out"
        )


class SampledSeal(Protocol):
    """What a config says about SEAL with sampled labels."""

    @property
    def loss(self) -> str:
        """`nce` or `ranking`."""
        ...

    @property
    def lr(self) -> float:
        """Step size of the task-net."""
        ...

    @property
    def loss_lr(self) -> float:
        """Step size of the loss-net."""
        ...

    @property
    def energy_weight(self) -> float:
        """Weight of the energy in the task-net's objective."""
        ...

    @property
    def loss_steps(self) -> int:
        """Steps of the loss-net before each step of the task-net."""
        ...

    @property
    def task_steps(self) -> int:
        """Steps of the task-net on each batch."""
        ...

    @property
    def samples(self) -> int:
        """Label sets drawn from the task-net for each row."""
        ...

    @property
    def negatives(self) -> int:
        """Labels drawn for each batch."""
        ...


@dataclass(frozen=True)
class Vocabulary:
    """A batch with the labels that it is about."""

    x: Inputs  # (batch, features), or the columns of them that are not all zero
    features: Tensor | None  # numbers of those columns; None: all
    labels: Tensor  # (chosen,)
    truth: Tensor  # (batch, chosen)
    weights: Tensor  # (chosen,): for how many labels each stands
    is_label: Tensor  # (chosen,): false where an accelerator repeats the last one

    def rows_of(self, tables: Mapping[str, Tensor]) -> dict[str, Tensor | None]:
        """Which rows of a network's tables the batch needs."""
        return {name: self.features if name == FIRST_LAYER else self.labels for name in tables}


def draw_vocabulary(
    x: Inputs, y: LabelLists, count: int, generator: torch.Generator | None = None
) -> Vocabulary:
    """Choose the labels of the batch and `count` more, drawn with replacement from all."""
    n_rows, n_labels = y.shape
    device = y.labels.device
    drawn = torch.randint(n_labels, (count,), generator=generator, device=device)
    of_batch = ranks.whole_lists(y.rows, y.labels)
    labels, places = segments.distinct(torch.cat([of_batch, drawn]))
    in_batch_places, others = places[: len(of_batch)], places[len(of_batch) :]
    in_batch = torch.zeros(len(labels), device=device).index_fill_(0, in_batch_places, 1.0)
    times = torch.zeros(len(labels), device=device).index_add_(
        0, others, torch.full((count,), n_labels / count, device=device)
    )
    own = torch.searchsorted(labels, y.labels)
    truth = torch.zeros(n_rows * len(labels), device=device)
    truth.index_fill_(0, y.rows * len(labels) + own, 1.0)
    features, x = x.narrowed() if isinstance(x, SparseBatch) else (None, x)
    return Vocabulary(
        x=x,
        features=features,
        labels=labels,
        truth=truth.view(n_rows, -1),
        weights=torch.where(in_batch > 0, in_batch, times),
        is_label=(in_batch + times) > 0,
    )


def sampled_cross_entropy(logits: Tensor, batch: Vocabulary) -> Tensor:
    """Estimate the cross-entropy of all labels, summed over labels and averaged over rows.

    logits: (batch, chosen).
    """
    losses = functional.binary_cross_entropy_with_logits(logits, batch.truth, reduction="none")
    return (losses @ batch.weights).mean()


class SealSampled(Method):
    """SEAL's dynamic training on the labels of each batch and a few more."""

    predictor: TaskNet
    takes_label_lists = True

    def __init__(
        self, config: SampledSeal, task_net: TaskNet, loss_net: EnergyNet, problem: Problem
    ) -> None:
        if problem.shape.encoder is not None:
            raise ConfigError(
                "--negatives is for feature vectors, not for a text encoder that is trained: "
                "use --tuning frozen or --encoder tfidf"
            )
        self.config = config
        self.predictor, self.loss_net = task_net.to(problem.device), loss_net.to(problem.device)
        _begin_at_rows(self.predictor, self.loss_net, problem)
        self.optimizer = TableOptimizer(
            self.predictor, (FIRST_LAYER, "labels"), lr=config.lr, clip_norm=CLIP_NORM
        )
        self.loss_optimizer = TableOptimizer(
            self.loss_net, (FIRST_LAYER, "labels", "joint"), lr=config.loss_lr
        )

    @property
    def teacher(self) -> nn.Module:
        """The loss-net."""
        return self.loss_net

    def step(self, x: Inputs, y: LabelLists) -> dict[str, Tensor]:
        """All inner steps of both networks on one batch."""
        generator = ranks.common_generator(y.labels.device)
        batch = draw_vocabulary(x, y, self.config.negatives, generator)
        for _ in range(self.config.task_steps):
            for _ in range(self.config.loss_steps):
                loss = self._loss_net_step(batch)
            losses = self._task_net_step(batch)
        return {**losses, "loss_net": loss}

    def _loss_net_step(self, batch: Vocabulary) -> Tensor:
        with torch.no_grad():
            logits = self._logits(batch, self._borrowed(self.optimizer, batch))
        noise = LabelNoise(logits)
        candidates = noise.candidates(batch.truth, self.config.samples)  # (batch, 1 + K, chosen)
        rows = self._borrowed(self.loss_optimizer, batch)
        scores = functional_call(self.loss_net, _values(rows), (batch.x, candidates))
        if self.config.loss == "ranking":
            loss = ranking(scores)
        else:
            loss = nce_ranking(scores, noise.log_probability(candidates))
        self.loss_optimizer.step(ranks.row_sum(loss), rows)
        return loss.detach() / len(batch.truth)

    def _task_net_step(self, batch: Vocabulary) -> dict[str, Tensor]:
        rows = self._borrowed(self.optimizer, batch)
        logits = self._logits(batch, rows)
        cross_entropy = sampled_cross_entropy(logits, batch)
        loss_rows = self._borrowed(self.loss_optimizer, batch)
        scores = functional_call(self.loss_net, _values(loss_rows), (batch.x, logits.sigmoid()))
        loss = task_objective(scores, cross_entropy, energy_weight=self.config.energy_weight)
        self.optimizer.step(loss, rows)
        return {"objective": loss.detach(), "cross_entropy": cross_entropy.detach()}

    def _borrowed(self, optimizer: TableOptimizer, batch: Vocabulary) -> dict[str, Borrowed]:
        return optimizer.borrow(batch.rows_of(optimizer.tables))

    def _logits(self, batch: Vocabulary, rows: dict[str, Borrowed]) -> Tensor:
        logits: Tensor = functional_call(self.predictor, _values(rows), (batch.x,))
        return logits.masked_fill(~batch.is_label, ABSENT_LOGIT)

    def end_epoch(self, validation_score: float) -> None:
        """Halve the task-net's rate on a plateau."""
        self.optimizer.end_epoch(validation_score)


@torch.no_grad()
def _begin_at_rows(task_net: TaskNet, loss_net: EnergyNet, problem: Problem) -> None:
    """Scale the first weights by what training rows look like, not by how wide they could be.

    Label vectors drawn for a million labels hardly differ, either. Then all of them are shifted
    alike, so that an average row begins with as many labels as it has: most labels are seen rarely,
    and one that still had its first logit, 0, would outrank all others.
    """
    count = min(len(problem.train), ROWS_LOOKED_AT)
    x = problem.train.x.batch(torch.arange(count, device=problem.device))
    for features in (task_net.features, loss_net.features):
        features.input.scale_to(x)
    for network in (task_net, loss_net):
        width = network.labels.shape[1]
        nn.init.uniform_(network.labels, -(width**-0.5), width**-0.5)
    mean = task_net.features(x).mean(0)  # (width,)
    share = problem.train.targets.nnz / len(problem.train) / problem.shape.n_labels
    logit = math.log(share / (1 - share)) if share < 0.5 else 0.0
    task_net.labels.add_(mean * (logit / mean.square().sum()))


def _values(rows: dict[str, Borrowed]) -> dict[str, Tensor]:
    return {name: table.values for name, table in rows.items()}

"""ABALONE: contrastive training of an encoder, then linear layers on what it learned.

Audibert, Gauffre, Amini: "Exploring Contrastive Learning for Long-Tailed Multi-Label Text
Classification", ECML PKDD 2024. Stage 0 trains an encoder so that rows with common labels lie
together: by the paper's loss L_MSC, with trainable prototypes and a queue of rows seen before, or
by one of those it is compared with. Stage 1 freezes the encoder and fits linear layers on it, or
goes on to tune both by cross-entropy.

    symbol      here
    theta       `encoder` and `projection`; theta_k the copy in `queue`
    c_j         `prototypes`
    tau         temperature
    beta        row_weight
    K           queue_size

Differences from the paper: see the page of the method.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from train import ranks
from train.batches import Inputs
from train.config import (
    Monitor,
    TokenConfig,
    TrainingConfig,
    require_fraction,
    require_positive,
)
from train.errors import ConfigError
from train.feedforward import feature_net
from train.linear_evaluation import INITIALISATIONS, LinearEvaluation
from train.losses import (
    Members,
    attraction_and_repulsion,
    binary_cross_entropy,
    jaccard_contrastive,
    jscl,
    msc,
    mulcon,
    prototype_members,
    shared_label_contrastive,
)
from train.method import Method
from train.nets.heads import (
    AveragedHeads,
    Classifier,
    PlainRows,
    ProjectionHead,
    linear_layer,
)
from train.nets.momentum import MomentumQueue
from train.nets.text import TextEncoder
from train.optimizer import PlannedOptimizer, linear_decay, warm_up_and_cosine
from train.problem import Problem, Shape

PRETRAINED = ("msc", "base", "queue", "queue-prototypes", "jscl", "lcon", "mulcon")
WITH_QUEUE = ("msc", "queue", "queue-prototypes")
CLIP_NORM = 1.0
PROBE_LR = 1e-2
"""Of the linear layer that judges the epochs of contrastive training."""


@dataclass(frozen=True, kw_only=True)
class Config(TokenConfig):
    """Hyper-parameters of ABALONE."""

    KINDS: ClassVar[dict[str, dict[str, Any]]] = {
        **{loss: {"loss": loss, "then": "linear"} for loss in (*PRETRAINED, "mlm")},
        **{f"{loss}-ft": {"loss": loss, "then": "finetune"} for loss in PRETRAINED},
    }

    SCALES_GRADIENTS: ClassVar[bool] = True

    loss: Literal["msc", "base", "queue", "queue-prototypes", "jscl", "lcon", "mulcon", "mlm"] = (
        "msc"
    )
    """What the encoder is trained by; `mlm`: by nothing, linear layers read the plain rows."""
    then: Literal["linear", "finetune"] = "linear"
    """Afterwards: linear layers on the frozen encoder, or both tuned by cross-entropy."""
    epochs: int = 80
    """Passes over the training rows in contrastive training, at most."""
    patience: int = 80
    """Stop a stage after this many epochs without a better validation score."""
    monitor: Monitor = "micro_f1"
    """What the best epoch is judged by; `tuned`: each F1 at its best threshold of 0.1 ... 0.9."""
    lr: float = 1e-3
    """Step size of AdamW, of all that does not come pretrained."""
    weight_decay: float = 0.01
    """Weight decay of AdamW; biases and the like have none."""
    hidden: tuple[int, ...] = (400, 400)
    """Width of each hidden layer of the encoder; a text encoder that is trained is one itself."""
    dropout: float = 0.1
    """Share of hidden units dropped after each layer but the last."""
    projection: int = 256
    """Size of the vectors that are compared."""
    temperature: float = 0.1
    """By which similarities are divided."""
    row_weight: float = 0.1
    """How much a row counts against a prototype in the denominator (msc)."""
    queue_size: int = 512
    """Rows seen before that a batch is compared with, too (msc, queue, queue-prototypes)."""
    momentum: float = 0.999
    """What the encoder that fills the queue keeps of itself in a step."""
    cross_entropy_weight: float = 1.0
    """Weight of the cross-entropy beside the contrastive loss (mulcon), which alone collapses."""
    released_form: bool = False
    """The losses of the released programs where they differ from the papers' (base, jscl)."""
    linear_epochs: int = 40
    """Passes over the training rows in linear evaluation."""
    linear_batch_size: int = 256
    """Rows in a batch of linear evaluation."""
    finetune_epochs: int = 10
    """Passes over the training rows in fine-tuning."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(
            self, "lr", "projection", "temperature", "row_weight", "queue_size",
            "linear_epochs", "linear_batch_size", "finetune_epochs",
        )  # fmt: skip
        require_fraction(self, "dropout", "momentum")
        if self.average and self.then == "linear":
            raise ConfigError(
                "--average is not for linear layers: leave it out, or --then finetune"
            )
        if self.cross_entropy_weight < 0:
            raise ConfigError(
                f"--cross-entropy-weight must not be negative, got {self.cross_entropy_weight}"
            )
        if self.loss == "mlm" and self.then == "finetune":
            raise ConfigError(
                "--loss mlm trains no encoder that could be tuned: take --then linear, or method ce"
            )
        if self.loss == "mlm" and self.tuning != "frozen":
            raise ConfigError(f"--loss mlm trains no encoder: leave out --tuning {self.tuning}")


def make_encoder(config: Config, shape: Shape) -> tuple[nn.Module, int]:
    """Build the untrained encoder; return it and the size of what it makes of a row."""
    if config.loss == "mlm":
        return PlainRows(), shape.n_features
    encoder = feature_net(config, shape)
    return encoder, encoder.width


def predictor(config: Config, shape: Shape) -> Classifier:
    """Build the untrained network."""
    encoder, size = make_encoder(config, shape)
    if config.then == "finetune":
        return Classifier(encoder, linear_layer(size, shape.n_labels))
    return Classifier(encoder, AveragedHeads(size, shape.n_labels, INITIALISATIONS))


class Contrast(nn.Module):
    """What contrastive training has beside the encoder; thrown away after it."""

    def __init__(self, size: int, n_labels: int, config: Config) -> None:
        super().__init__()
        self.projection = ProjectionHead(size, config.projection)
        if config.loss in ("msc", "queue-prototypes"):
            self.prototypes = nn.Parameter(torch.empty(n_labels, config.projection))
            nn.init.xavier_uniform_(self.prototypes)
        if config.loss == "mulcon":
            # z of row i and label k is the projection of T(x_i) times the vector of k.
            self.label_vectors = nn.Parameter(torch.empty(n_labels, size))
            nn.init.xavier_uniform_(self.label_vectors)
            self.read = linear_layer(size, n_labels)


class Pretraining(Method):
    """Contrastive training of the encoder, with a linear layer beside it to judge it by.

    That layer is part of the predictor; it learns from the encoder's features, which do not learn
    from it.
    """

    def __init__(self, config: Config, problem: Problem, encoder: nn.Module, size: int) -> None:
        n_labels, device = problem.shape.n_labels, problem.device
        self.config = config
        self.contrast = Contrast(size, n_labels, config).to(device)
        self.predictor: Classifier = Classifier(encoder, linear_layer(size, n_labels)).to(device)
        self.optimizer = planned_optimizer(
            config, problem, encoder, self.contrast, plan=warm_up_and_cosine, epochs=config.epochs
        )
        self.probe_adam = torch.optim.AdamW(
            self.predictor.heads.parameters(), lr=PROBE_LR, fused=True
        )
        self.queue: MomentumQueue | None = None
        if config.loss in WITH_QUEUE:
            self.queue = MomentumQueue(
                nn.Sequential(encoder, self.contrast.projection),
                length=config.queue_size,
                size=config.projection,
                n_labels=n_labels,
                momentum=config.momentum,
            )
        self.most_labels = max(1, int(problem.train.targets.sum(1).max()))

    def step(self, x: Inputs, y: Tensor) -> dict[str, Tensor]:
        """One step of encoder, projection and prototypes, then one of the linear layer."""
        features = self.predictor.encoder(x)
        loss = self.contrastive_loss(features, y)
        self.optimizer.step(loss)
        if self.queue is not None:
            self._enqueue(self.queue, x, y)
        features = features.detach()
        probed = binary_cross_entropy(self.predictor.heads(features), y)
        self.probe_adam.zero_grad()
        ranks.backward(probed, self.predictor.heads.parameters())
        self.probe_adam.step()
        rows = _of_batch(functional.normalize(features, dim=1), y)
        attraction, repulsion = attraction_and_repulsion(rows)
        return {
            "contrastive": loss.detach(),
            "cross_entropy": probed.detach(),
            "attraction": attraction,
            "repulsion": repulsion,
        }

    def contrastive_loss(self, features: Tensor, y: Tensor) -> Tensor:
        """The loss of `--loss`; features: of the encoder, (batch, size)."""
        config, contrast = self.config, self.contrast
        if config.loss == "mulcon":
            return self._mulcon(features, y)
        rows = _of_batch(contrast.projection(features), y)
        tau = config.temperature
        if config.loss == "lcon":
            return shared_label_contrastive(rows, temperature=tau)
        if config.loss == "jscl":
            return jscl(rows, temperature=tau, weigh_denominator=config.released_form)
        others = []
        if self.queue is not None:
            others.append(self.queue.members())
        if config.loss in ("msc", "queue-prototypes"):
            others.append(prototype_members(contrast.prototypes))
        if config.loss == "msc":
            queue, prototypes = others
            weight = config.row_weight
            return msc(rows, queue, prototypes, temperature=tau, row_weight=weight)
        return jaccard_contrastive(rows, *others, temperature=tau, by_anchors=config.released_form)

    def _mulcon(self, features: Tensor, y: Tensor) -> Tensor:
        """One vector for each label of a row, and the cross-entropy that keeps them apart."""
        contrast = self.contrast
        # As many places as any row has labels: their number is known without asking the device.
        present, labels = y.topk(self.most_labels)
        vectors = features[:, None] * contrast.label_vectors[labels]  # (batch, places, size)
        z, labels, present = map(ranks.whole, (contrast.projection(vectors), labels, present))
        loss = mulcon(
            z.flatten(0, 1),
            labels.flatten(),
            present.flatten() > 0,
            temperature=self.config.temperature,
        )
        entropy = binary_cross_entropy(contrast.read(features), y)
        return loss + self.config.cross_entropy_weight * entropy

    @torch.no_grad()
    def _enqueue(self, queue: MomentumQueue, x: Inputs, y: Tensor) -> None:
        queue.follow()
        queue.enqueue(*_of_batch(queue.copy(x), y))


def _of_batch(z: Tensor, y: Tensor) -> Members:
    """Rows as they are compared: with those of the whole batch, whichever rank has them."""
    return Members(ranks.whole(z), ranks.whole(y))


class FineTuning(Method):
    """Encoder and a new linear layer trained by cross-entropy."""

    def __init__(self, config: Config, problem: Problem, encoder: nn.Module, size: int) -> None:
        self.config = config
        heads = linear_layer(size, problem.shape.n_labels)
        self.predictor: Classifier = Classifier(encoder, heads).to(problem.device)
        self.optimizer = planned_optimizer(
            config, problem, encoder, heads, plan=linear_decay, epochs=config.finetune_epochs
        )

    def step(self, x: Inputs, y: Tensor) -> dict[str, Tensor]:
        """One step down the cross-entropy."""
        loss = binary_cross_entropy(self.predictor(x), y)
        self.optimizer.step(loss)
        return {"cross_entropy": loss.detach()}


class Abalone(Method):
    """The stages one after the other, each a method of its own on the same encoder."""

    def __init__(self, config: Config, problem: Problem) -> None:
        self.config, self.problem = config, problem
        self.stages = 1 if config.loss == "mlm" else 2
        encoder, self.size = make_encoder(config, problem.shape)
        self.encoder = encoder.to(problem.device)
        first = LinearEvaluation if config.loss == "mlm" else Pretraining
        self._begin(first(config, problem, self.encoder, self.size))

    def _begin(self, stage: Method) -> None:
        self.stage, self.predictor = stage, stage.predictor

    def stage_config(self, config: TrainingConfig, stage: int) -> TrainingConfig:
        """Every stage has epochs of its own, and linear evaluation batches too."""
        own = self.config
        if stage + 1 < self.stages:
            return config
        if own.then == "finetune":
            return replace(config, epochs=own.finetune_epochs)
        return replace(config, epochs=own.linear_epochs, batch_size=own.linear_batch_size)

    def enter_stage(self, stage: int) -> None:
        """Throw away all of contrastive training but the encoder."""
        after = FineTuning if self.config.then == "finetune" else LinearEvaluation
        self._begin(after(self.config, self.problem, self.encoder, self.size))

    def step(self, x: Inputs, y: Tensor) -> dict[str, Tensor]:
        """One step of the stage at hand."""
        return self.stage.step(x, y)

    def before_validation(self) -> None:
        """Let linear evaluation choose its layers."""
        self.stage.before_validation()


def planned_optimizer(
    config: Config,
    problem: Problem,
    encoder: nn.Module,
    others: nn.Module,
    *,
    plan: Callable[[float], float],
    epochs: int,
) -> PlannedOptimizer:
    """AdamW for the encoder and what is trained with it, over so many epochs."""
    half = config.precision == "float16"
    encoder_lr = config.encoder_lr if isinstance(encoder, TextEncoder) else config.lr
    return PlannedOptimizer(
        [(encoder.parameters(), encoder_lr), (others.parameters(), config.lr)],
        weight_decay=config.weight_decay,
        clip_norm=CLIP_NORM,
        plan=plan,
        n_steps=epochs * math.ceil(len(problem.train) / config.batch_size),
        scaler=torch.amp.GradScaler(problem.device.type) if half else None,
    )


def build(config: Config, problem: Problem) -> Method:
    """Make the method ready for its first step."""
    return Abalone(config, problem)

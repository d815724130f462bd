"""SEAL: an energy network learns to score label sets and teaches a plain task-net.

Lee, Patel, Goyal, Zhao, Xu, McCallum: "Structured Energy Network As a Loss", NeurIPS 2022.
Dynamic: for each batch, n_F times: the loss-net takes n_E steps towards telling the true label set
from what the task-net makes of the row; then the task-net takes one step towards cross-entropy plus
the energy of its own probabilities. Static: an energy network is trained first (SPEN, DVN or NCE),
frozen, and only teaches. The loss-net has no part in predictions; `model.pt` keeps its weights for
those who want to look at what it learned.

    symbol       here
    F, phi       task-net (`predictor`), lr
    E, theta     loss-net (`loss_net`), loss_lr
    lambda_1     energy_weight (margin: w)
    n_E, n_F     loss_steps, task_steps
    K            samples
    g            global_units

Differences from the paper: none intended. Reductions, clipping, dropout in both networks and the
bias of the global term follow the authors' program where paper and program differ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from train import methods, ranks
from train.batches import Inputs
from train.config import TokenConfig, require_fraction, require_positive
from train.energy_learning import (
    INFERENCE_STEPS,
    VALUE_INFERENCE_STEPS,
    Dvn,
    DvnConfig,
    EnergyConfig,
    EnergyLearner,
    Nce,
    NceConfig,
    PretrainedConfig,
    Spen,
    energy_net,
    inference_of,
)
from train.errors import ConfigError
from train.feedforward import Schedule, task_net
from train.losses import (
    inference_net_margin,
    inference_net_objective,
    nce_ranking,
    ranking,
    regression,
    task_objective,
    value_task_objective,
)
from train.method import Method
from train.nets.energy import EnergyNet
from train.nets.inference import GradientInference, Rule, score_energy, value_energy
from train.nets.mlp import TaskNet
from train.nets.segmentation import ConvolutionalEnergy, CropDescent
from train.nets.tagging import WordEnergy
from train.optimizer import TaskOptimizer, parameter_groups
from train.problem import Problem, Shape
from train.seal_sampled import SealSampled, check_negatives
from train.storage import load
from train.structures import structure_of

TASKS = ("multilabel", "segmentation", "tagging")


@dataclass(frozen=True, kw_only=True)
class Config(TokenConfig):
    """Hyper-parameters of SEAL."""

    KINDS: ClassVar[dict[str, dict[str, Any]]] = {
        "nce": {"loss": "nce", "static": False},
        "ranking": {"loss": "ranking", "static": False},
        "regression": {"loss": "regression", "static": False},
        "regression-s": {"loss": "regression-s", "static": False},
        "margin": {"loss": "margin", "static": False},
        "static-nce": {"loss": "nce", "static": True},
        "static-regression": {"loss": "regression", "static": True},
        "static-margin": {"loss": "margin", "static": True},
    }

    loss: Literal["nce", "ranking", "regression", "regression-s", "margin"] = "nce"
    """What the loss-net learns from."""
    base: str = "ce"
    """Method whose loss the task-net learns from beside the energy: NAME[:FIELD=VALUE[,...]]."""
    static: bool = False
    """Train the loss-net before the task-net, not beside it (nce, regression, margin)."""
    lr: float = 1e-3
    """Step size of the task-net."""
    loss_lr: float = 1e-3
    """Step size of the loss-net."""
    weight_decay: float = 1e-5
    """Weight decay of the task-net."""
    schedule: Schedule = "plateau"
    """The task-net's step size is halved when validation stalls, or falls over all `--epochs`."""
    hidden: tuple[int, ...] = (400, 400)
    """Width of each hidden layer, in both networks."""
    dropout: float = 0.2
    """Share of hidden units dropped after each layer but the last, in both networks."""
    global_units: int = 200
    """Hidden units of the loss-net that see the whole label set."""
    energy_weight: float = 1.0
    """Weight of the energy in the task-net's objective."""
    cross_entropy_weight: float = 1.0
    """Weight of the cross-entropy, or `--base`, in the task-net's objective (margin only)."""
    loss_steps: int = 3
    """Steps of the loss-net before each step of the task-net (margin: rounds on each batch)."""
    task_steps: int = 1
    """Steps of the task-net on each batch (margin: before each step of the loss-net)."""
    samples: int = 20
    """Label sets drawn from the task-net for each row (nce, ranking, regression-s)."""
    negatives: int = 0
    """Labels drawn beside those of each batch (nce, ranking); 0: all labels are always there."""
    noise: float = 1.0
    """Standard deviation of the noise on the logits (regression-s)."""
    energy_run: Path | None = None
    """Static only: model.pt of a finished spen, dvn or nce run to take the loss-net from."""
    loss_weight_decay: float = 1e-5
    """Weight decay of the loss-net."""
    inference_rate: float = 0.1
    """Step size of the inference that trains a static loss-net, and that asks an exported one."""
    inference_rule: Rule = "adam"
    """`gradient`: steps of that inference are the step size times the gradient, not Adam's."""
    pretrain_lr: float = 2e-3
    """Static only: step size of the cross-entropy network that margin and nce begin with."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(
            self, "lr", "loss_lr", "global_units", "loss_steps", "task_steps", "samples",
            "inference_rate", "pretrain_lr",
        )  # fmt: skip
        require_fraction(self, "dropout")
        if self.static and self.loss not in TEACHERS:
            raise ConfigError(
                f"--loss {self.loss} has no static form: take {', '.join(TEACHERS)} or no --static"
            )
        check_negatives(self.negatives, "static" if self.static else self.loss)
        if self.negatives and self.base != "ce":
            raise ConfigError("--base needs the logits of all labels: leave it out, or --negatives")
        if self.negatives and self.schedule != "plateau":
            raise ConfigError("--schedule is not for --negatives: leave one of them out")
        if self.energy_run is not None and not self.static:
            raise ConfigError("--energy-run is for a static loss-net: add --static")


VALUE_LOSSES = ("regression", "regression-s")
"""Losses whose score is the logit of a label set's value."""

TEACHERS: dict[str, Callable[[Any, Problem], EnergyLearner]] = {
    "nce": Nce,
    "regression": Dvn,
    "margin": Spen,
}


def predictor(config: Config, shape: Shape) -> nn.Module:
    """Build the untrained task-net; the loss-net is never exported."""
    return task_net(config, shape)


def loss_net(config: Config, shape: Shape) -> EnergyNet | ConvolutionalEnergy | WordEnergy:
    """Build the untrained loss-net."""
    return energy_net(config, shape)


def energy_predictor(config: Config, shape: Shape) -> GradientInference | CropDescent:
    """Build the untrained loss-net as a predictor of its own, asked by gradient descent.

    It begins where an energy network trained by the like loss does: at the empty label set for a
    regression (DVN), at what the task-net says otherwise (SPEN).
    """
    is_value = config.loss in VALUE_LOSSES
    return inference_of(
        shape,
        loss_net(config, shape),
        torch.zeros(1, shape.n_trained_labels) if is_value else predictor(config, shape),
        steps=VALUE_INFERENCE_STEPS if is_value else INFERENCE_STEPS,
        step_size=config.inference_rate,
        rule=config.inference_rule,
        energy=value_energy if is_value else score_energy,
    )


class Seal(Method):
    """A task-net, a loss-net, and an optimiser for each."""

    predictor: Any  # a TaskNet, until a static loss-net is trained before it

    def __init__(self, config: Config, problem: Problem) -> None:
        self.config = config
        self.structure = structure_of(problem.shape)
        self.base_loss = methods.loss_of(config.base, problem, option="--base")
        self.base_name = "cross_entropy" if config.base == "ce" else config.base.partition(":")[0]
        self.predictor = predictor(config, problem.shape).to(problem.device)
        self.loss_net = loss_net(config, problem.shape).to(problem.device)
        self.optimizer = TaskOptimizer(
            parameter_groups(*self.task_networks(), encoder_lr=config.encoder_lr),
            lr=config.lr,
            weight_decay=config.weight_decay,
            falling_epochs=config.epochs if config.schedule == "linear" else None,
        )
        self.loss_optimizer = torch.optim.AdamW(
            parameter_groups(self.loss_net, encoder_lr=config.encoder_lr),
            lr=config.loss_lr,
            weight_decay=config.loss_weight_decay,
            fused=True,
        )

    @property
    def teacher(self) -> nn.Module:
        """The loss-net."""
        return self.loss_net

    def task_networks(self) -> list[nn.Module]:
        """What the task-net's optimiser changes."""
        return [self.predictor]

    def step(self, x: Inputs, y: Tensor) -> dict[str, Tensor]:
        """All inner steps of both networks on one batch."""
        for _ in range(self.config.task_steps):
            with torch.no_grad():
                begun = self.predictor.begin(x)
            for _ in range(self.config.loss_steps):
                loss = self.loss_net_step(x, y, begun)
            losses = self.task_net_step(x, y)
        return {**losses, "loss_net": loss}

    def loss_net_step(self, x: Inputs, y: Tensor, begun: Tensor) -> Tensor:
        """One step of the loss-net, on what the task-net, `begun`, now makes of the rows."""
        with torch.no_grad():
            logits = self.predictor.finish(begun)
        loss = self.loss_net_loss(x, y, logits)
        self._descend(ranks.row_sum(loss))
        return loss.detach() / len(x)

    def _descend(self, loss: Tensor) -> None:
        """One step of the loss-net down a loss that is a mean over rows."""
        self.loss_optimizer.zero_grad()
        ranks.backward(loss, (w for g in self.loss_optimizer.param_groups for w in g["params"]))
        self.loss_optimizer.step()

    def loss_net_loss(self, x: Inputs, y: Tensor, logits: Tensor) -> Tensor:
        """Sum over rows of the chosen loss; `logits` are constants."""
        config, structure = self.config, self.structure
        if config.loss == "regression":
            answer = logits.sigmoid()
            return regression(self.loss_net(x, answer), structure.value(answer, y))
        if config.loss == "regression-s":
            answers = structure.relaxed_samples(logits, config.samples, deviation=config.noise)
            return regression(self.loss_net(x, answers), structure.value(answers, y))
        noise = structure.noise(logits)
        candidates = noise.candidates(y, config.samples)  # (batch, 1 + K, labels)
        scores = self.loss_net(x, candidates)
        if config.loss == "ranking":
            return ranking(scores)
        return nce_ranking(scores, noise.log_probability(candidates))

    def task_net_step(self, x: Inputs, y: Tensor) -> dict[str, Tensor]:
        """One step of the task-net towards the truth and low energy."""
        logits = self.predictor(x)
        base = self.base_loss(logits, y)
        is_value = self.config.loss in VALUE_LOSSES
        objective = value_task_objective if is_value else task_objective
        scores = self.loss_net(x, logits.sigmoid())
        loss = objective(scores, base, energy_weight=self.config.energy_weight)
        self.optimizer.step(loss)
        return {"objective": loss.detach(), self.base_name: base.detach()}

    def end_epoch(self, validation_score: float) -> None:
        """Let the task-net's rate follow its schedule."""
        self.optimizer.end_epoch(validation_score)


class SealMargin(Seal):
    """SEAL with the margin of inference networks: a second network finds the tempting mistakes."""

    def __init__(self, config: Config, problem: Problem) -> None:
        n_labels = problem.shape.n_trained_labels
        # a = sigmoid(MLP([q, truth])): sees the truth, so that it can be wrong where it counts.
        self.augmented_net = nn.Sequential(
            nn.Linear(2 * n_labels, n_labels), nn.Softplus(), nn.Linear(n_labels, n_labels)
        ).to(problem.device)
        super().__init__(config, problem)

    def task_networks(self) -> list[nn.Module]:
        """Both inference networks step together."""
        return [self.predictor, self.augmented_net]

    def step(self, x: Inputs, y: Tensor) -> dict[str, Tensor]:
        """The nesting is the reverse of the other losses: n_E rounds of n_F task-net steps."""
        for _ in range(self.config.loss_steps):
            for _ in range(self.config.task_steps):
                losses = self.task_net_step(x, y)
            loss = self.margin_step(x, y)
        return {**losses, "loss_net": loss}

    def answers(self, logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """What the task-net says, q, and the tempting mistake, a: (batch, labels) each."""
        plain = logits.sigmoid()
        return plain, self.structure.mistake(self.augmented_net, plain, y)

    def margin_step(self, x: Inputs, y: Tensor) -> Tensor:
        """One step of the loss-net; this loss is a mean over rows."""
        with torch.no_grad():
            plain, augmented = self.answers(self.predictor(x), y)
        scores = self.loss_net(x, torch.stack([y, augmented, plain], 1))  # (batch, 3)
        loss = inference_net_margin(
            scores[:, 0],
            scores[:, 1],
            scores[:, 2],
            self.structure.cost(augmented, y),
            plain_weight=self.config.energy_weight,
        )
        self._descend(loss)
        return loss.detach()

    def task_net_step(self, x: Inputs, y: Tensor) -> dict[str, Tensor]:
        """One step of both inference networks against the loss-net."""
        logits = self.predictor(x)
        plain, augmented = self.answers(logits, y)
        scores = self.loss_net(x, torch.stack([augmented, plain], 1))  # (batch, 2)
        base = self.base_loss(logits, y)
        loss = inference_net_objective(
            scores[:, 0],
            scores[:, 1],
            self.structure.cost(augmented, y),
            base,
            plain_weight=self.config.energy_weight,
            cross_entropy_weight=self.config.cross_entropy_weight,
        )
        self.optimizer.step(loss)
        return {"objective": loss.detach(), self.base_name: base.detach()}


class SealStatic(Seal):
    """An energy network is trained as a method of its own, then frozen and used as the loss."""

    def __init__(self, config: Config, problem: Problem) -> None:
        super().__init__(config, problem)
        self.task_net = self.predictor
        self.learner: EnergyLearner | None = None
        if config.energy_run is None:
            self.learner = TEACHERS[config.loss](_teacher_config(config), problem)
            self.stages = self.learner.stages + 1
            self.predictor = self.learner.predictor
        else:
            _take_weights(self.loss_net, config.energy_run)

    def step(self, x: Inputs, y: Tensor) -> dict[str, Tensor]:
        """A step of the energy network before the last stage, of the task-net in it."""
        if self.predictor is not self.task_net and self.learner is not None:
            return self.learner.step(x, y)
        for _ in range(self.config.task_steps):
            losses = self.task_net_step(x, y)
        return losses

    def end_epoch(self, validation_score: float) -> None:
        """Halve the rate of whatever is being trained on a plateau."""
        if self.predictor is not self.task_net and self.learner is not None:
            self.learner.end_epoch(validation_score)
        else:
            super().end_epoch(validation_score)

    def enter_stage(self, stage: int) -> None:
        """Go on with the energy network's next stage, or take it as the loss."""
        assert self.learner is not None  # noqa: S101 - a finished run has one stage
        if stage < self.learner.stages:
            self.learner.enter_stage(stage)
            self.predictor = self.learner.predictor
        else:
            self.loss_net.load_state_dict(self.learner.energy_net.state_dict())
            self.predictor = self.task_net


def _teacher_config(config: Config) -> EnergyConfig:
    shared: dict[str, Any] = {
        "lr": config.loss_lr,
        "weight_decay": config.loss_weight_decay,
        "hidden": config.hidden,
        "dropout": config.dropout,
        "global_units": config.global_units,
        "inference_rate": config.inference_rate,
        "inference_rule": config.inference_rule,
        "encoder_lr": config.encoder_lr,
    }
    if config.loss == "regression":
        return DvnConfig(**shared)
    if config.loss == "margin":
        return PretrainedConfig(**shared, task_lr=config.pretrain_lr)
    return NceConfig(**shared, task_lr=config.pretrain_lr, samples=config.samples)


def _take_weights(net: nn.Module, path: Path) -> None:
    """Fill the loss-net from the checkpoint of a spen, dvn or nce run."""
    weights = load(path).get("weights", {})
    prefix = "energy_net."
    found = {name.removeprefix(prefix): w for name, w in weights.items() if name.startswith(prefix)}
    if not found:
        raise ConfigError(f"{path} holds no energy network: give the model.pt of spen, dvn or nce")
    try:
        net.load_state_dict(found)
    except RuntimeError as error:
        raise ConfigError(
            f"the energy network in {path} has other sizes: use its data set, --hidden and "
            "--global-units"
        ) from error


def build(config: Config, problem: Problem) -> Method:
    """Make the method ready for its first step."""
    if config.negatives:
        networks = task_net(config, problem.shape), loss_net(config, problem.shape)
        if not isinstance(networks[0], TaskNet) or not isinstance(networks[1], EnergyNet):
            raise ConfigError(
                "--negatives is for labels of rows, not of pixels or words: leave it out"
            )
        return SealSampled(config, networks[0], networks[1], problem)
    if config.static:
        return SealStatic(config, problem)
    return SealMargin(config, problem) if config.loss == "margin" else Seal(config, problem)

"""Energy networks asked by gradient-based inference: SPEN, DVN and NCE, as methods and as teachers.

Each is a method of its own, and the first part of SEAL-static, which trains one of them, freezes
it and lets it teach a task-net (Lee et al., NeurIPS 2022, "energy network" rows of its tables).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from train import ranks
from train.batches import Inputs
from train.config import TokenConfig, require_fraction, require_positive
from train.feedforward import Widths, feature_net, task_net, word_vectors
from train.losses import nce_ranking, regression, ssvm_margin
from train.method import Method
from train.nets.energy import EnergyNet
from train.nets.inference import (
    Energy,
    GradientInference,
    Rule,
    adversarial_energy,
    cost_augmented_energy,
    gradient_inference,
    score_energy,
    value_energy,
)
from train.nets.segmentation import ConvolutionalEnergy, CropDescent
from train.nets.tagging import WordDescent, WordEnergy
from train.optimizer import TaskOptimizer, parameter_groups
from train.problem import Problem, Shape
from train.structures import structure_of

TRAINING_INFERENCE_STEPS = 20
INFERENCE_STEPS, VALUE_INFERENCE_STEPS = 20, 30
"""At prediction; the second for networks whose score is a value (DVN)."""
RANDOM_STARTS = 3


@dataclass(frozen=True, kw_only=True)
class EnergyConfig(TokenConfig):
    """What the three energy networks have in common."""

    lr: float = 1e-3
    """Step size of the energy network."""
    weight_decay: float = 1e-5
    """Weight decay of the energy network."""
    hidden: tuple[int, ...] = (400, 400)
    """Width of each hidden layer."""
    dropout: float = 0.2
    """Share of hidden units dropped after each layer but the last."""
    global_units: int = 200
    """Hidden units that see the whole label set."""
    inference_rate: float = 0.1
    """Step size of the inference, which is Adam on the label set."""
    inference_steps: int = INFERENCE_STEPS
    """Steps of the inference at prediction."""
    inference_rule: Rule = "adam"
    """`gradient`: steps are the step size times the gradient, and not Adam's."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "lr", "global_units", "inference_rate", "inference_steps")
        require_fraction(self, "dropout")


@dataclass(frozen=True, kw_only=True)
class DvnConfig(EnergyConfig):
    """DVN learns from inference of two kinds, and from the truth."""

    inference_steps: int = VALUE_INFERENCE_STEPS
    """Steps of the inference at prediction."""
    adversarial_rate: float | None = None
    """Step size of the inference that looks for mistakes; unless told that of the other."""
    ground_truth: bool = True
    """Learn the value of the true label sets too; without, it degrades badly."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.adversarial_rate is not None:
            require_positive(self, "adversarial_rate")


@dataclass(frozen=True, kw_only=True)
class PretrainedConfig(EnergyConfig):
    """An energy network that starts from, or samples from, a network trained by cross-entropy."""

    task_lr: float = 2e-3
    """Step size of the cross-entropy network trained first."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "task_lr")


@dataclass(frozen=True, kw_only=True)
class NceConfig(PretrainedConfig):
    """NCE draws its samples from the network trained first."""

    samples: int = 80
    """Label sets drawn from the cross-entropy network for each row."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "samples")


class EnergyWidths(Widths, Protocol):
    """What a config says about an energy network."""

    @property
    def global_units(self) -> int:
        """Hidden units that see the whole label set."""
        ...


def energy_net(config: EnergyWidths, shape: Shape) -> EnergyNet | ConvolutionalEnergy | WordEnergy:
    """Build the untrained energy network."""
    if shape.tagging:
        return WordEnergy(word_vectors(shape), shape.n_labels, config.global_units)
    if shape.image is not None:
        return ConvolutionalEnergy(shape.image)
    return EnergyNet(feature_net(config, shape), shape.n_labels, config.global_units)


def inference_of(
    shape: Shape,
    net: nn.Module,
    start: Tensor | nn.Module,
    **way: Any,  # noqa: ANN401
) -> GradientInference | CropDescent:
    """A predictor that asks an energy network; `way`: the options of `GradientInference`."""
    way = {"project": structure_of(shape).project, **way}
    if shape.tagging:
        return WordDescent(net, start, **way)
    if shape.image is None:
        return GradientInference(net, start, **way)
    return CropDescent(GradientInference(net, start, dtype=torch.float32, **way), shape.image)


def _way(config: EnergyConfig) -> dict[str, Any]:
    return {
        "steps": config.inference_steps,
        "step_size": config.inference_rate,
        "rule": config.inference_rule,
    }


def spen_predictor(config: PretrainedConfig, shape: Shape) -> GradientInference | CropDescent:
    """Inference on -s, from the probabilities of the cross-entropy network."""
    nets = energy_net(config, shape), task_net(config, shape)
    return inference_of(shape, *nets, energy=score_energy, **_way(config))


def dvn_predictor(config: DvnConfig, shape: Shape) -> GradientInference | CropDescent:
    """Inference on -sigmoid(s), from the empty label set."""
    start = torch.zeros(1, shape.n_trained_labels)
    return inference_of(
        shape, energy_net(config, shape), start, energy=value_energy, **_way(config)
    )


def nce_predictor(config: NceConfig, shape: Shape) -> GradientInference | CropDescent:
    """Inference on -s, from a few random points."""
    net = energy_net(config, shape)
    start = torch.rand(RANDOM_STARTS, shape.n_trained_labels)
    return inference_of(shape, net, start, energy=score_energy, **_way(config))


class EnergyLearner(Method):
    """An energy network, the inference that asks it, and an optimiser."""

    def __init__(
        self, config: EnergyConfig, problem: Problem, inference: GradientInference | CropDescent
    ) -> None:
        self.config = config
        self.structure = structure_of(problem.shape)
        self.predictor = self.inference = inference.to(problem.device)
        self.energy_net: Any = inference.energy_net
        self.optimizer = TaskOptimizer(
            parameter_groups(self.energy_net, encoder_lr=config.encoder_lr),
            lr=config.lr,
            weight_decay=config.weight_decay,
        )

    def found(self, energy: Energy, start: Tensor, step_size: float | None = None) -> Tensor:
        """What inference finds in training, from `start` (batch, starts, labels)."""
        return gradient_inference(
            energy,
            start,
            steps=TRAINING_INFERENCE_STEPS,
            step_size=step_size or self.config.inference_rate,
            rule=self.config.inference_rule,
            project=self.structure.project,
        )

    @torch.no_grad()
    def scores_at(self, x: Inputs) -> Callable[[Tensor], Tensor]:
        """Scores of label sets for these rows; the weights are constants."""
        scores: Callable[[Tensor], Tensor] = self.energy_net.at(x)
        return scores

    def end_epoch(self, validation_score: float) -> None:
        """Halve the rate on a plateau."""
        self.optimizer.end_epoch(validation_score)


class PretrainedLearner(EnergyLearner):
    """Stage 0 trains a network by cross-entropy; in stage 1 it is frozen and helps the energy."""

    stages = 2

    def __init__(
        self,
        config: PretrainedConfig,
        problem: Problem,
        inference: GradientInference | CropDescent,
        task: nn.Module,
    ) -> None:
        super().__init__(config, problem, inference)
        self.task_net = task.to(problem.device)
        self.task_optimizer = TaskOptimizer(
            parameter_groups(self.task_net, encoder_lr=config.encoder_lr),
            lr=config.task_lr,
            weight_decay=1e-5,
        )
        self.predictor = self.task_net

    def step(self, x: Inputs, y: Tensor) -> dict[str, Tensor]:
        """One step of the network whose stage it is."""
        if self.predictor is self.inference:
            return self.energy_step(x, y)
        loss = self.structure.cross_entropy(self.task_net(x), y)
        self.task_optimizer.step(loss)
        return {"cross_entropy": loss.detach()}

    def energy_step(self, x: Inputs, y: Tensor) -> dict[str, Tensor]:
        """One step of the energy network."""
        raise NotImplementedError

    @torch.no_grad()
    def frozen_logits(self, x: Inputs) -> Tensor:
        """What the network of stage 0 says, without dropout."""
        logits: Tensor = self.task_net.eval()(x)
        return logits

    def end_epoch(self, validation_score: float) -> None:
        """Halve the rate of the stage's network on a plateau."""
        trained = self.optimizer if self.predictor is self.inference else self.task_optimizer
        trained.end_epoch(validation_score)

    def enter_stage(self, stage: int) -> None:
        """Freeze the network of stage 0."""
        self.predictor = self.inference


class Spen(PretrainedLearner):
    """Structured hinge against what cost-augmented inference finds (Belanger & McCallum, 2016)."""

    def __init__(self, config: PretrainedConfig, problem: Problem) -> None:
        inference = spen_predictor(config, problem.shape)
        start = inference.start
        assert isinstance(start, nn.Module)  # noqa: S101 - see `spen_predictor`
        super().__init__(config, problem, inference, start)

    def energy_step(self, x: Inputs, y: Tensor) -> dict[str, Tensor]:
        """Raise the score of the truth above that of the most tempting mistake."""
        start = self.frozen_logits(x).sigmoid().unsqueeze(1)
        tempting = self.found(cost_augmented_energy(self.scores_at(x), y, self.cost), start)
        scores = self.energy_net(x, torch.stack([y, tempting], 1))  # (batch, 2)
        loss = ssvm_margin(scores[:, 0], scores[:, 1], self.cost(tempting, y))
        self.optimizer.step(loss)
        return {"margin": loss.detach()}

    def cost(self, y: Tensor, truth: Tensor) -> Tensor:
        """1 - F1, or 1 - IoU of masks."""
        return 1 - self.structure.value(y, truth)


class Dvn(EnergyLearner):
    """The score is the logit of a label set's value (Gygli et al., "Deep Value Networks", 2017)."""

    config: DvnConfig

    def __init__(self, config: DvnConfig, problem: Problem) -> None:
        super().__init__(config, problem, dvn_predictor(config, problem.shape))

    def step(self, x: Inputs, y: Tensor) -> dict[str, Tensor]:
        """Learn the value of what inference finds, of what it is most wrong about, of the truth."""
        start, value = torch.zeros_like(y).unsqueeze(1), self.structure.value
        scores = self.scores_at(x)
        candidates = [
            self.found(value_energy(scores), start),
            self.found(adversarial_energy(scores, y, value), start, self.config.adversarial_rate),
        ]
        if self.config.ground_truth:
            candidates.append(y)
        sets = torch.stack(candidates, 1)  # (batch, 3, labels)
        loss = regression(self.energy_net(x, sets), value(sets, y))
        self.optimizer.step(ranks.row_sum(loss))
        return {"regression": loss.detach() / len(x)}


class Nce(PretrainedLearner):
    """Noise-contrastive ranking against samples of a frozen cross-entropy network."""

    config: NceConfig

    def __init__(self, config: NceConfig, problem: Problem) -> None:
        inference = nce_predictor(config, problem.shape)
        super().__init__(config, problem, inference, task_net(config, problem.shape))

    def energy_step(self, x: Inputs, y: Tensor) -> dict[str, Tensor]:
        """Rank the truth above K samples."""
        noise = self.structure.noise(self.frozen_logits(x))
        candidates = noise.candidates(y, self.config.samples)
        loss = nce_ranking(self.energy_net(x, candidates), noise.log_probability(candidates))
        self.optimizer.step(ranks.row_sum(loss))
        return {"nce": loss.detach() / len(x)}

"""Losses as pure functions: tensors in, a scalar out; no state, no device, no hidden randomness."""

from train.losses.binary import binary_cross_entropy
from train.losses.energy import (
    bernoulli_samples,
    inference_net_margin,
    inference_net_objective,
    log_noise_probability,
    manhattan_cost,
    nce_ranking,
    ranking,
    regression,
    relaxed_f1,
    relaxed_samples,
    soft_iou,
    ssvm_margin,
    task_objective,
    value_task_objective,
)
from train.losses.pairwise import exponential_ranking
from train.losses.samples import LabelNoise, SparseSamples

__all__ = [
    "LabelNoise",
    "SparseSamples",
    "bernoulli_samples",
    "binary_cross_entropy",
    "exponential_ranking",
    "inference_net_margin",
    "inference_net_objective",
    "log_noise_probability",
    "manhattan_cost",
    "nce_ranking",
    "ranking",
    "regression",
    "relaxed_f1",
    "relaxed_samples",
    "soft_iou",
    "ssvm_margin",
    "task_objective",
    "value_task_objective",
]

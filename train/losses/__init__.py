"""Losses as pure functions: tensors in, one scalar out; no state, no device, no hidden randomness."""

from train.losses.binary import binary_cross_entropy
from train.losses.energy import (
    bernoulli_samples,
    log_noise_probability,
    nce_ranking,
    task_objective,
)

__all__ = [
    "bernoulli_samples",
    "binary_cross_entropy",
    "log_noise_probability",
    "nce_ranking",
    "task_objective",
]

"""Losses as pure functions: tensors in, a scalar or one value a row out; no state, no device."""

from train.losses.binary import binary_cross_entropy
from train.losses.contrastive import label_contrastive
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
from train.losses.variational import (
    Gaussian,
    gaussian_kl,
    log_densities,
    log_density,
    mean_likelihood_nll,
    mixture_kl,
    probit_log_likelihood,
    probit_logit,
)

__all__ = [
    "Gaussian",
    "LabelNoise",
    "SparseSamples",
    "bernoulli_samples",
    "binary_cross_entropy",
    "exponential_ranking",
    "gaussian_kl",
    "inference_net_margin",
    "inference_net_objective",
    "label_contrastive",
    "log_densities",
    "log_density",
    "log_noise_probability",
    "manhattan_cost",
    "mean_likelihood_nll",
    "mixture_kl",
    "nce_ranking",
    "probit_log_likelihood",
    "probit_logit",
    "ranking",
    "regression",
    "relaxed_f1",
    "relaxed_samples",
    "soft_iou",
    "ssvm_margin",
    "task_objective",
    "value_task_objective",
]

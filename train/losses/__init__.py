"""Losses as pure functions: tensors in, a scalar or one value a row out; no state, no device."""

from train.losses.binary import asymmetric, binary_cross_entropy, focal
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
from train.losses.margins import adaptive_margin, equalised, logit_adjusted
from train.losses.ordering import multi_label_softmax, rml, warp
from train.losses.pairwise import exponential_ranking
from train.losses.samples import LabelNoise, SparseSamples
from train.losses.twoway import label_wise, row_wise, two_way
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
    "adaptive_margin",
    "asymmetric",
    "bernoulli_samples",
    "binary_cross_entropy",
    "equalised",
    "exponential_ranking",
    "focal",
    "gaussian_kl",
    "inference_net_margin",
    "inference_net_objective",
    "label_contrastive",
    "label_wise",
    "log_densities",
    "log_density",
    "log_noise_probability",
    "logit_adjusted",
    "manhattan_cost",
    "mean_likelihood_nll",
    "mixture_kl",
    "multi_label_softmax",
    "nce_ranking",
    "probit_log_likelihood",
    "probit_logit",
    "ranking",
    "regression",
    "relaxed_f1",
    "relaxed_samples",
    "rml",
    "row_wise",
    "soft_iou",
    "ssvm_margin",
    "task_objective",
    "two_way",
    "value_task_objective",
    "warp",
]

"""Ensemble: the mean probability of several models, as one network.

    P(y_l = 1 | x) = 1/M sum over models m of sigmoid(logit_m,l(x))

Models of any methods on the same rows. Those that were trained before are named by their run
folders; those that are fitted in one go can be named by their method and are fitted here; others
that are named by it are trained first (`train/members.py`). Thresholds are chosen on the validation
rows as for every method.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from train import methods
from train.config import MethodConfig, config_from
from train.errors import CheckpointError, ConfigError
from train.nets.inference import GradientInference
from train.problem import Problem, Shape
from train.storage import load

CLOSE = 1e-5


@dataclass(frozen=True, kw_only=True)
class Config(MethodConfig):
    """Which models."""

    members: tuple[str, ...] = ("br", "mlknn")
    """Run folders or model.pt files; or METHOD[:KIND][@PRESET], which are trained for this."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.members) < 2:
            raise ConfigError(f"--members must name two models or more, got {len(self.members)}")
        # A model.pt must be whole without those of its members: what builds them is kept with it.
        object.__setattr__(self, "members", tuple(map(_described, self.members)))


@dataclass(frozen=True)
class _Member:
    """One model: in the config the name of its method, or all of this as JSON."""

    method: str
    config: dict[str, Any] = field(default_factory=dict)
    file: str | None = None
    """Where its weights are, while the ensemble is made; None: it is fitted then."""

    @classmethod
    def of(cls, text: str) -> _Member:
        try:
            member = cls(**json.loads(text)) if text.startswith("{") else cls(text)
        except (TypeError, ValueError, RecursionError) as error:
            raise ConfigError(f"a member must be a model or a method, got {text[:60]!r}") from error
        return member

    def settings(self) -> MethodConfig:
        settings: MethodConfig = config_from(
            self.config, methods.load(self.method).Config, source=self.method
        )
        return settings

    def network(self, shape: Shape) -> nn.Module:
        """Untrained."""
        return _network(self.method, self.settings(), shape)


def _network(method: str, settings: MethodConfig, shape: Shape) -> nn.Module:
    network: nn.Module = methods.load(method).predictor(settings, shape)
    if isinstance(network, GradientInference):
        raise ConfigError(f"{method} predicts by gradient descent, not by one pass: leave it out")
    return network


def _described(text: str) -> str:
    """A member such that it can be built without its model.pt."""
    if not text.startswith("{"):
        path = Path(text) / "model.pt" if Path(text).is_dir() else Path(text)
        if path.is_file():
            values = _model(path)
            found = _Member(values["method"], values["config"], str(path))
            text = json.dumps(vars(found), separators=(",", ":"))
    method = _Member.of(text).method if text.startswith("{") else _method(text)
    if method == "ensemble":
        raise ConfigError("an ensemble cannot be a member: name its members")
    if method not in methods.available():
        raise ConfigError(f"--members: there is no run folder, model.pt or method {method!r}")
    return text


def untrained(config: Config) -> list[str]:
    """The members that are to be trained before this can be fitted: METHOD[:KIND][@PRESET]."""
    return [text for text in config.members if _is_untrained(text)]


def check_member(method: str, settings: MethodConfig, shape: Shape) -> None:
    """Refuse what could not be a member once it is trained."""
    with torch.device("meta"):
        _network(method, settings, shape)


def with_models(config: Config, folders: Sequence[Path]) -> Config:
    """The config with run folders in the place of those members, in their order."""
    left = iter(folders)
    members = (str(next(left)) if _is_untrained(text) else text for text in config.members)
    return replace(config, members=tuple(members))


def _is_untrained(text: str) -> bool:
    if text.startswith("{"):
        return False
    method = _method(text)
    return method != text or not hasattr(methods.load(method), "fit")


def _method(text: str) -> str:
    return re.split("[:@]", text, maxsplit=1)[0]


def _model(path: Path) -> dict[str, Any]:
    values = load(path)
    if not {"method", "config", "weights", "probe", "scaling"} <= values.keys():
        raise CheckpointError(
            f"{path} is not a model.pt: name that of a finished run, or its folder"
        )
    return values


class MeanProbability(nn.Module):
    """Networks that see the same rows; what they answer is averaged."""

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, x: Tensor) -> Tensor:
        """Map rows (batch, features) to the logits of the mean probabilities (batch, labels)."""
        logits = torch.stack([member(x) for member in self.members])
        # log p - log(1 - p), up to log M in both: exact where p is near 0 or 1, too.
        log_true, log_false = (functional.logsigmoid(sign * logits) for sign in (1, -1))
        return log_true.logsumexp(0) - log_false.logsumexp(0)


def predictor(config: Config, shape: Shape) -> MeanProbability:
    """Build the untrained networks."""
    return MeanProbability([_Member.of(text).network(shape) for text in config.members])


def fit(config: Config, problem: Problem) -> nn.Module:
    """Gather the trained members, and fit those that were named by their method."""
    networks = [_trained(_Member.of(text), problem) for text in config.members]
    return MeanProbability(networks).to(problem.device).eval()


def _trained(member: _Member, problem: Problem) -> nn.Module:
    if member.file is None:
        fitted: nn.Module = methods.load(member.method).fit(member.settings(), problem)
        return fitted
    values = _model(Path(member.file))
    _check_rows(member.file, values, problem)
    network = member.network(problem.shape)
    try:
        network.load_state_dict(values["weights"])
    except RuntimeError as error:
        raise CheckpointError(
            f"{member.file} does not fit {member.method} of this version: train it again"
        ) from error
    return network


def _check_rows(file: str, values: dict[str, Any], problem: Problem) -> None:
    """Refuse a model of other rows: its first test rows must be ours, as networks see them."""
    probe, scaling = values["probe"], values["scaling"]
    if not len(probe):
        raise ConfigError(
            f"{file} takes texts as tokens, and an ensemble takes numbers: leave it out"
        )
    if scaling is not None:
        probe = (probe - scaling["mean"]) / scaling["scale"]
    count = min(len(probe), len(problem.test))
    ours = problem.test.x.take(torch.arange(count, device=problem.device)).cpu()
    labels = problem.test.targets[:count]
    known = [set(row.tolist()) for row in np.split(labels.indices, labels.indptr[1:-1])]
    theirs = [set(row) for row in values.get("probe_labels", ())[:count]]  # early files have none
    is_same = (
        probe[:count].shape == ours.shape
        and torch.allclose(probe[:count], ours, atol=CLOSE, rtol=CLOSE)
        and (not theirs or theirs == known)
    )
    if not is_same:
        raise ConfigError(
            f"{file} was trained on other rows: members must have the data set, --split, "
            "--split-seed and --scaling of the ensemble"
        )

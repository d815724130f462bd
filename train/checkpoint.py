"""`model.pt` and `resume.pt`: tensors and plain values only, read without unpickling any code."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from train import methods
from train.batches import Inputs, TokenBatch, WordBatch
from train.config import config_from
from train.errors import CheckpointError, ConfigError
from train.nets.text import TextEncoder
from train.problem import EncoderShape, Shape
from train.storage import SCHEMA_VERSION, load, save

FREE_NUMBERS = 2**20
"""That a network may have beside its trained weights."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A trained model with all that is needed to export it."""

    name: str
    method: str
    task: str
    config: dict[str, Any]
    dataset: str
    shape: dict[str, Any]
    """The values of `train.problem.Shape`."""
    labels: list[str]
    features: list[str]
    scaling: dict[str, Tensor] | None
    """`mean` and `scale` of the inputs, (features,) each."""
    weights: dict[str, Tensor]
    """Of the predictor alone."""
    thresholds: dict[str, Any]
    scores: dict[str, dict[str, float]]
    """Of the parts `validation` and `test`."""
    split: dict[str, Any]
    seed: int
    epoch: int
    """The epoch whose weights these are."""
    probe: Tensor
    """Test rows as the user has them, before scaling: (rows, features)."""
    versions: dict[str, str]
    teacher: dict[str, Tensor] = field(default_factory=dict)
    """Of the network that taught the predictor; empty where none did, and in older files."""
    text: dict[str, Any] | None = None
    """How texts become rows; None where rows are feature vectors.

    `kind` is `tfidf`, with the JSON of a `TfidfEncoder` as `encoder`; or `tokens`, with `tokenizer`
    (tokenizer.json) and `max_tokens`; or `words`, with the same and whether rows have a
    `predicate`. Where the text encoder was frozen, `encoder` holds the values
    of its `EncoderShape`, and `weights` its weights; else it is a part of the predictor.
    """
    texts: list[Any] = field(default_factory=list)
    """Test texts; of `tfidf` they are those of `probe`, which is empty for tokens.

    Of `words` they are what `WordRow.values` gives.
    """
    probe_labels: list[list[int]] = field(default_factory=list)
    """Label numbers of the rows of `probe`, or of `texts`; empty in older files."""
    schema: int = SCHEMA_VERSION

    def predictor(self) -> nn.Module:
        """Rebuild the trained network: raw rows (batch, features) -> logits (batch, labels).

        For tokens it takes `input_ids` and `attention_mask`, (batch, length) int64 each; for words
        all that `word_feed` makes, and its logits are (batch, words * labels).
        """
        return self._from_raw_rows(self._network())

    def embedder(self) -> nn.Module | None:
        """The part that maps rows, or tokens, to vectors (batch, size); None where there is none.

        The logits are their inner products with `label_embeddings`.
        """
        network = self._network()
        return self._from_raw_rows(_Embed(network)) if hasattr(network, "embed") else None

    def energy_predictor(self) -> nn.Module:
        """Rebuild the network that taught the predictor, as one that predicts by itself."""
        if not self.teacher:
            raise CheckpointError(
                f"a {self.method!r} model holds no energy network beside its predictor: only seal "
                "does, trained with this version; export it without --with-energy"
            )

        def fill(inference: Any) -> None:  # noqa: ANN401 - one that descends
            inference.energy_net.load_state_dict(self.teacher)
            if isinstance(inference.start, nn.Module):
                inference.start.load_state_dict(self.weights)

        return self._from_raw_rows(self._built("energy_predictor", fill))

    def label_embeddings(self) -> Tensor | None:
        """One vector a label, (labels, size), if the method's network offers them; else None."""
        embeddings = getattr(self._network(), "label_embeddings", None)
        return None if embeddings is None else embeddings().detach()

    def _network(self) -> nn.Module:
        """The trained network, for rows that are scaled already."""
        return self._built("predictor", self._fill_predictor)

    def _fill_predictor(self, network: nn.Module) -> None:
        # The very tensors and no copy: a label table may be gigabytes.
        network.load_state_dict(self.weights, assign=True)

    def _built(self, builder: str, fill: Callable[[Any], object]) -> nn.Module:
        """What that function of the method's module builds, filled with weights."""
        try:
            module = methods.load(self.method)
            config = config_from(self.config, module.Config, source="the checkpoint")
            shape = Shape.from_values(self.shape)
            build = functools.partial(getattr(module, builder), config, shape)
            self._check_size(build)
            network: nn.Module = build()
            fill(network)
        except (RuntimeError, TypeError, ConfigError) as error:
            raise CheckpointError(
                f"the checkpoint does not fit method {self.method!r} of this version ({error}): "
                "train it again"
            ) from error
        return network.eval()

    def _check_size(self, build: Callable[[], nn.Module]) -> None:
        """Refuse sizes that the weights do not have, before anything of such sizes is allocated."""
        with torch.device("meta"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # pretrained weights are not copied to nowhere
            claimed = sum(tensor.numel() for tensor in build().state_dict().values())
        held = sum(
            tensor.numel() for part in (self.weights, self.teacher) for tensor in part.values()
        )
        if claimed > held + FREE_NUMBERS:
            raise CheckpointError(
                f"the checkpoint claims a network of {claimed} numbers and holds {held}: "
                "do not use it"
            )

    def _from_raw_rows(self, network: nn.Module) -> nn.Module:
        """Put before a network what its rows went through."""
        if self.scaling is not None:
            network = nn.Sequential(InputScaling(**self.scaling), network)
        if self.text is not None and self.text["kind"] == "words":
            network = FromWords(network)
        elif self.text is not None and self.text["kind"] == "tokens":
            network = FromTokens(self._frozen_encoder(), network)
        return network.eval()

    def _frozen_encoder(self) -> TextEncoder | None:
        """The text encoder whose vectors the network was trained on; None if it has its own."""
        if self.text is None or "weights" not in self.text:
            return None
        return TextEncoder(
            EncoderShape(**{**self.text["encoder"], "weights": self.text["weights"]})
        )


class FromTokens(nn.Module):
    """A network that takes the two tensors which a tokenizer gives."""

    def __init__(self, encoder: TextEncoder | None, network: nn.Module) -> None:
        super().__init__()
        self.encoder, self.network = encoder, network

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Map tokens, (batch, length) int64 each, to what the network gives."""
        batch = TokenBatch(input_ids, attention_mask)
        output: Tensor = self.network(batch if self.encoder is None else self.encoder(batch))
        return output


class FromWords(nn.Module):
    """A network that takes the four tensors which `word_feed` makes."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, predicate_mask: Tensor, word_pieces: Tensor
    ) -> Tensor:
        """Map words, int64 each, to what the network gives."""
        batch = WordBatch(input_ids, attention_mask, predicate_mask, word_pieces)
        output: Tensor = self.network(batch)
        return output


class OnInputs(nn.Module):
    """A network of a checkpoint for whatever rows come as: of tokens it takes the two tensors."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Inputs) -> Tensor:
        """Map rows, or tokens, to what the network gives."""
        tensors = (x.input_ids, x.attention_mask) if isinstance(x, TokenBatch) else (x,)
        output: Tensor = self.network(*tensors)
        return output


class _Embed(nn.Module):
    """The `embed` of a network as a call."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network: Any = network

    def forward(self, x: Inputs) -> Tensor:
        vectors: Tensor = self.network.embed(x)
        return vectors


class InputScaling(nn.Module):
    """(x - mean) / scale as a layer, so that callers send raw rows."""

    mean: Tensor
    scale: Tensor

    def __init__(self, mean: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("scale", scale)

    def forward(self, x: Tensor) -> Tensor:
        """Scale rows (batch, features)."""
        return (x - self.mean) / self.scale


def save_checkpoint(checkpoint: Checkpoint, path: Path) -> None:
    """Write `model.pt` atomically; thresholds of a million labels are numbers of four bytes."""
    per_label = torch.tensor(checkpoint.thresholds["per_label"], dtype=torch.float32)
    thresholds = {**checkpoint.thresholds, "per_label": per_label}
    save({**vars(checkpoint), "thresholds": thresholds}, path)


def load_checkpoint(path: Path) -> Checkpoint:
    """Read `model.pt`, refusing anything else with one sentence."""
    values = load(path)
    known = {
        field.name: field.default is MISSING and field.default_factory is MISSING
        for field in fields(Checkpoint)
    }  # name -> whether it is required
    missing = {name for name, is_required in known.items() if is_required} - set(values)
    if missing:
        raise CheckpointError(
            f"{path} is not a model.pt of this program: it lacks {', '.join(sorted(missing))}"
        )
    for name, kind in KINDS.items():
        if name in values and not isinstance(values[name], kind):
            raise CheckpointError(
                f"{path} is not a model.pt of this program: {name} is no {kind.__name__}"
            )
    per_label = values["thresholds"].get("per_label")
    if isinstance(per_label, Tensor):  # early files hold a list
        values["thresholds"] = {**values["thresholds"], "per_label": per_label.tolist()}
    return Checkpoint(**{name: values[name] for name in known if name in values})


KINDS: dict[str, type] = {
    **dict.fromkeys(("name", "method", "task", "dataset"), str),
    **dict.fromkeys(("config", "shape", "weights", "thresholds", "scores", "teacher"), dict),
    **dict.fromkeys(("labels", "features", "texts"), list),
    "probe": Tensor,
}

"""Text encoders: a transformer of the BERT family whose token vectors become one vector a text."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from train.batches import TokenBatch
from train.errors import ConfigError, needs_extra
from train.precision import may_be_lowered
from train.problem import EncoderShape

ADAPTED = ("output", "output_layer_norm")
"""What ends the feed-forward part of a layer: in BERT, RoBERTa and their kin, and in DistilBERT."""


class TextEncoder(nn.Module):
    """T(x) for texts: tokens (batch, length) -> vectors (batch, width).

    Frozen, it gives the same vectors in training and evaluation. Otherwise its own dropout is
    active in training, as is usual for BERT, adapters or not.
    """

    def __init__(self, shape: EncoderShape) -> None:
        super().__init__()
        self.transformer = _transformer(shape)
        if shape.tuning != "full":
            self.transformer.requires_grad_(False)
        if shape.tuning == "adapter":
            insert_adapters(self.transformer, shape.width, shape.adapter_size)
        self.width, self.pooling, self.tuning = shape.width, shape.pooling, shape.tuning
        self.train()

    def forward(self, x: TokenBatch) -> Tensor:
        """Map texts to vectors."""
        return pooled(self.token_vectors(x), x.attention_mask.bool(), self.pooling)

    @may_be_lowered
    def token_vectors(self, x: TokenBatch, added: Tensor | None = None) -> Tensor:
        """Vectors of tokens (batch, length, width); `added`: to what they begin with, likewise."""
        # As (batch, 1, 1, length) it is taken as it is: `transformers` would look whether any
        # token is masked at all, and so wait for the device.
        seen = x.attention_mask.bool()[:, None, None, :]
        if added is None:
            hidden: Tensor = self.transformer(
                input_ids=x.input_ids, attention_mask=seen
            ).last_hidden_state
            return hidden
        words = self.transformer.get_input_embeddings()(x.input_ids)
        marked: Tensor = self.transformer(
            inputs_embeds=words + added, attention_mask=seen
        ).last_hidden_state
        return marked

    def begin(self, x: TokenBatch) -> TokenBatch:
        """Do what lies before any dropout: nothing, it begins with the token vectors."""
        return x

    def finish(self, x: TokenBatch) -> Tensor:
        """Do the rest."""
        vectors: Tensor = self(x)
        return vectors

    def train(self, mode: bool = True) -> TextEncoder:
        """Switch dropout on or off; frozen, it stays off."""
        return super().train(mode and self.tuning != "frozen")


def pooled(hidden: Tensor, seen: Tensor, pooling: Literal["mean", "cls"]) -> Tensor:
    """One vector (batch, width) of token vectors (batch, length, width); `seen`: no padding."""
    if pooling == "cls":
        return hidden[:, 0]
    weights = seen.to(hidden.dtype)
    return torch.einsum("blw,bl->bw", hidden, weights) / weights.sum(1, keepdim=True).clamp_min(1)


class Adapter(nn.Module):
    """A module with a small network after it: h + up(relu(down(h))) of its output h.

    It begins as the module alone: `up` is zero (Pfeiffer et al., EACL 2021, where it follows the
    feed-forward part of every layer).
    """

    def __init__(self, inner: nn.Module, width: int, size: int) -> None:
        super().__init__()
        self.inner = inner
        self.down, self.up = nn.Linear(width, size), nn.Linear(size, width)
        nn.init.normal_(self.down.weight, std=0.02)
        nn.init.zeros_(self.down.bias)
        nn.init.zeros_(self.up.weight)
        nn.init.zeros_(self.up.bias)

    def forward(self, *inputs: Tensor) -> Tensor:
        """Do what the module does, and the small network."""
        hidden: Tensor = self.inner(*inputs)
        change: Tensor = self.up(torch.relu(self.down(hidden)))
        return hidden + change


def insert_adapters(transformer: nn.Module, width: int, size: int) -> None:
    """Put an adapter after the feed-forward part of every layer."""
    for layer in layers_of(transformer):
        name = next((name for name in ADAPTED if hasattr(layer, name)), None)
        if name is None:
            raise ConfigError(
                "adapters are for BERT, RoBERTa and their kin, not for "
                f"{type(transformer).__name__}: use --tuning full or frozen"
            )
        setattr(layer, name, Adapter(getattr(layer, name), width, size))


def layers_of(transformer: nn.Module) -> nn.ModuleList:
    """The layers of a transformer, which are the longest list in it."""
    lists = [part for part in transformer.modules() if isinstance(part, nn.ModuleList)]
    return max(lists, key=len, default=nn.ModuleList())


def _transformer(shape: EncoderShape) -> Any:  # noqa: ANN401 - one of many families
    """Build the network of a config, with its pretrained weights if the shape has them."""
    with needs_extra("text", "a text encoder"):
        from transformers import AutoConfig, AutoModel  # noqa: PLC0415 - may be missing
    values = dict(shape.config)
    config = AutoConfig.for_model(values.pop("model_type"), **values)
    from_config: Any = AutoModel.from_config
    transformer = from_config(config, attn_implementation="sdpa")
    transformer.pooler = None  # vectors come from the tokens
    if shape.weights is not None:
        transformer.load_state_dict(shape.weights)
    if shape.checkpointing:
        for layer in layers_of(transformer):
            layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
    return transformer

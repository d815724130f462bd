"""A tokenizer and a text encoder small enough for every test, with random weights."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from scipy import sparse
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel, RobertaConfig, RobertaModel

from train.config import TokenConfig
from train.data import MultiLabelData, Split
from train.data.conll import marked_data
from train.data.roles import RoleRow
from train.problem import EncodedTexts, EncoderShape, Problem, make_problem
from train.texts import token_rows, word_rows

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
WORDS = ["red", "blue", "green", "round", "square", "the", "a", "very", "long", "text", "is"]
PIECES = [
    *"abcdefghijklmnopqrstuvwxyz0123456789",
    *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz"),
]
SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 64,
}
FAMILIES = {"bert": (BertConfig, BertModel), "roberta": (RobertaConfig, RobertaModel)}
LABELS = ("red", "blue", "round")


def tiny_tokenizer() -> Tokenizer:
    vocabulary = {token: number for number, token in enumerate([*SPECIAL, *WORDS, *PIECES])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=SPECIAL[1]))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.add_special_tokens(SPECIAL)
    return tokenizer


def tiny_model(family: str = "bert") -> torch.nn.Module:
    """A model with weights so large that each of them shows."""
    config_class, model_class = FAMILIES[family]
    torch.manual_seed(0)
    config = config_class(
        vocab_size=len(SPECIAL) + len(WORDS) + len(PIECES), pad_token_id=0, **SIZES
    )
    config.initializer_range = 0.2
    return model_class(config, add_pooling_layer=False)


def tiny_shape(family: str = "bert", **changes: object) -> EncoderShape:
    model = tiny_model(family)
    values = {"pooling": "mean", "tuning": "full", "adapter_size": 4}
    return EncoderShape(
        config=json.loads(model.config.to_json_string(use_diff=False)),
        weights=model.state_dict(),
        **{**values, **changes},
    )


def tiny_texts(count: int = 48) -> MultiLabelData:
    """Texts that hold the names of their labels; row 0 has none of them and row 1 has all."""
    draw = np.random.default_rng(5)
    targets = (draw.random((count, len(LABELS))) < 0.4).astype(np.uint8)
    targets[0], targets[1] = 0, 1
    others = [word for word in WORDS if word not in LABELS]
    texts = []
    for row in targets:
        named = [label for label, has in zip(LABELS, row, strict=True) if has]
        words = [*named, *draw.choice(others, draw.integers(0, 9))]
        texts.append(" ".join(draw.permutation(words)))
    return MultiLabelData(
        name="tiny", inputs=texts, targets=sparse.csr_array(targets), labels=LABELS
    )


def by_hand(count: int = 48) -> Split:
    rows = np.arange(count)
    cuts = count // 2, 3 * count // 4
    return Split(
        train=rows[: cuts[0]], validation=rows[cuts[0] : cuts[1]], test=rows[cuts[1] :],
        rule="by hand",
    )  # fmt: skip


def token_problem(device: str | torch.device = "cpu", **changes: object) -> Problem:
    data, place = tiny_texts(), torch.device(device)
    rows = token_rows(data.inputs, tiny_tokenizer().to_str(), 32, place)
    texts = EncodedTexts(rows=rows, saved={}, encoder=tiny_shape(**changes))
    return make_problem(data, by_hand(), place, texts=texts)


def tiny_words(count: int = 48) -> MultiLabelData:
    """Rows whose colours are arguments of the word `is`: before it A0, after it A1."""
    draw = np.random.default_rng(7)
    rows = []
    for _ in range(count):
        before, after = (
            [*draw.choice(["the", "a", "very"], draw.integers(0, 3)), draw.choice(["red", "blue"])]
            for _ in range(2)
        )
        words = [*map(str, before), "is", *map(str, after), "text"]
        marks = [
            *(f"{'I' if place else 'B'}-A0" for place in range(len(before))), "B-V",
            *(f"{'I' if place else 'B'}-A1" for place in range(len(after))), "O",
        ]  # fmt: skip
        rows.append(RoleRow(words=tuple(words), predicate=len(before), marks=tuple(marks)))
    return marked_data({"train": rows}, "tiny-words")


def word_problem(device: str | torch.device = "cpu", **changes: object) -> Problem:
    data, place = tiny_words(), torch.device(device)
    rows = word_rows(data.words.rows, tiny_tokenizer().to_str(), 32, place)
    texts = EncodedTexts(rows=rows, saved={}, encoder=tiny_shape(**changes))
    return make_problem(data, by_hand(), place, texts=texts)


def write_encoder(folder: Path, family: str = "bert") -> None:
    """A folder as `save_pretrained` leaves it."""
    tiny_model(family).save_pretrained(folder)
    tiny_tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        '{"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "[PAD]"}', "utf-8"
    )


def is_for_tokens(config_class: type) -> bool:
    return issubclass(config_class, TokenConfig)

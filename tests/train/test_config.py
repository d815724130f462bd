from __future__ import annotations

import tomllib
from dataclasses import dataclass

import pytest

from train.config import (
    TrainingConfig,
    config_from,
    config_values,
    find_preset,
    read_preset,
    to_toml,
)
from train.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Config(TrainingConfig):
    lr: float = 0.1
    hidden: tuple[int, ...] = (4, 4)
    fast: bool = False


def preset(tmp_path, text):
    path = tmp_path / "some.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_values_survive_the_way_through_toml(tmp_path):
    config = Config(lr=1e-5, hidden=(7,), fast=True, scaling="none")
    path = preset(tmp_path, to_toml(config_values(config)))
    assert read_preset(path, Config) == config


def test_a_text_with_quotes_survives_toml():
    values = {"name": 'a "quoted" \\ name'}
    assert tomllib.loads(to_toml(values)) == values


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("lrr = 0.1", ["'lrr'", "did you mean 'lr'?"]),
        ('lr = "fast"', ["lr must be float", "'fast'"]),
        ("hidden = 4", ["hidden", "4"]),
        ("hidden = [4, 0.5]", ["hidden"]),
        ("epochs = 0", ["--epochs must be positive", "0"]),
        ("batch_size = 1.5", ["batch_size must be int"]),
        ('scaling = "weird"', ["scaling"]),
        ("lr = ", ["cannot be read"]),
    ],
)
def test_a_wrong_preset_is_told_in_one_sentence(tmp_path, text, words):
    with pytest.raises(ConfigError) as error:
        read_preset(preset(tmp_path, text), Config)
    assert "\n" not in str(error.value)
    assert all(word in str(error.value) for word in words)


def test_a_whole_number_will_do_for_a_float():
    assert config_from({"lr": 1}, Config, source="here").lr == 1.0


def test_auto_finds_the_data_sets_own_preset_if_there_is_one():
    assert find_preset("auto", "delicious", "seal").name == "seal.toml"
    assert find_preset("auto", "my-own-data", "seal") is None
    assert find_preset("none", "delicious", "seal") is None


def test_a_preset_that_is_no_file_is_refused():
    with pytest.raises(ConfigError, match="is no file"):
        find_preset("nowhere.toml", "delicious", "seal")

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

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


def test_a_path_survives_and_none_is_left_out(tmp_path):
    @dataclass(frozen=True, kw_only=True)
    class WithPath(TrainingConfig):
        run: Path | None = None

    values = config_values(WithPath(run=Path("a/b")))
    assert values["run"] == "a/b"
    assert config_from(values, WithPath, source="here") == WithPath(run=Path("a/b"))
    assert "run" not in to_toml(config_values(WithPath()))


def test_released_settings_that_do_not_exist_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="no released settings"):
        find_preset("released", "my-own-data", "seal")
    with pytest.raises(ConfigError, match="no released settings"):
        read_preset(preset(tmp_path, "lr = 1.0"), Config, name="released")


def test_a_table_adds_to_the_keys_at_the_top(tmp_path):
    path = preset(tmp_path, "lr = 1.0\n[a]\nlr = 2.0\nfast = true\n[released.a]\nlr = 3.0\n")
    assert read_preset(path, Config) == Config(lr=1.0)
    assert read_preset(path, Config, variant="a") == Config(lr=2.0, fast=True)
    assert read_preset(path, Config, variant="a", name="released") == Config(lr=3.0, fast=True)


def test_a_preset_that_is_no_file_is_refused():
    with pytest.raises(ConfigError, match="is no file"):
        find_preset("nowhere.toml", "delicious", "seal")


def test_a_method_without_variants_has_one_table_of_released_settings(tmp_path):
    path = preset(tmp_path, "lr = 1.0\nfast = true\n[released]\nlr = 3.0\n")
    assert read_preset(path, Config) == Config(lr=1.0, fast=True)
    assert read_preset(path, Config, name="released") == Config(lr=3.0, fast=True)

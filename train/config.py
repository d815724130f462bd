"""Hyper-parameters: dataclasses that become command-line flags, and TOML presets that fill them.

Precedence: defaults of the `Config` class < preset < flags. The text below a field is its `--help`.
"""

from __future__ import annotations

import dataclasses
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, get_args, get_type_hints

import typeguard

from train.errors import ConfigError, did_you_mean
from train.precision import Precision

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

PRESETS = Path(__file__).parent / "presets"
Monitor = Literal[
    "example_f1", "micro_f1", "tuned_macro_f1", "tuned_mean_f1", "ndcg@5", "mean_iou", "span_f1"
]  # fmt: skip
NAMED_PRESETS = ("released", "fast", "best")
"""Tables of a data set's own file that replace what it says otherwise.

released: the settings of the authors' program, where they differ from their paper's.
fast: larger batches and fewer inner steps than the paper's.
"""
TEXT_OPTIONS = (
    "encoder", "max_terms", "bigrams", "characters", "max_tokens", "pooling", "tuning",
    "encoder_lr", "adapter_size", "checkpointing",
)  # fmt: skip
"""Fields that mean something for texts alone, where a method has them."""
MOST_CHARACTERS = 10
EVERY_ITEM = typeguard.CollectionCheckStrategy.ALL_ITEMS


@dataclass(frozen=True, kw_only=True)
class MethodConfig:
    """What every method's `Config` has; one that is fitted in one go needs no more."""

    KINDS: ClassVar[dict[str, dict[str, Any]]] = {}
    """Where a method comes in several kinds: the fields that choose each, by its name.

    `seal:margin` on the command line, the table `[margin]` of a preset and the rows of results
    mean the kind `margin` of this table. A config is of exactly one kind.
    """

    scaling: Literal["auto", "none", "standard"] = "auto"
    """`standard`: inputs to zero mean, unit variance; `auto`: so for dense real values."""

    encoder: str = "auto"
    """Texts only: `tfidf`, `minilm`, a Hugging Face name, a folder; `auto`: tfidf if frozen."""
    max_terms: int = 20_000
    """Texts only, tfidf: the most frequent terms of the training texts, so many of them."""
    bigrams: bool = False
    """Texts only, tfidf: two words in a row are a term too."""
    characters: int = 0
    """Texts only, tfidf: terms are all runs of 1 to so many characters, not words: for molecules
    (SMILES), and for languages without spaces; 0: words."""
    max_tokens: int = 128
    """Texts only, other encoders: what is longer is cut off."""
    pooling: Literal["mean", "cls"] = "mean"
    """Texts only, other encoders: the vector of a text is the mean of its tokens', or the first."""
    tuning: Literal["frozen", "adapter", "full"] = "frozen"
    """Texts only: what is trained of the encoder: nothing, small layers between its own, or all."""

    def __post_init__(self) -> None:
        """Refuse bad values; those of most fields are refused by their types."""
        require_positive(self, "max_terms", "max_tokens")
        if not 0 <= self.characters <= MOST_CHARACTERS:
            raise ConfigError(
                f"--characters must be 0 (words) or 1 to {MOST_CHARACTERS}, got {self.characters}"
            )
        if self.characters and self.bigrams:
            raise ConfigError("--characters takes no words, and --bigrams two: leave one out")

    @property
    def variant(self) -> str:
        """The kind that the fields choose; empty for a method that has only one."""
        for kind, fields in self.KINDS.items():
            if all(getattr(self, name) == value for name, value in fields.items()):
                return kind
        return ""


@dataclass(frozen=True, kw_only=True)
class TrainingConfig(MethodConfig):
    """What a method that learns batch by batch has too: how long to train, on what batches."""

    epochs: int = 300
    """Passes over the training rows, at most."""
    patience: int = 20
    """Stop after this many epochs without a better validation score."""
    monitor: Monitor = "example_f1"
    """What the best epoch is judged by; `tuned`: each F1 at its best threshold of 0.1 ... 0.9;
    `ndcg@5`: the five best labels, on 4,096 rows at most; `mean_iou`: of masks; `span_f1`: of
    labels on words, and nothing else for them."""
    batch_size: int = 32
    """Rows in a training batch, of all processes together."""
    average: float = 0.0
    """Validate and keep a running mean of the weights: what it keeps of itself in a step, such
    as 0.999; 0: the weights of the last step."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "epochs", "patience", "batch_size")
        require_fraction(self, "average")


@dataclass(frozen=True, kw_only=True)
class TokenConfig(TrainingConfig):
    """What a method has too whose networks may begin with a text encoder that is trained."""

    encoder_lr: float = 5e-5
    """Step size of the text encoder, or of its adapters."""
    adapter_size: int = 48
    """Width of an adapter."""
    checkpointing: bool = False
    """Compute the encoder's layers twice in place of keeping them: slower, in less memory."""
    precision: Precision = "float32"
    """Texts and images: what encoders and convolutions compute in while they are trained."""

    SCALES_GRADIENTS: ClassVar[bool] = False
    """Whether the method's optimiser keeps small gradients of float16 from becoming zero."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "encoder_lr", "adapter_size")
        if self.precision == "float16" and not self.SCALES_GRADIENTS:
            raise ConfigError("--precision float16 is for abalone alone: take bfloat16")


ConfigT = TypeVar("ConfigT", bound=MethodConfig)
SettingsT = TypeVar("SettingsT", bound="DataclassInstance")


def require_positive(config: MethodConfig, *fields: str) -> None:
    """Refuse a zero or negative value in any of the named fields, by its flag."""
    for name in fields:
        value = getattr(config, name)
        if value <= 0:
            raise ConfigError(f"{flag(name)} must be positive, got {value}")


def require_not_negative(config: MethodConfig, *fields: str) -> None:
    """Refuse a negative value in any of the named fields, by its flag."""
    for name in fields:
        value = getattr(config, name)
        if value < 0:
            raise ConfigError(f"{flag(name)} must not be negative, got {value}")


def require_fraction(config: MethodConfig, *fields: str) -> None:
    """Refuse a value outside [0, 1) in any of the named fields, by its flag."""
    for name in fields:
        value = getattr(config, name)
        if not 0 <= value < 1:
            raise ConfigError(f"{flag(name)} must be at least 0 and below 1, got {value}")


def flag(field: str) -> str:
    """The command-line flag of a field."""
    return "--" + field.replace("_", "-")


def find_preset(preset: str, dataset: str, method: str) -> Path | None:
    """The preset file to use: `auto` is the data set's own where there is one, `none` is none.

    A name of `NAMED_PRESETS` is the data set's own file too, with that table of it.
    """
    if preset == "none":
        return None
    if preset != "auto" and preset not in NAMED_PRESETS:
        if not Path(preset).is_file():
            raise ConfigError(
                f"--preset {preset} is no file: give a .toml file, auto, "
                f"{', '.join(NAMED_PRESETS)} or none"
            )
        return Path(preset)
    # As the registry reads names: capitals do not matter, and a hyphen counts as an underscore.
    folder = Path(dataset).stem.lower().replace("-", "_")
    path = PRESETS / folder / f"{method}.toml"
    if preset in NAMED_PRESETS and not path.is_file():
        raise ConfigError(f"there are no {preset} settings of {method} for {dataset}")
    return path if path.is_file() else None


def read_preset(
    path: Path, config_class: type[ConfigT], *, variant: str = "", name: str = "auto"
) -> ConfigT:
    """Build a config from a TOML preset; an unknown key or a wrong type is an error.

    Keys at the top are for every variant of the method, those in a table such as `[nce]` for that
    one; `[released.nce]` holds what the named preset `released` replaces, or `[released]` for a
    method without variants.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"preset {path} cannot be read: {error}") from error
    values = {key: value for key, value in content.items() if not isinstance(value, dict)}
    values |= content.get(variant, {})
    if name in NAMED_PRESETS:
        named = content.get(name, {})
        named = named.get(variant) if variant else named
        if not named:
            raise ConfigError(f"{path} has no {name} settings for this: use --preset auto")
        values |= named
    return config_from(values, config_class, source=f"preset {path}")


def config_from(values: dict[str, Any], config_class: type[SettingsT], *, source: str) -> SettingsT:
    """Build a config or another dataclass from plain values, checked by the types of its fields."""
    hints = get_type_hints(config_class)
    fields = {field.name for field in dataclasses.fields(config_class)}
    checked: dict[str, Any] = {}
    for key, value in values.items():
        if key not in fields:
            raise ConfigError(f"{source} has an unknown key {key!r}; {did_you_mean(key, fields)}")
        checked[key] = _checked(value, hints[key], f"{source}: {key}")
    return config_class(**checked)


def config_values(config: MethodConfig) -> dict[str, Any]:
    """The plain values of a config, as TOML, JSON and checkpoints can hold them."""
    return {key: _plain(value) for key, value in dataclasses.asdict(config).items()}


def to_toml(values: dict[str, Any]) -> str:
    """Write flat plain values as TOML, which has no None (the standard library only reads it)."""
    told = {key: value for key, value in values.items() if value is not None}
    return "".join(f"{key} = {_toml_value(value)}\n" for key, value in told.items())


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return list(value)
    return str(value) if isinstance(value, Path) else value


def _toml_value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(_toml_value(item) for item in value) + "]"
    if isinstance(value, int | float):
        return repr(value)
    escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _checked(value: object, hint: object, where: str) -> object:
    if isinstance(value, list):
        value = tuple(value)
    if isinstance(value, str) and Path in get_args(hint):
        value = Path(value)
    if hint is float and type(value) is int:
        value = float(value)
    try:
        return typeguard.check_type(value, hint, collection_check_strategy=EVERY_ITEM)
    except typeguard.TypeCheckError as error:
        expected = getattr(hint, "__name__", str(hint))
        raise ConfigError(f"{where} must be {expected}, got {value!r}") from error

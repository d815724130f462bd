"""`models.toml`: default model, other names, versions on trial and limits of single models.

default = "delicious-seal"              # answers requests that name no model
[aliases]
prod = "delicious-seal"                 # or "delicious-seal@1", a version
[canary."delicious-seal"]
version = "2"                           # gets this share of the requests to the model
share = 0.1
[limits."delicious-seal"]               # instead of the flags of these names
max_queue_rows = 256
max_rows = 32                           # in one request
max_wait_ms = 50
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from fractions import Fraction
from pathlib import Path
from typing import Any

from train.errors import ConfigError, did_you_mean

TABLES = ("default", "aliases", "canary", "limits")


@dataclass(frozen=True)
class Canary:
    """A version on trial."""

    version: str
    share: Fraction
    """Of the requests to the model, between 0 and 1."""


@dataclass(frozen=True)
class ModelLimits:
    """What one model takes; None: as the command line says."""

    max_queue_rows: int | None = None
    max_rows: int | None = None
    max_wait_ms: float | None = None


@dataclass(frozen=True)
class Plan:
    """What `models.toml` says; the empty one is that of a server without the file."""

    default: str | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)
    canary: Mapping[str, Canary] = field(default_factory=dict)
    limits: Mapping[str, ModelLimits] = field(default_factory=dict)

    @property
    def pinned(self) -> set[tuple[str, str]]:
        """Names and versions that have to be loaded whatever the newest version is."""
        trials = {(name, canary.version) for name, canary in self.canary.items()}
        targets = [
            target.rpartition("@") for target in (*self.aliases.values(), self.default or "")
        ]
        return trials | {(name, version) for name, _, version in targets if name}


def read_plan(path: Path | None) -> Plan:
    """What the file says; without a file nothing.

    Raises:
        ConfigError: It is no TOML, or says something that a plan cannot say.
    """
    if path is None:
        return Plan()
    try:
        return _plan(tomllib.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return Plan()
    except (OSError, ValueError) as error:  # tomllib's and UTF-8's errors are ValueErrors
        raise ConfigError(f"{path} cannot be read ({error}): mend it") from error
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def check_plan(plan: Plan, names: Collection[str], versions: Mapping[str, Collection[str]]) -> None:
    """Check that everything that a plan speaks of is there.

    Args:
        plan: The plan.
        names: Models.
        versions: All versions of those in the repository.

    Raises:
        ConfigError: Something is not.
    """
    known = {*names, *(f"{name}@{one}" for name, all_of in versions.items() for one in all_of)}

    def check(what: str, name: str) -> None:
        if name not in known:
            raise ConfigError(f"{what} is {name!r}, which is no model: {did_you_mean(name, known)}")

    for alias, target in plan.aliases.items():
        if alias in known:
            raise ConfigError(f"alias {alias!r} is also the name of a model: choose another")
        check(f"alias {alias!r}", target)
    if plan.default is not None and plan.default not in plan.aliases:
        check("default", plan.default)
    for name, canary in plan.canary.items():
        _check_canary(name, canary, versions.get(name, ()))
    for name in plan.limits:
        check("a model with limits", name)


def _check_canary(name: str, canary: Canary, there: Collection[str]) -> None:
    if canary.version not in there or len(there) < 2:
        raise ConfigError(
            f"canary of {name!r} needs version {canary.version!r} and another one in the "
            f"repository, which has {', '.join(sorted(there)) or 'none'}"
        )


def _plan(content: dict[str, Any]) -> Plan:
    _check_keys(content, TABLES, "the file")
    aliases = _table(content, "aliases")
    for alias, target in aliases.items():
        _check_type(f"alias {alias!r}", target, str)
    default = content.get("default")
    if default is not None:
        _check_type("default", default, str)
    return Plan(
        default=default,
        aliases=aliases,
        canary={name: _canary(name, entry) for name, entry in _table(content, "canary").items()},
        limits={name: _limits(name, entry) for name, entry in _table(content, "limits").items()},
    )


def _canary(name: str, entry: object) -> Canary:
    where = f"canary of {name!r}"
    keys = tuple(one.name for one in fields(Canary))
    if not isinstance(entry, dict) or set(entry) != set(keys):
        raise ConfigError(f"{where} must have version and share, and nothing else")
    _check_type(f"version in the {where}", entry["version"], str)
    share = entry["share"]
    if type(share) not in (int, float) or not 0 <= share <= 1:
        raise ConfigError(f"share in the {where} must be a number from 0 to 1, got {share!r}")
    # As it is written: 0.1 is one of ten, which no float is.
    return Canary(entry["version"], Fraction(str(share)))


def _limits(name: str, entry: object) -> ModelLimits:
    where = f"limits of {name!r}"
    if not isinstance(entry, dict):
        raise ConfigError(f"{where} must be a table, got {entry!r}")
    _check_keys(entry, [one.name for one in fields(ModelLimits)], where)
    for key, value in entry.items():
        allowed = (int, float) if key == "max_wait_ms" else (int,)
        if type(value) not in allowed or not 0 < value < float("inf"):
            kind = "a positive number" if len(allowed) > 1 else "a positive whole number"
            raise ConfigError(f"{key} in the {where} must be {kind}, got {value!r}")
    return ModelLimits(**entry)


def _table(content: dict[str, Any], name: str) -> dict[str, Any]:
    table = content.get(name, {})
    if not isinstance(table, dict):
        raise ConfigError(f"{name} must be a table, got {table!r}")
    return table


def _check_keys(content: Mapping[str, object], known: Collection[str], where: str) -> None:
    for key in content:
        if key not in known:
            raise ConfigError(f"{where} has an unknown key {key!r}: {did_you_mean(key, known)}")


def _check_type(what: str, value: object, kind: type) -> None:
    if type(value) is not kind:
        raise ConfigError(f'{what} must be a text such as "name", got {value!r}')

"""Methods, found by file name: `python -m train seal` runs `train/methods/seal.py`.

A hyphen in a name is an underscore in its file's.

A method module offers three names:

    Config                           hyper-parameters; each field becomes a flag
    predictor(config, shape)         the untrained network that is exported and served
    build(config, problem) -> Method what trains it, batch by batch

One that is fitted in one go has, in place of `build` and with a `MethodConfig`:

    fit(config, problem)             the trained network
"""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

from train.errors import ConfigError, did_you_mean


def available() -> list[str]:
    """The names of all methods."""
    return sorted(info.name.replace("_", "-") for info in pkgutil.iter_modules(__path__))


def load(name: str) -> ModuleType:
    """The module of a method."""
    if name not in available():
        raise ConfigError(f"there is no method {name!r}; {did_you_mean(name, available())}")
    return importlib.import_module(f"train.methods.{name.replace('-', '_')}")


def summary(module: ModuleType) -> str:
    """The first line of a method's docstring."""
    return (module.__doc__ or "").strip().splitlines()[0]

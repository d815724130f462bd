"""Who may come in: keys in a file, hashed, each with a name and perhaps a rate.

    name:sha256 of the key in hex[:requests a second]

A request says `authorization: Bearer KEY`. Keys of `--api-keys` open the routes for predictions and
models, those of `--admin-keys` also metrics and the loading of models. Probes need none, nor do
the files of the page. Without either file there is no door, and a request costs what it did.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from serve.errors import ForbiddenError, RateLimitError, UnauthorizedError
from serve.settings import Settings
from serve.tracing import CARRIED
from train.errors import ConfigError

LINE = re.compile(r"([\w.-]{1,64}):([0-9a-f]{64})(?::(.+))?")
OPEN_PATHS = frozenset({"/", "/healthz", "/readyz", "/v2/health/live", "/v2/health/ready"})
PAGE_FILES = "/page/"
"""What the page at / is made of: it asks for a key itself, and shows it with what it asks."""
ADMIN_PATHS = ("/metrics", "/v2/repository/")
BURST_SECONDS = 1.0
"""What was not asked for in the last so many seconds may come at once."""


@dataclass(frozen=True, slots=True)
class Key:
    """One line of a file."""

    name: str
    digest: bytes
    rate: float | None = None
    """Requests a second that a worker takes."""
    is_admin: bool = False


def key_of(headers: Mapping[bytes, bytes], keys: Iterable[Key]) -> Key | None:
    """The key that a request shows; every key is compared in the same time, whichever fits."""
    scheme, _, secret = headers.get(b"authorization", b"").partition(b" ")
    if scheme.lower() != b"bearer":
        return None
    digest = hashlib.sha256(secret.strip()).digest()
    found = None
    for key in keys:
        if hmac.compare_digest(key.digest, digest):
            found = key
    return found


def kept_headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Of all headers those of key and trace, for the requests that one request makes."""
    return {name: value for name, value in headers if name in (b"authorization", *CARRIED)}


def is_admin_path(path: str) -> bool:
    """Whether a route shows or changes how the server runs."""
    return path.startswith(ADMIN_PATHS)


class Door:
    """The keys, and how often each was used of late by this worker."""

    def __init__(
        self,
        keys: Iterable[Key],
        *,
        is_closed_to_users: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._keys = tuple(keys)
        self._is_closed_to_users = is_closed_to_users
        self._clock = clock
        self._booked = {key.name: -math.inf for key in self._keys}
        """Until when the requests of a key so far would take, one after another at its rate."""

    def admit(self, headers: Mapping[bytes, bytes], path: str = "") -> None:
        """Let a request in.

        Raises:
            UnauthorizedError: It shows no key, or none that is known.
            ForbiddenError: Its key does not open this route.
            RateLimitError: Its key was used too often.
        """
        needs_admin = is_admin_path(path)
        is_open = path in OPEN_PATHS or path.startswith(PAGE_FILES)
        if is_open or not (needs_admin or self._is_closed_to_users):
            return
        key = key_of(headers, self._keys)
        if key is None:
            raise UnauthorizedError(
                "this server wants a key it knows: send the header 'authorization: Bearer KEY'"
            )
        if needs_admin and not key.is_admin:
            raise ForbiddenError(f"the key {key.name!r} does not open {path}: use an admin key")
        if key.rate is not None:
            self._book(key, key.rate)

    def _book(self, key: Key, rate: float) -> None:
        now = self._clock()
        until = max(self._booked[key.name], now)
        if until - now > BURST_SECONDS:
            wait = math.ceil(until - now - BURST_SECONDS)
            raise RateLimitError(
                f"the key {key.name!r} may ask {rate:g} times a second: try again in {wait} s",
                retry_after=wait,
            )
        self._booked[key.name] = until + 1 / rate


def door_of(settings: Settings) -> Door | None:
    """The door of a server, if it has one.

    Raises:
        ConfigError: A file cannot be read, or has a line that is none.
    """
    if settings.api_keys is None and settings.admin_keys is None:
        return None
    keys = [
        *(read_keys(settings.api_keys) if settings.api_keys else ()),
        *(read_keys(settings.admin_keys, is_admin=True) if settings.admin_keys else ()),
    ]
    names = [key.name for key in keys]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two keys are named {name!r}: give each a name of its own")
    return Door(keys, is_closed_to_users=settings.api_keys is not None)


def read_keys(path: Path, *, is_admin: bool = False) -> list[Key]:
    """The keys of a file; blank lines and those that begin with # are skipped."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the keys in {path} cannot be read: {error}") from error
    keys = []
    for number, line in enumerate(map(str.strip, lines), start=1):
        if line and not line.startswith("#"):
            keys.append(_key(f"{path}, line {number}", line, is_admin=is_admin))
    if not keys:
        raise ConfigError(f"{path} holds no keys: `python -m serve key NAME` makes one")
    return keys


def _key(where: str, line: str, *, is_admin: bool) -> Key:
    match = LINE.fullmatch(line)
    if match is None:
        # The line itself may be a key that was not hashed: it is not repeated.
        raise ConfigError(
            f"{where}: expected name:sha256[:rate], which `python -m serve key NAME` prints"
        )
    name, digest, rate = match.groups()
    return Key(name, bytes.fromhex(digest), None if rate is None else _rate(where, rate), is_admin)


def _rate(where: str, word: str) -> float:
    try:
        rate = float(word)
    except ValueError:
        rate = math.nan
    if not 0 < rate < math.inf:
        raise ConfigError(f"{where}: the rate must be requests a second, above 0, got {word!r}")
    return rate


@dataclass(frozen=True)
class NewKey:
    """Make a key: the key itself, which is shown this once, and its line for the file."""

    name: str
    """Who is to use it."""
    rate: float | None = None
    """Requests a second that each worker takes of it."""

    def lines(self) -> tuple[str, str]:
        """The key, and the line that knows it again."""
        secret = f"lw_{secrets.token_urlsafe(32)}"
        digest = hashlib.sha256(secret.encode()).hexdigest()
        line = f"{self.name}:{digest}" + ("" if self.rate is None else f":{self.rate:g}")
        _key("the new key", line, is_admin=False)
        return secret, line

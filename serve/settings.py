"""What the command line decides, checked once and never changed afterwards."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from train.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Serve bundles over HTTP: one address, any number of bundles and processes."""

    bundles: Annotated[
        tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[BUNDLE ...]")
    ] = ()
    """Folders that `python -m export` wrote."""
    repository: Path | None = None
    """Folder of NAME/VERSION/ bundles; the newest version of each is served, and changes are
    followed while the server runs."""
    models: Path | None = None
    """File with default model, aliases, versions on trial and limits; default: models.toml in the
    repository, if it is there."""
    energy: bool = False
    """Serve the energy network of each bundle that has one beside its model, as NAME-energy."""
    baseline: str | None = None
    """Model whose speed is 1 in comparisons; default: the first."""
    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 is every network of this machine."""
    port: int = 8000
    """Port to listen on; 0 picks a free one."""
    workers: int = 0
    """Processes that answer requests; 0: one for each core."""
    threads: int = 1
    """Threads inside one call of a model."""
    provider: Literal["auto", "cpu", "cuda", "tensorrt", "openvino"] = "auto"
    """What ONNX Runtime computes on; auto: CUDA where it is installed, else the CPU."""
    max_body_mb: int = 16
    """Largest request body, in MiB."""
    max_queue_rows: int = 4096
    """Rows that may wait for one model before requests are turned away with 429."""
    max_wait_ms: float = 1000.0
    """Milliseconds that the rows before a request may be expected to take before it is turned away
    with 429."""
    max_batch_rows: int = 128
    """Rows that a model gets at once; a larger request runs alone."""
    max_text_chars: int = 100_000
    """Characters that one text may have."""
    max_client_connections: int = 0
    """Connections that one address may have to each worker; 0: any number."""
    api_keys: Path | None = None
    """File of keys that requests must show, lines of name:sha256[:rate]; `python -m serve key NAME`
    makes one."""
    admin_keys: Path | None = None
    """File of keys that also open metrics and the loading of models."""
    admin_port: int | None = None
    """Port where alone metrics and the loading of models are found; 0 picks a free one."""
    trusted_key: Path | None = None
    """File of public keys in PEM: only bundles that one of them signed are served."""
    tls_cert: Path | None = None
    """Certificates in PEM, to speak HTTPS; needs --tls-key."""
    tls_key: Path | None = None
    """The private key of --tls-cert."""
    log_format: Literal["text", "json"] = "text"
    """How the lines of the log are written."""
    http: Literal["protocol", "asgi"] = "protocol"
    """How predictions are answered: inside uvicorn's HTTP protocol, which is fastest, or through
    ASGI as any other server would."""
    grace: float = 10.0
    """Seconds that accepted requests have to finish after SIGTERM."""

    def __post_init__(self) -> None:
        if not self.bundles and self.repository is None:
            raise ConfigError(
                "expected at least one bundle, got none: python -m serve model.bundle"
            )
        if self.workers < 0:
            raise ConfigError(
                f"--workers must be at least 1, or 0 for all cores, got {self.workers}"
            )
        if not (self.models is None or self.models.is_file()):
            raise ConfigError(f"--models {self.models} is no file: give one such as models.toml")
        self._check_addresses()
        self._check_counts()
        if not self.max_wait_ms > 0:
            raise ConfigError(f"--max-wait-ms must be positive, got {self.max_wait_ms}")
        if not 0 < self.grace < float("inf"):
            raise ConfigError(f"--grace must be a positive number of seconds, got {self.grace}")

    def _check_counts(self) -> None:
        for name in (
            "threads",
            "max_body_mb",
            "max_queue_rows",
            "max_batch_rows",
            "max_text_chars",
        ):
            if getattr(self, name) < 1:
                flag = name.replace("_", "-")
                raise ConfigError(f"--{flag} must be at least 1, got {getattr(self, name)}")

    def _check_addresses(self) -> None:
        for flag, port in (("--port", self.port), ("--admin-port", self.admin_port or 0)):
            if not 0 <= port <= 65535:
                raise ConfigError(f"{flag} must lie between 0 and 65535, got {port}")
        if self.port and self.port == self.admin_port:
            raise ConfigError(f"--port and --admin-port are both {self.port}: choose two")
        if self.max_client_connections < 0:
            raise ConfigError(
                "--max-client-connections must be at least 1, or 0 for any number, got "
                f"{self.max_client_connections}"
            )
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ConfigError("--tls-cert and --tls-key belong together: give both")

    @property
    def worker_count(self) -> int:
        """Processes that answer requests."""
        if self.workers:
            return self.workers
        # A container may be allowed fewer cores than the machine has.
        return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1

    @property
    def models_file(self) -> Path | None:
        """Where the plan for the models is, if it is anywhere."""
        if self.models is None and self.repository is not None:
            return self.repository / "models.toml"
        return self.models

    @property
    def max_body_bytes(self) -> int:
        """The largest request body in bytes."""
        return self.max_body_mb * 2**20

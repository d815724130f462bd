"""Which models there are, where they come from, and how they change while requests are answered.

A model that changes is loaded, probed and warmed up in a thread beside the one it replaces; then
one assignment switches, and the old one answers what it accepted and goes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from export.bundle import ENERGY, MANIFEST, MODEL, Bundle, BundleError, load_bundle
from serve.control import Control, Wishes
from serve.errors import InvalidInputError, UnknownModelError
from serve.plan import Plan, check_plan, read_plan
from serve.predictor import OnnxPredictor
from serve.settings import Settings
from train.errors import ConfigError, UserError, did_you_mean

if TYPE_CHECKING:
    from serve.service import Service

logger = logging.getLogger("serve")

LOOK_SECONDS = 0.05
"""Between two looks at what other workers wish."""
SCAN_SECONDS = 1.0
"""Between two looks at the repository."""
PATIENCE_SECONDS = 60.0
"""That a change may take until all workers have carried it out."""


@dataclass(frozen=True)
class Source:
    """Where a model is loaded from."""

    path: Path
    name: str | None = None
    """Under which it is served; None: as the manifest says."""
    version: str | None = None
    graph: str = MODEL

    def open(self, settings: Settings) -> OnnxPredictor:
        """Load, probe and warm up the model.

        Raises:
            BundleError: It cannot be served.
        """
        bundle = self._bundle(settings.trusted_key)
        manifest = bundle.manifest
        manifest = replace(
            manifest, name=self.name or manifest.name, version=self.version or manifest.version
        )
        return OnnxPredictor(
            replace(bundle, manifest=manifest),
            threads=settings.threads,
            max_batch_rows=settings.max_batch_rows,
            provider=settings.provider,
        )

    def _bundle(self, trusted: Path | None) -> Bundle:
        bundle = load_bundle(self.path, trusted)
        if self.graph == MODEL:
            return bundle
        energy = bundle.energy()
        if energy is None:
            raise BundleError(f"{self.path} has no {ENERGY} any more; export it --with-energy")
        return energy

    @property
    def stamp(self) -> object:
        """Changes whenever a file of the bundle does: it is written anew, completed or signed."""
        try:
            with os.scandir(self.path) as entries:
                files = sorted(_stamp(entry) for entry in entries if entry.name[0] != ".")
        except OSError:
            return None
        return (self.path, files) if (self.path / MANIFEST).is_file() else None


def _stamp(entry: os.DirEntry[str]) -> tuple[str, int, int, int]:
    stat = entry.stat()
    return entry.name, stat.st_mtime_ns, stat.st_ino, stat.st_size


def sources_of(settings: Settings) -> list[Source]:
    """All models that a server starts with: bundles, their energy networks, the repository's.

    Raises:
        ConfigError: There is none.
    """
    sources = [Source(path) for path in settings.bundles]
    if settings.energy:
        trusted = settings.trusted_key
        sources += [energy for source in sources for energy in _energy_of(source, trusted)]
    if settings.repository is not None:
        found = scan(settings.repository)
        plan = read_plan(settings.models_file)
        sources += wanted(found, plan, with_energy=settings.energy).values()
    if not sources:
        raise ConfigError(f"{settings.repository} holds no bundle yet: put one at NAME/VERSION/")
    return sources


def _energy_of(source: Source, trusted: Path | None) -> Iterable[Source]:
    bundle = load_bundle(source.path, trusted)
    if bundle.energy() is not None:
        yield replace(source, name=f"{bundle.manifest.name}-energy", graph=ENERGY)


Found = Mapping[str, list[Path]]
"""The bundles of each model in a repository, the newest last."""


def scan(repository: Path) -> Found:
    """All versions of each model in a folder of NAME/VERSION/ bundles.

    Raises:
        ConfigError: There is no such folder.
    """
    found: dict[str, list[Path]] = {}
    try:
        folders = sorted(path for path in repository.iterdir() if path.is_dir())
    except OSError as error:
        raise ConfigError(
            f"--repository {repository} cannot be read ({error.strerror}): "
            "give a folder of NAME/VERSION/ bundles"
        ) from error
    for folder in folders:
        # Exports and copies in progress are hidden or have no manifest yet.
        versions = [path for path in folder.glob("[!.]*") if (path / MANIFEST).is_file()]
        if versions and not folder.name.startswith("."):
            found[folder.name] = sorted(versions, key=lambda path: _natural(path.name))
    return found


def wanted(found: Found, plan: Plan, *, with_energy: bool = False) -> dict[str, Source]:
    """What is to be served of a repository, by name; a version beside the first as NAME@VERSION.

    The first is the newest, but none on trial.
    """
    sources: dict[str, Source] = {}
    for name, paths in found.items():
        trial = plan.canary.get(name)
        proved = [path for path in paths if trial is None or path.name != trial.version]
        newest = (proved or paths)[-1]
        # Before the newest: what was it until now must not be missing in between.
        for path in paths:
            if path != newest and (name, path.name) in plan.pinned:
                key = f"{name}@{path.name}"
                sources[key] = Source(path, key, path.name)
        sources[name] = Source(newest, name, newest.name)
        if with_energy and (newest / ENERGY).is_file():
            key = f"{name}-energy"
            sources[key] = Source(newest, key, newest.name, ENERGY)
    return sources


def _natural(version: str) -> list[tuple[int, int | str]]:
    """So that 10 comes after 9."""
    parts = re.split(r"(\d+)", version)
    return [(1, int(part)) if part.isdigit() else (0, part) for part in parts if part]


class Library:
    """The models of one worker."""

    def __init__(
        self, service: Service, settings: Settings, control: Control | None = None, worker: int = 0
    ) -> None:
        self._service = service
        self._settings = settings
        self._control = control or Control()
        self._worker = worker
        self._sources = {
            name: Source(
                model.predictor.bundle.path,
                name,
                model.manifest.version,
                model.predictor.bundle.graph,
            )
            for name, model in service.models.items()
        }
        self._loaded = {name: source.stamp for name, source in self._sources.items()}
        self._failed: dict[str, tuple[object, Exception]] = {}
        self._wishes = Wishes()
        self._done = 0
        self._lock = asyncio.Lock()
        self._plan = read_plan(settings.models_file)
        self._plan_problem: ConfigError | None = None
        if self._plan != Plan():
            found = {} if settings.repository is None else scan(settings.repository)
            self._check_plan(self._plan, found)
            service.follow(self._plan)

    @property
    def problems(self) -> dict[str, str]:
        """What could not be loaded and why; what was there before serves on."""
        problems = {name: str(error) for name, (_, error) in self._failed.items()}
        if self._plan_problem is not None and self._settings.models_file is not None:
            problems[self._settings.models_file.name] = str(self._plan_problem)
        return problems

    def index(self) -> list[dict[str, str]]:
        """Every model, loaded or not, as the Open Inference Protocol lists them."""
        entries = []
        for name, source in self._sources.items():
            model = self._service.models.get(name)
            reason = str(self._failed[name][1]) if name in self._failed else "unloaded"
            entries.append(
                {
                    "name": name.removesuffix(f"@{source.version}"),
                    "version": model.manifest.version if model else "",
                    "state": "READY" if model else "UNAVAILABLE",
                    "reason": "" if model else reason,
                }
            )
        return entries

    async def load(self, name: str) -> None:
        """Load a model in all workers, anew if it is loaded.

        Raises:
            UnknownModelError: Neither the command line nor the repository has it.
            InvalidInputError: Its bundle cannot be served.
        """
        await self._scan()
        self._check(name)
        self._failed.pop(name, None)

        def wish(wishes: Wishes) -> None:
            wishes.loads[name] = wishes.loads.get(name, 0) + 1
            if name in wishes.unloaded:
                wishes.unloaded.remove(name)

        await self._in_all_workers(self._control.update(wish))
        if name in self._failed:
            raise InvalidInputError(str(self._failed[name][1]))

    async def unload(self, name: str) -> None:
        """Unload a model in all workers, until it is loaded by name again.

        Raises:
            UnknownModelError: Neither the command line nor the repository has it.
        """
        self._check(name)

        def wish(wishes: Wishes) -> None:
            if name not in wishes.unloaded:
                wishes.unloaded.append(name)

        await self._in_all_workers(self._control.update(wish))

    async def watch(self) -> None:
        """Carry out what other workers wish and follow the repository, for ever."""
        looks = 0
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            looks += 1
            if self._control.change != self._done:
                await self._follow()
            if self._settings.models_file is not None and looks * LOOK_SECONDS >= SCAN_SECONDS:
                looks = 0
                await self._scan()

    def _check(self, name: str) -> None:
        if name not in self._sources:
            hint = did_you_mean(name[:100], self._sources)
            raise UnknownModelError(f"there is no model {name[:100]!r}: {hint}")

    async def _in_all_workers(self, change: int) -> None:
        await self._follow()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not self._control.is_carried_out(change):
                await asyncio.sleep(LOOK_SECONDS)

    async def _follow(self) -> None:
        """Carry out all wishes that are not yet."""
        async with self._lock:
            change, wishes = self._control.read()
            for name in wishes.unloaded:
                self._service.remove(name)
                self._loaded.pop(name, None)
            for name, count in wishes.loads.items():
                is_new = count != self._wishes.loads.get(name)
                if is_new and name in self._sources and name not in wishes.unloaded:
                    await self._load(name)
            self._wishes, self._done = wishes, change
            self._control.carried_out(self._worker, change)

    async def _scan(self) -> None:
        """Load what is new in the repository, follow the plan and drop what is gone."""
        if self._settings.models_file is None:
            return
        async with self._lock:
            try:
                found = await asyncio.to_thread(self._found)
            except ConfigError as error:
                logger.warning("%s", error)
                return
            plan = self._new_plan(found)
            sources = wanted(found, plan, with_energy=self._settings.energy)
            for name, source in sources.items():
                self._sources[name] = source
                if self._loaded.get(name) == source.stamp:
                    self._failed.pop(name, None)
                elif name not in self._wishes.unloaded:
                    await self._load(name)
            if plan != self._plan:
                self._plan = plan
                self._service.follow(plan)
            self._forget(set(self._sources) - set(sources))

    def _found(self) -> Found:
        repository = self._settings.repository
        return {} if repository is None else scan(repository)

    def _new_plan(self, found: Found) -> Plan:
        """What the plan's file says now, or what it said before if that cannot be followed."""
        try:
            plan = read_plan(self._settings.models_file)
            self._check_plan(plan, found)
        except ConfigError as error:
            if str(error) != str(self._plan_problem):
                logger.warning("%s; the plan before is followed on", error)
            self._plan_problem = error
            return self._plan
        self._plan_problem = None
        return plan

    def _check_plan(self, plan: Plan, found: Found) -> None:
        names = {name for name, source in self._sources.items() if not self._is_followed(source)}
        names |= set(wanted(found, plan, with_energy=self._settings.energy))
        versions = {name: [path.name for path in paths] for name, paths in found.items()}
        try:
            check_plan(plan, names, versions)
        except ConfigError as error:
            raise ConfigError(f"{self._settings.models_file}: {error}") from error

    def _is_followed(self, source: Source) -> bool:
        return self._settings.repository in source.path.parents

    def _forget(self, names: Iterable[str]) -> None:
        for name in names:
            if self._is_followed(self._sources[name]):
                self._service.remove(name)
                del self._sources[name]
                self._loaded.pop(name, None)
                self._failed.pop(name, None)

    async def _load(self, name: str) -> None:
        """Load a model beside what is there, then switch; a failure leaves the old one."""
        source = self._sources[name]
        stamp = source.stamp
        if name in self._failed and self._failed[name][0] == stamp:
            return
        try:
            predictor = await asyncio.to_thread(source.open, self._settings)
        except (UserError, OSError) as error:
            logger.warning("model %s was not loaded: %s", name, error)
            self._failed[name] = (stamp, error)
            return
        self._failed.pop(name, None)
        self._loaded[name] = stamp
        self._service.put(predictor)

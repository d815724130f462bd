"""Names of requests -> models: one look into a table that is made anew when models change."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING

from serve.errors import InvalidInputError, UnknownModelError
from serve.kinds import kind_of
from serve.plan import Plan
from train.errors import did_you_mean

if TYPE_CHECKING:
    from serve.service import LoadedModel


class Split:
    """Two versions of a model that share its requests.

    Counted in whole numbers, so that of any n requests the version on trial gets its share rounded
    down, without chance and without drift.
    """

    __slots__ = ("_count", "_due", "_of", "canary", "stable")

    def __init__(self, stable: LoadedModel, canary: LoadedModel, share: Fraction) -> None:
        self.stable = stable
        self.canary = canary
        self._due = 0
        self._count, self._of = share.numerator, share.denominator

    def next(self) -> LoadedModel:
        """The version for one more request."""
        self._due += self._count
        if self._due < self._of:
            return self.stable
        self._due -= self._of
        return self.canary


class Names:
    """Who answers to which name: models, their versions as NAME@VERSION, and aliases."""

    def __init__(self, models: Mapping[str, LoadedModel], plan: Plan) -> None:
        # None is the name of requests that name no model.
        table: dict[str | None, LoadedModel | Split] = {}
        self._table = table
        self._versions: dict[str, list[str]] = {}
        for name, model in models.items():
            table[f"{model.wire.name}@{model.manifest.version}"] = table[name] = model
            self._versions.setdefault(model.wire.name, []).append(model.manifest.version)
        self.canary = {
            name: canary
            for name, canary in plan.canary.items()
            if name in models and f"{name}@{canary.version}" in models
        }
        for name, canary in self.canary.items():
            trial = models[f"{name}@{canary.version}"]
            table[name] = Split(models[name], trial, canary.share)
        self.aliases = {alias: name for alias, name in plan.aliases.items() if name in table}
        table.update({alias: table[name] for alias, name in self.aliases.items()})
        self._known = [*models, *self.aliases]
        only = next(iter(self._versions)) if len(self._versions) == 1 else None
        self.default = plan.default if plan.default in table else only
        """What answers requests that name no model."""
        if self.default in table:
            table[None] = table[self.default]
        self._only = next(iter(models.values())) if len(models) == 1 else None

    def choose(self, name: object) -> LoadedModel:
        """The model for one request.

        Raises:
            InvalidInputError: No name although several models are loaded and none is the default,
                or a name that is no string.
            UnknownModelError: No model of that name.
        """
        entry = self._find(name)
        return entry.next() if isinstance(entry, Split) else entry

    def about(self, name: object) -> LoadedModel:
        """The model of a name where nothing is scored, so that no version's turn is used up.

        Raises:
            InvalidInputError: As above.
            UnknownModelError: As above.
        """
        entry = self._find(name)
        return entry.stable if isinstance(entry, Split) else entry

    def choose_version(self, name: object, version: str | None) -> LoadedModel:
        """The model for one request to a version; None: to none in particular.

        Raises:
            InvalidInputError: As above.
            UnknownModelError: As above, or it is not loaded in that version.
        """
        return self.choose(name) if version is None else self._in_version(name, version)

    def about_version(self, name: object, version: str | None) -> LoadedModel:
        """Likewise where nothing is scored."""
        return self.about(name) if version is None else self._in_version(name, version)

    def known_early(self, name: str | None, version: str | None) -> LoadedModel | None:
        """The model for one request as far as its address tells, which is all that there is yet."""
        if name is None:
            return self._only
        entry = self._table.get(name if version is None else f"{name}@{version}")
        return None if isinstance(entry, Split) else entry

    def versions(self, model: LoadedModel) -> list[str]:
        """All versions that are loaded of what has this one's name."""
        return self._versions[model.wire.name]

    def is_split(self, name: object) -> bool:
        """Whether two versions share the requests to a name."""
        return isinstance(self._find(name), Split)

    def _in_version(self, name: object, version: str) -> LoadedModel:
        model = self.about(name)
        entry = self._table.get(f"{model.wire.name}@{version}")
        if entry is None or isinstance(entry, Split):
            loaded = " and ".join(map(repr, self.versions(model)))
            raise UnknownModelError(
                f"model {model.wire.name!r} is loaded in version {loaded}, not {version[:40]!r}"
            )
        return entry

    def _find(self, name: object) -> LoadedModel | Split:
        try:
            return self._table[name]  # type: ignore[index]
        except (KeyError, TypeError):  # not there, or a list that cannot be a key
            raise self._problem(name) from None

    def _problem(self, name: object) -> Exception:
        if name is None:
            loaded = ", ".join(sorted(self._known))
            return InvalidInputError(f'"model" must name one of the loaded models: {loaded}')
        if not isinstance(name, str):
            return InvalidInputError(f'"model" must be a string, got {kind_of(name)}')
        hint = did_you_mean(name[:100], self._known)
        return UnknownModelError(f"no model {name[:100]!r} is loaded: {hint}")

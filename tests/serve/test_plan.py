"""What models.toml may say, and who answers to which name."""

from __future__ import annotations

from fractions import Fraction
from types import SimpleNamespace

import pytest

from serve.errors import InvalidInputError, UnknownModelError
from serve.names import Names, Split
from serve.plan import Canary, ModelLimits, Plan, check_plan, read_plan
from train.errors import ConfigError

WHOLE = """
default = "prod"
[aliases]
prod = "demo@1"
[canary."demo"]
version = "2"
share = 0.1
[limits."other"]
max_queue_rows = 256
max_rows = 32
max_wait_ms = 1.5
"""


def loaded(name, version):
    """As much of a loaded model as names need."""
    wire = SimpleNamespace(name=name.partition("@")[0])
    return SimpleNamespace(wire=wire, manifest=SimpleNamespace(name=name, version=version))


MODELS = {
    "demo@2": loaded("demo@2", "2"),
    "demo": loaded("demo", "1"),
    "other": loaded("other", "a"),
}


def written(tmp_path, text):
    path = tmp_path / "models.toml"
    path.write_text(text)
    return path


def test_a_whole_file_is_read(tmp_path):
    plan = read_plan(written(tmp_path, WHOLE))
    assert plan == Plan(
        default="prod",
        aliases={"prod": "demo@1"},
        canary={"demo": Canary("2", Fraction(1, 10))},
        limits={"other": ModelLimits(256, 32, 1.5)},
    )
    assert plan.pinned == {("demo", "1"), ("demo", "2")}
    check_plan(plan, ["demo", "other"], {"demo": ["1", "2"]})


def test_no_file_says_nothing(tmp_path):
    assert read_plan(None) == read_plan(tmp_path / "models.toml") == Plan()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("default = ", "cannot be read"),
        ("default = 1", 'default must be a text such as "name", got 1'),
        ("alias = {}", "unknown key 'alias': did you mean 'aliases'?"),
        ("aliases = 1", "aliases must be a table, got 1"),
        ("[aliases]\nprod = 2", "alias 'prod' must be a text"),
        ('[canary.demo]\nversion = "2"', "must have version and share"),
        ("[canary]\ndemo = 1", "must have version and share"),
        ("[canary.demo]\nversion = 2\nshare = 0.1", "version in the canary of 'demo' must be"),
        ('[canary.demo]\nversion = "2"\nshare = 1.1', "a number from 0 to 1, got 1.1"),
        ('[canary.demo]\nversion = "2"\nshare = nan', "a number from 0 to 1, got nan"),
        ("[limits.demo]\nrows = 1", "limits of 'demo' has an unknown key 'rows'"),
        ("[limits.demo]\nmax_rows = 0", "must be a positive whole number, got 0"),
        ("[limits.demo]\nmax_rows = 1.5", "must be a positive whole number, got 1.5"),
        ("[limits.demo]\nmax_wait_ms = inf", "must be a positive number, got inf"),
        ("[limits.demo]\nmax_wait_ms = true", "must be a positive number, got True"),
        ("limits.demo = 1", "limits of 'demo' must be a table"),
    ],
)
def test_a_wrong_file_is_one_sentence_with_its_path(tmp_path, text, sentence):
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as error:
        read_plan(path)
    assert sentence in str(error.value)
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("plan", "sentence"),
    [
        (Plan(default="dem"), "default is 'dem', which is no model: did you mean 'demo'?"),
        (Plan(aliases={"prod": "demo@3"}), "alias 'prod' is 'demo@3', which is no model"),
        (Plan(aliases={"a": "demo", "b": "a"}), "alias 'b' is 'a', which is no model"),
        (Plan(aliases={"other": "demo"}), "alias 'other' is also the name of a model"),
        (Plan(limits={"nobody": ModelLimits()}), "'nobody', which is no model"),
        (Plan(canary={"demo": Canary("3", Fraction(1))}), "version '3' and another one"),
        (Plan(canary={"other": Canary("a", Fraction(1))}), "which has none"),
    ],
)
def test_a_plan_for_what_is_not_there_is_refused(plan, sentence):
    with pytest.raises(ConfigError, match=sentence.replace("?", "[?]")):
        check_plan(plan, ["demo", "other"], {"demo": ["1", "2"]})


@pytest.mark.parametrize("share", ["0", "0.1", "0.29", "1/3", "0.5", "0.999", "1"])
def test_a_share_is_exact_after_any_number_of_requests(share):
    split = Split("stable", "canary", Fraction(share))
    got = 0
    for count in range(1, 3001):
        got += split.next() == "canary"
        assert got == count * Fraction(share) // 1


def test_names_versions_aliases_and_the_default():
    names = Names(MODELS, Plan(default="prod", aliases={"prod": "demo@1", "new": "demo@2"}))
    for name, key in {
        "demo": "demo",
        "demo@1": "demo",
        "demo@2": "demo@2",
        "other@a": "other",
        "prod": "demo",
        "new": "demo@2",
        None: "demo",
    }.items():
        assert names.choose(name) is names.about(name) is MODELS[key]
    assert names.choose_version("demo", None) is MODELS["demo"]
    assert names.choose_version("prod", "2") is MODELS["demo@2"]
    assert names.versions(MODELS["demo"]) == ["2", "1"]
    with pytest.raises(UnknownModelError, match="version '2' and '1', not '3'"):
        names.choose_version("demo", "3")
    with pytest.raises(UnknownModelError, match="did you mean 'prod'"):
        names.choose("prid")
    for odd in (1, ["demo"], {"demo": 1}, True):
        with pytest.raises(InvalidInputError, match='"model" must be a string'):
            names.choose(odd)


def test_without_a_default_several_models_need_a_name():
    with pytest.raises(InvalidInputError, match="must name one of the loaded models: demo"):
        Names(MODELS, Plan()).choose(None)
    versions = {name: MODELS[name] for name in ("demo@2", "demo")}
    assert Names(versions, Plan()).choose(None) is MODELS["demo"]


def test_what_is_not_loaded_is_left_out():
    plan = Plan("gone", {"a": "gone", "b": "demo"}, {"demo": Canary("3", Fraction(1))})
    names = Names(MODELS, plan)
    assert names.aliases == {"b": "demo"}
    assert names.canary == {}
    assert names.default is None
    assert names.choose("demo") is MODELS["demo"]


def test_looking_does_not_use_up_turns():
    names = Names(MODELS, Plan(canary={"demo": Canary("2", Fraction(1, 2))}))
    assert [names.about("demo") for _ in range(3)] == [MODELS["demo"]] * 3
    turns = [names.choose("demo"), names.choose("demo")]
    assert turns == [MODELS["demo"], MODELS["demo@2"]]
    assert names.is_split("demo")
    assert not names.is_split("demo@1")


def test_a_queue_is_known_early_only_where_the_body_cannot_change_it():
    names = Names(MODELS, Plan(canary={"demo": Canary("2", Fraction(1, 2))}))
    assert names.known_early("other", None) is MODELS["other"]
    assert names.known_early("demo", None) is None
    assert names.known_early("demo", "2") is MODELS["demo@2"]
    assert names.known_early(None, None) is None
    assert names.known_early("nobody", None) is None
    alone = Names({"other": MODELS["other"]}, Plan())
    assert alone.known_early(None, None) is MODELS["other"]

"""Alerts, dashboard and scaling speak of metrics that exist, and alerts fire when they should."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from export.bundle import InputSpec, Manifest, Thresholds
from serve.errors import BUG, TABLE
from serve.telemetry import Telemetry

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "k8s" / "components" / "monitoring"
ADAPTER = ROOT / "k8s" / "components" / "custom-metrics" / "prometheus-adapter.yaml"
# kube-state-metrics and Prometheus itself.
NOT_OURS = {
    "kube_deployment_spec_replicas",
    "kube_deployment_status_replicas_available",
    "up",
}
# What Prometheus adds to each series, and `le` of a histogram.
ADDED_LABELS = {"namespace", "pod", "job", "le"}
RULES = yaml.safe_load((MONITORING / "alerts.yaml").read_text("utf-8"))["spec"]
ALERTS = [rule for group in RULES["groups"] for rule in group["rules"]]
DASHBOARD = json.loads((MONITORING / "dashboard.json").read_text("utf-8"))


def series():
    """Every name that /metrics shows once each thing has happened, with its labels."""
    manifest = Manifest(
        name="m", version="1", method="ce", task="multilabel", dataset="demo",
        input=InputSpec(kind="features", width=1), label_count=1,
        thresholds=Thresholds(tuned=0.5, per_label=[0.5]),
        test_scores={}, largest_difference=0.0, versions={},
    )  # fmt: skip
    telemetry = Telemetry()
    meters = telemetry.for_model(manifest)
    meters.batch(rows=1, seconds=0.1)
    meters.answer(request_seconds=0.1, queue_seconds=0.1)
    telemetry.reject(manifest, 429, "busy")
    for gauge in ("in_flight_requests", "ready_workers", "load_problems"):
        telemetry.watch(lambda: 0, gauge)
    for gauge in ("queued_rows", "load_seconds"):
        telemetry.watch(lambda: 0, gauge, manifest.name, manifest.method)
    families = text_string_to_metric_families(telemetry.exposition().decode())
    return {sample.name: set(sample.labels) for family in families for sample in family.samples}


def expressions():
    yield from ((rule["alert"], rule["expr"]) for rule in ALERTS)
    for panel in DASHBOARD["panels"]:
        yield from ((panel["title"], target["expr"]) for target in panel["targets"])


@pytest.mark.parametrize(("where", "expression"), list(expressions()))
def test_metrics_and_their_labels_exist(where, expression):
    known = series()
    names = re.findall(r"\b(?:labelwright|kube|up\b)\w*", re.sub(r'"[^"]*"', '""', expression))
    assert names
    assert set(names) <= known.keys() | NOT_OURS
    labels = {label for name in names for label in known.get(name, {"deployment"})} | ADDED_LABELS
    used = re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", expression)
    for group in re.findall(r"by \(([^)]*)\)", expression):
        used += re.split(r",\s*", group)
    assert set(used) <= labels, where


def test_reasons_and_statuses_of_the_alerts_are_the_servers():
    ours = {value for status, kind in [*TABLE.values(), BUG] for value in (str(int(status)), kind)}
    used = set()
    for rule in ALERTS:
        for value in re.findall(r'(?:reason|status)(?:=|!)~"([^"]+)"', rule["expr"]):
            used |= set(value.split("|")) - {"5.."}
    assert used == {"503", "504", "busy", "deadline_passed"}
    assert used <= ours


def test_variables_of_the_dashboard_exist():
    names = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    text = json.dumps(DASHBOARD)
    used = set(re.findall(r"\$\{?(\w+)", text)) - {"__rate_interval", "__all"}
    assert used == names
    for queried in re.findall(r"label_values\((\w+)", text):
        assert queried in series()


def test_the_dashboard_shows_every_metric():
    shown = " ".join(t["expr"] for panel in DASHBOARD["panels"] for t in panel["targets"])
    families = {metric.name for metric in Telemetry().registry.collect()}
    assert {name for name in families if name not in shown} == set()


def test_panels_do_not_overlap():
    taken = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not taken & cells
        assert at["x"] + at["w"] <= 24
        taken |= cells


def test_the_autoscaler_asks_for_metrics_that_the_adapter_has(render):
    (scaler,) = [t for t in render("overlays/prod") if t["kind"] == "HorizontalPodAutoscaler"]
    asked = {m["pods"]["metric"]["name"] for m in scaler["spec"]["metrics"] if m["type"] == "Pods"}
    (rule,) = yaml.safe_load(ADAPTER.read_text("utf-8"))["rules"]["custom"]
    pattern = re.search(r'__name__=~"([^"]+)"', rule["seriesQuery"])[1]
    assert asked == {name for name in series() if re.fullmatch(pattern, name)}
    assert len(asked) == 2
    assert [m["type"] for m in scaler["spec"]["metrics"]].count("Resource") == 1


def test_every_alert_leads_to_its_page():
    page = (ROOT / "docs" / "operations.md").read_text("utf-8")
    anchors = {h.lower().replace(" ", "-") for h in re.findall(r"^#+ (.+)$", page, re.M)}
    for rule in ALERTS:
        place, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert place == "docs/operations.md"
        assert anchor in anchors
        words = re.findall("[A-Z][a-z]+", rule["alert"].removeprefix("Labelwright"))
        assert anchor == "-".join(words).lower()
        assert f"`{rule['alert']}`" in page


def test_every_alert_is_tested():
    tested = yaml.safe_load((MONITORING / "alerts_test.yaml").read_text("utf-8"))["tests"]
    cases = [case for test in tested for case in test["alert_rule_test"]]
    for rule in ALERTS:
        outcomes = {bool(c["exp_alerts"]) for c in cases if c["alertname"] == rule["alert"]}
        assert outcomes == {True, False}, rule["alert"]


@pytest.fixture
def rules_file(tmp_path):
    path = tmp_path / "alerts.yaml"
    path.write_text(yaml.safe_dump(RULES), "utf-8")
    return path


def test_alerts_fire_when_they_should(promtool, rules_file):
    promtool("check", "rules", "--lint=all", "--lint-fatal", rules_file)
    tests = shutil.copy(MONITORING / "alerts_test.yaml", rules_file.parent)
    promtool("test", "rules", tests)


def test_queries_of_dashboard_and_adapter_are_queries(promtool, tmp_path):
    """As recording rules, because promtool checks no bare queries without a server."""
    (rule,) = yaml.safe_load(ADAPTER.read_text("utf-8"))["rules"]["custom"]
    template = {"Series": "up", "LabelMatchers": 'pod="a"', "GroupBy": "pod"}
    queries = [
        re.sub(r"<<\.(\w+)>>", lambda found: template[found[1]], rule["metricsQuery"]),
        rule["seriesQuery"],
        *(re.sub(r"\$__rate_interval", "5m", expression) for _, expression in expressions()),
    ]
    rules = [{"record": f"query:{i}", "expr": query} for i, query in enumerate(queries)]
    path = tmp_path / "queries.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}), "utf-8")
    promtool("check", "rules", "--lint=none", path)

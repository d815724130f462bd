"""Every object is one that a cluster takes: right fields, hardened pods."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import jsonschema
import kubernetes_validate
import pytest

# The oldest that has all fields used, and the newest that the validator knows.
VERSIONS = ("1.30", "1.37")
CUSTOM = json.loads(Path(__file__).with_name("custom_kinds.json").read_text("utf-8"))


def check(thing):
    """Raise on a field that is unknown, missing or of the wrong type."""
    if thing["kind"] in CUSTOM:
        schema = {"$defs": CUSTOM["$defs"], **CUSTOM[thing["kind"]]}
        jsonschema.Draft202012Validator(schema).validate(thing)
    else:
        for version in VERSIONS:
            kubernetes_validate.validate(thing, version, strict=True)


def as_pod(template):
    metadata = {"name": "of-a-template", **template["metadata"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def test_each_object_is_valid(objects, pods):
    assert objects
    for thing in [*objects, *map(as_pod, pods)]:
        check(thing)


@pytest.fixture
def deployment(render):
    things = copy.deepcopy(render("base"))
    return next(thing for thing in things if thing["kind"] == "Deployment")


def test_a_misspelt_field_is_noticed(deployment):
    server = deployment["spec"]["template"]["spec"]["containers"][0]
    server["readynessProbe"] = server.pop("readinessProbe")
    with pytest.raises(kubernetes_validate.ValidationError, match="readynessProbe"):
        check(deployment)


@pytest.mark.parametrize(
    ("folder_of", "kind"),
    [
        ("components/monitoring", "ServiceMonitor"),
        ("components/monitoring", "PrometheusRule"),
        ("components/kserve", "ServingRuntime"),
        ("components/kserve", "InferenceService"),
        ("components/training-operator", "PyTorchJob"),
        ("components/kserve-autoscaling", "InferenceService"),
        ("components/ray-search", "RayJob"),
        ("components/ray-scoring", "RayJob"),
    ],
)
def test_a_misspelt_field_of_a_custom_kind_is_noticed(render, folder_of, kind):
    thing = copy.deepcopy(next(t for t in render(folder_of) if t["kind"] == kind))
    check(thing)
    thing["spec"]["replicaz"] = 1
    with pytest.raises(jsonschema.ValidationError, match="replicaz"):
        check(thing)


def test_pods_keep_the_restricted_standard(pods):
    """Kubernetes' standard `restricted`, and a root file system that stays as it is."""
    for pod in pods:
        spec, whole = pod["spec"], pod["spec"].get("securityContext", {})
        assert not spec.keys() & {"hostNetwork", "hostPID", "hostIPC"}
        for volume in spec["volumes"]:
            assert volume.keys() - {"name"} <= {"emptyDir", "persistentVolumeClaim"}
        for container in [*spec.get("initContainers", []), *spec["containers"]]:
            own = {**whole, **container["securityContext"]}
            assert own["runAsNonRoot"] is True
            assert own["runAsUser"] > 0
            assert own["seccompProfile"] == {"type": "RuntimeDefault"}
            assert own["allowPrivilegeEscalation"] is False
            assert own["capabilities"] == {"drop": ["ALL"]}
            assert own["readOnlyRootFilesystem"] is True
            assert "/tmp" in [mount["mountPath"] for mount in container["volumeMounts"]]  # noqa: S108


def test_no_pod_gets_a_token_of_the_cluster(objects, pods):
    for thing in objects:
        if thing["kind"] in ("ServiceAccount", "InferenceService"):
            holder = thing["spec"]["predictor"] if "spec" in thing else thing
            assert holder["automountServiceAccountToken"] is False
    kserve = any(thing["kind"] == "ServingRuntime" for thing in objects)  # its pods are KServe's
    assert kserve or all(pod["spec"]["automountServiceAccountToken"] is False for pod in pods)


def test_every_container_says_what_it_needs_and_may_take(containers):
    for container in containers:
        for kind in ("requests", "limits"):
            assert {"cpu", "memory"} <= container["resources"][kind].keys()


def test_images_are_pinned(containers):
    for container in containers:
        _, _, tag = container["image"].rpartition(":")
        assert tag not in ("", "latest")
        assert "/" not in tag

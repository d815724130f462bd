"""What objects say of each other and of the server is true."""

from __future__ import annotations

import io
import json
import re
import shlex
import tomllib
from contextlib import redirect_stdout
from pathlib import Path

import pytest
import tyro
from torch.distributed.run import get_args_parser as torchrun_parser

import export.cli
import serve.cli
import train.cli
from export.bundle import SCHEMA_VERSION
from serve.score.command import ScoreOptions
from serve.settings import Settings
from serve.telemetry import Telemetry
from tests.k8s.conftest import pods_of
from train.parsing import parse_run
from train.search.command import SearchOptions

ROOT = Path(__file__).parents[2]
ROUTES = json.loads((ROOT / "serve" / "openapi.json").read_text("utf-8"))["paths"]
SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["scripts"]
DEFAULTS = Settings(bundles=(Path("model.bundle"),))
SERVERS = ("server", "kserve-container")
OF_RAY = ("ray-head", "ray-worker")  # KubeRay writes their commands
FLAG = re.compile(r"--([a-z][a-z-]*)(?:=(.*))?")


def of_kind(objects, *kinds):
    return [thing for thing in objects if thing["kind"] in kinds]


def server_in(pod):
    return next((c for c in pod["spec"]["containers"] if c["name"] in SERVERS), None)


@pytest.fixture
def servers(containers):
    return [container for container in containers if container["name"] in SERVERS]


def flags(container):
    """The flags of a container with their values; `--flag=value`, so that none is mistaken."""
    return {m[1]: m[2] for word in container["args"] if (m := FLAG.fullmatch(word))}


def matches(selector, labels):
    wanted = selector.get("matchLabels", selector)
    return bool(wanted) and wanted.items() <= labels.items()


def test_selectors_find_the_pods(objects, pods):
    labels = [pod["metadata"]["labels"] for pod in pods]
    for thing in of_kind(objects, "Deployment", "Service", "PodDisruptionBudget"):
        assert all(matches(thing["spec"]["selector"], found) for found in labels), thing["kind"]
    for thing in of_kind(objects, "NetworkPolicy"):
        assert all(matches(thing["spec"]["podSelector"], found) for found in labels)
    for thing in of_kind(objects, "Deployment"):
        spread = thing["spec"]["template"]["spec"]["topologySpreadConstraints"]
        assert len(spread) == 2
        assert all(matches(rule["labelSelector"], labels[0]) for rule in spread)


@pytest.mark.parametrize("part", ["components/training", "components/export"])
def test_selectors_of_the_servers_leave_jobs_alone(render, part):
    """Or the service would send them requests, and the policy cut them off from their data."""
    job = of_kind(render(part), "Job")[0]["spec"]["template"]["metadata"]["labels"]
    for thing in render("base"):
        selector = thing.get("spec", {}).get("selector") or thing.get("spec", {}).get("podSelector")
        assert selector is None or not matches(selector, job)


@pytest.mark.parametrize("overlay", ["overlays/prod", "overlays/gpu"])
def test_prometheus_finds_the_service(render, overlay):
    things = render(overlay)
    (monitor,), (service,) = of_kind(things, "ServiceMonitor"), of_kind(things, "Service")
    assert matches(monitor["spec"]["selector"], service["metadata"]["labels"])
    assert service["metadata"]["labels"][monitor["spec"]["jobLabel"]] == "labelwright"
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] in [port["name"] for port in service["spec"]["ports"]]
    assert endpoint["path"] in ROUTES


def test_names_lead_to_objects(render, objects, pods):
    names = {(thing["kind"], thing["metadata"]["name"]) for thing in objects}
    kept = {(t["kind"], t["metadata"]["name"]) for t in render("namespace")}
    for thing in of_kind(objects, "HorizontalPodAutoscaler"):
        target = thing["spec"]["scaleTargetRef"]
        assert (target["kind"], target["name"]) in names
    for pod in pods:
        account = pod["spec"].get("serviceAccountName")
        assert account is None or ("ServiceAccount", account) in names
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        for volume in volumes.values():
            claim = volume.get("persistentVolumeClaim", {}).get("claimName")
            assert claim is None or ("PersistentVolumeClaim", claim) in kept
        for container in [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]:
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes.keys()
    for thing in of_kind(objects, "InferenceService"):
        model = thing["spec"]["predictor"]["model"]
        claim = re.fullmatch(r"pvc://([^/]+)/.+", model["storageUri"])[1]
        assert ("PersistentVolumeClaim", claim) in kept
        assert ("ServingRuntime", model["runtime"]) in names


def test_ports_are_those_the_server_listens_on(objects, servers):
    for server in servers:
        (port,) = server["ports"]
        assert port["containerPort"] == int(flags(server)["port"]) == DEFAULTS.port
        assert flags(server)["host"] == "0.0.0.0"  # noqa: S104 - in a pod of its own
        for thing in of_kind(objects, "Service"):
            assert [p["targetPort"] for p in thing["spec"]["ports"]] == [port["name"]]
        for thing in of_kind(objects, "NetworkPolicy"):
            (rule,) = thing["spec"]["ingress"]
            assert [p["port"] for p in rule["ports"]] == [port["name"]]


def test_nothing_but_dns_is_reached_from_a_server(objects):
    for thing in of_kind(objects, "NetworkPolicy"):
        assert set(thing["spec"]["policyTypes"]) == {"Ingress", "Egress"}
        (rule,) = thing["spec"]["egress"]
        assert {port["port"] for port in rule["ports"]} == {53}
        assert rule["to"][0]["podSelector"] == {"matchLabels": {"k8s-app": "kube-dns"}}


def test_probes_ask_routes_that_exist(servers):
    for server in servers:
        names = {port["name"] for port in server["ports"]}
        numbers = {port["containerPort"] for port in server["ports"]}
        paths = {}
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            if probe in server:
                paths[probe] = server[probe]["httpGet"]["path"]
                assert server[probe]["httpGet"]["port"] in names | numbers
        assert {"get"} == {word for path in paths.values() for word in ROUTES[path]}
        assert paths["readinessProbe"] == "/readyz"
        assert paths["livenessProbe"] == "/healthz"  # /readyz would restart a server that drains


def test_a_server_may_finish_before_it_is_killed(objects, pods):
    """Kubernetes counts from the start of preStop, the server from SIGTERM, which is later."""
    kserve = [thing["spec"]["predictor"] for thing in of_kind(objects, "InferenceService")]
    for pod in pods:
        if (server := server_in(pod)) is not None:
            (allowed,) = kserve or [pod["spec"]]
            grace = float(flags(server).get("grace", DEFAULTS.grace))
            waits = server["lifecycle"]["preStop"]["sleep"]["seconds"]
            # Five seconds at least for the kubelet itself.
            assert allowed["terminationGracePeriodSeconds"] >= waits + grace + 5
            # Until endpoints have told everyone, new requests still come.
            assert waits >= 5


def test_the_autoscaler_alone_decides_the_number_of_servers(objects):
    for thing in of_kind(objects, "Deployment"):
        is_scaled = bool(of_kind(objects, "HorizontalPodAutoscaler"))
        assert is_scaled != ("replicas" in thing["spec"])


def test_a_budget_never_forbids_every_eviction(objects):
    for thing in of_kind(objects, "PodDisruptionBudget"):
        assert thing["spec"]["maxUnavailable"] >= 1
        assert all(
            s["spec"]["minReplicas"] > 1 for s in of_kind(objects, "HorizontalPodAutoscaler")
        )


def test_objects_of_a_folder_share_a_namespace(objects):
    spaces = {t["metadata"].get("namespace") for t in objects if t["kind"] != "Namespace"}
    assert len(spaces) == 1
    assert {t["metadata"]["name"] for t in of_kind(objects, "Namespace")} <= spaces


def command_of(container):
    """The command line's entry and the words before its flags."""
    if container.get("command") == ["labelwright-export"]:
        return export.cli.main, []
    if container["name"] in SERVERS:
        return serve.cli.main, []
    return train.cli.main, container["args"][:1]


def test_flags_exist(containers, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    for container in (one for one in containers if one["name"] not in OF_RAY):
        main, words = command_of(container)
        with redirect_stdout(io.StringIO()) as shown, pytest.raises(SystemExit):
            main([*words, "--help"])
        known = set(re.findall(r"(?<![\w-])--([a-z][a-z-]*[a-z])", shown.getvalue()))
        assert flags(container).keys() <= known
        assert all(FLAG.fullmatch(word) for word in container["args"] if word.startswith("-"))


def test_kserve_is_told_the_schema_of_bundles(render):
    runtime = of_kind(render("components/kserve"), "ServingRuntime")[0]["spec"]
    service = of_kind(render("components/kserve"), "InferenceService")[0]["spec"]
    assert [f["version"] for f in runtime["supportedModelFormats"]] == [str(SCHEMA_VERSION)]
    assert service["predictor"]["model"]["modelFormat"]["version"] == str(SCHEMA_VERSION)


def test_models_from_an_image_need_no_volume(render):
    (deployment,) = of_kind(render("components/models-from-image"), "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    assert [volume["name"] for volume in pod["volumes"]] == ["tmp"]
    assert [mount["name"] for mount in pod["containers"][0]["volumeMounts"]] == ["tmp"]


@pytest.mark.parametrize("folder_of", ["overlays/gpu", "components/training-gpu"])
def test_a_gpu_is_asked_for_once(render, folder_of):
    (thing,) = of_kind(render(folder_of), "Deployment", "Job")
    pod = thing["spec"]["template"]["spec"]
    limits = [
        container["resources"]["limits"].get("nvidia.com/gpu")
        for container in [*pod.get("initContainers", []), *pod["containers"]]
    ]
    assert [limit for limit in limits if limit] == ["1"]
    assert pod["tolerations"][0]["key"] == "nvidia.com/gpu"


RAY_JOBS = {"search": SearchOptions, "score": ScoreOptions}


@pytest.mark.parametrize("folder_of", ["components/ray-search", "components/ray-scoring"])
def test_ray_runs_a_command_of_ours_on_the_cluster_it_is_in(render, folder_of):
    (job,) = of_kind(render(folder_of), "RayJob")
    program, command, *words = shlex.split(job["spec"]["entrypoint"])
    assert program in SCRIPTS
    options, rest = tyro.cli(RAY_JOBS[command], args=words, return_unknown_args=True)
    assert (options.engine, options.address) == ("ray", "auto")
    if command == "search":
        parse_run(options.method, rest)
    # Other machines see the same folder, and the next attempt finds what the last one did.
    out = getattr(options, "out", None) or options.output
    (mounts,) = {
        tuple(mount["mountPath"] for mount in container["volumeMounts"])
        for pod in pods_of(job)
        for container in pod["spec"]["containers"]
    }
    assert str(out).startswith("/models/")
    assert "/models" in mounts


@pytest.mark.parametrize("folder_of", ["components/ray-search", "components/ray-scoring"])
def test_the_version_of_ray_is_that_of_the_image(render, folder_of):
    (job,) = of_kind(render(folder_of), "RayJob")
    pinned = re.search(r"^ray==(.+)$", (ROOT / "constraints.txt").read_text("utf-8"), re.M)
    cluster = job["spec"]["rayClusterSpec"]
    assert cluster["rayVersion"] == pinned[1]
    for group in cluster["workerGroupSpecs"]:
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    assert cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"


def test_torchrun_starts_a_process_for_each_gpu(render):
    (job,) = of_kind(render("components/training-operator"), "PyTorchJob")
    pods = list(pods_of(job))
    for pod in pods:
        (container,) = pod["spec"]["containers"]
        words = [*container["command"], *container["args"]]
        # What Kubeflow's operator puts in their place.
        words = [re.sub(r"\$\((RANK|MASTER_PORT)\)", "1", word) for word in words]
        told = torchrun_parser().parse_args(words[1:])
        assert words[0] == "torchrun"
        assert (told.module, told.training_script) == (True, "train")
        assert told.nnodes == str(len(pods))
        assert told.nproc_per_node == container["resources"]["limits"]["nvidia.com/gpu"]
        parse_run(told.training_script_args[0], told.training_script_args[1:])


def test_kserve_scales_by_metrics_that_the_server_has(render):
    (service,) = of_kind(render("components/kserve-autoscaling"), "InferenceService")
    assert service["metadata"]["annotations"]["serving.kserve.io/autoscalerClass"] == "keda"
    assert "scaleMetric" not in service["spec"]["predictor"]
    exposed = {metric.name for metric in Telemetry().registry.collect()}
    for rule in service["spec"]["predictor"]["autoScaling"]["metrics"]:
        query = re.fullmatch(
            r'sum\((\w+)\{namespace="(\w+)"\}\)', rule["external"]["metric"]["query"]
        )
        assert query[1] in exposed
        assert query[2] == service["metadata"]["namespace"]

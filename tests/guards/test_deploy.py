"""deploy/: valid by the schemas of those who read it, in agreement with the server and itself."""

from __future__ import annotations

import ipaddress
import json
import lzma
import re
import shlex
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import kubernetes_validate
import py3langid
import pytest
import yaml
from pathspec import PathSpec
from pydantic import SecretStr
from sqlalchemy.engine import make_url
from starlette.testclient import TestClient

from serving.errors import SettingsError
from serving.runtime.kernels import SWITCH
from serving.server.app import create_app
from serving.server.http.settings import Settings, variable
from serving.server.models.registry import Registry
from tests.unit.serving.echo import all_routes

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
IMAGE = f"macaron:{VERSION}"
OLDEST_KUBERNETES = "1.27"  # docs/how-to/deployment.md promises it
FOREIGN = {"kustomization.yaml", "pod-monitor.yaml", "keda.yaml", "prometheus-adapter.yaml"}
"""Read by others than Kubernetes itself."""
MANIFESTS = sorted(path for path in KUBERNETES.rglob("*.yaml") if path.name not in FOREIGN)


def read(name: str) -> Any:
    return yaml.safe_load((KUBERNETES / name).read_text())


def instructions() -> list[tuple[str, str]]:
    """Of the container file, in order: word and arguments."""
    text = re.sub(r"^\s*#.*\n", "", (DEPLOY / "Containerfile").read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in lines if line.strip()]


def last(word: str) -> str:
    return [arguments for found, arguments in instructions() if found == word][-1]


def pod() -> Any:
    return read("deployment.yaml")["spec"]["template"]


def container() -> Any:
    (only,) = pod()["spec"]["containers"]
    return only


def seconds(text: str) -> int:
    return int(text.removesuffix("s"))


# Kubernetes


@pytest.mark.parametrize("version", [OLDEST_KUBERNETES, kubernetes_validate.latest_version()])
@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_manifests_fit_the_schemas_of_kubernetes(path: Path, version: str) -> None:
    kubernetes_validate.validate(yaml.safe_load(path.read_text()), version, strict=True)


def test_a_misspelt_field_is_found() -> None:
    wrong = read("deployment.yaml")
    wrong["spec"]["template"]["spec"]["terminationGracePeriod"] = 1
    with pytest.raises(kubernetes_validate.ValidationError, match="terminationGracePeriod"):
        kubernetes_validate.validate(wrong, OLDEST_KUBERNETES, strict=True)


def test_everything_is_applied_but_the_examples() -> None:
    resources = set(read("kustomization.yaml")["resources"])
    assert resources == {p.name for p in KUBERNETES.glob("*.yaml")} - {"kustomization.yaml"}


def test_selectors_and_ports_lead_to_the_pods() -> None:
    labels = pod()["metadata"]["labels"]
    selectors = [
        read("deployment.yaml")["spec"]["selector"]["matchLabels"],
        read("service.yaml")["spec"]["selector"],
        read("disruption-budget.yaml")["spec"]["selector"]["matchLabels"],
        read("network-policy.yaml")["spec"]["podSelector"]["matchLabels"],
        read("examples/pod-monitor.yaml")["spec"]["selector"]["matchLabels"],
    ]
    assert all(selector == labels for selector in selectors)
    (port,) = container()["ports"]
    (service,) = read("service.yaml")["spec"]["ports"]
    (scraped,) = read("examples/pod-monitor.yaml")["spec"]["podMetricsEndpoints"]
    probes = [
        container()[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")
    ]
    assert {service["targetPort"], scraped["port"], *(p["port"] for p in probes)} == {port["name"]}
    assert str(port["containerPort"]) == last("EXPOSE")
    routes = {
        getattr(route, "path", "")
        for route in all_routes(create_app(Registry(Settings()), Settings()))
    }
    assert {probe["path"] for probe in probes} == {"/livez", "/readyz"} <= routes


def test_autoscalers_agree() -> None:
    autoscaler, keda = read("autoscaler.yaml")["spec"], read("examples/keda.yaml")["spec"]
    name = read("deployment.yaml")["metadata"]["name"]
    assert autoscaler["scaleTargetRef"]["name"] == keda["scaleTargetRef"]["name"] == name
    assert autoscaler["minReplicas"] == keda["minReplicaCount"]
    assert autoscaler["maxReplicas"] == keda["maxReplicaCount"]
    queue, processor = autoscaler["metrics"]
    (rule,) = read("examples/prometheus-adapter.yaml")["rules"]["custom"]
    metric = queue["pods"]["metric"]["name"]
    assert rule["name"]["as"] == metric
    assert rule["seriesQuery"].startswith(metric + "{")
    assert f"sum({metric}{{" in keda["triggers"][0]["metadata"]["query"]
    assert keda["triggers"][0]["metadata"]["threshold"] == queue["pods"]["target"]["averageValue"]
    share = processor["resource"]["target"]["averageUtilization"]
    assert keda["triggers"][1]["metadata"]["value"] == str(share)


def test_the_server_has_the_metric() -> None:
    registry = Registry(Settings())
    body = TestClient(create_app(registry, Settings())).get("/metrics").text
    metric = read("autoscaler.yaml")["spec"]["metrics"][0]["pods"]["metric"]["name"]
    assert f"# TYPE {metric} gauge" in body


def test_the_example_of_keys_must_be_changed() -> None:
    for file, match in (("secrets", "MACARON_API_KEYS"), ("store", "MACARON_ADMIN_KEY")):
        secret = read(f"examples/{file}.yaml")
        references = [e["secretRef"] for e in container()["envFrom"] if "secretRef" in e]
        name = secret["metadata"]["name"]
        assert {"name": name, "optional": True} in references
        given = Settings.from_environment(secret["stringData"])
        settings = given.model_copy(update={"store": SecretStr("")})
        with pytest.raises(SettingsError, match=match):
            create_app(Registry(settings), settings)


def test_the_store_is_reached() -> None:
    secret = read("examples/store.yaml")
    url = make_url(secret["stringData"]["MACARON_STORE"])
    database, service = read("examples/postgresql.yaml"), read("examples/postgresql-service.yaml")
    assert url.host == service["metadata"]["name"] == database["spec"]["serviceName"]
    (server,) = database["spec"]["template"]["spec"]["containers"]
    given = {each["name"]: each.get("value") for each in server["env"]}
    assert (url.username, url.database) == (given["POSTGRES_USER"], given["POSTGRES_DB"])
    assert url.password == secret["stringData"]["POSTGRES_PASSWORD"]
    (password,) = [each["valueFrom"] for each in server["env"] if "valueFrom" in each]
    reference = {"name": secret["metadata"]["name"], "key": "POSTGRES_PASSWORD"}
    assert password == {"secretKeyRef": reference}
    labels = database["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == database["spec"]["selector"]["matchLabels"] == labels
    policy = read("examples/store-network-policy.yaml")["spec"]
    assert policy["podSelector"]["matchLabels"] == pod()["metadata"]["labels"]
    assert policy["egress"][0]["to"] == [{"podSelector": {"matchLabels": labels}}]
    ports = {service["spec"]["ports"][0]["port"], server["ports"][0]["containerPort"]}
    assert ports == {policy["egress"][0]["ports"][0]["port"]}


def test_pods_may_run_under_the_restricted_standard() -> None:
    assert pod()["spec"]["securityContext"]["runAsNonRoot"] is True
    assert pod()["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container()["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    user = pod()["spec"]["securityContext"]
    assert f"{user['runAsUser']}:{user['runAsGroup']}" == last("USER")


# Settings and times


@pytest.mark.parametrize("path", sorted(p for p in DEPLOY.rglob("*") if p.is_file()), ids=str)
def test_every_setting_named_exists(path: Path) -> None:
    known = {variable(name) for name in Settings.model_fields} | {SWITCH}
    assert set(re.findall(r"MACARON_[A-Z_]+[A-Z]", path.read_text())) <= known


def test_settings_are_valid() -> None:
    Settings.from_environment(read("settings.yaml")["data"])
    Settings.from_environment(compose()["environment"])


def test_threads_are_the_processors() -> None:
    (threads,) = [v for v in container()["env"] if v["name"] == variable("threads")]
    assert threads["valueFrom"]["resourceFieldRef"]["resource"] == "limits.cpu"
    limits = container()["resources"]["limits"]
    assert limits["cpu"] == container()["resources"]["requests"]["cpu"]
    of_compose = compose()["deploy"]["resources"]["limits"]["cpus"]
    assert compose()["environment"][variable("threads")] == of_compose


def test_every_request_may_end_before_the_server_is_killed() -> None:
    settings = Settings.from_environment(read("settings.yaml")["data"])
    command = json.loads(last("CMD"))
    own = int(command[command.index("--timeout-graceful-shutdown") + 1])
    assert settings.grace_s >= settings.max_timeout_s
    assert own >= settings.drain_s + settings.grace_s + 10
    word, wait = container()["lifecycle"]["preStop"]["exec"]["command"]
    assert word == "sleep"
    assert pod()["spec"]["terminationGracePeriodSeconds"] >= int(wait) + own + 10
    assert seconds(compose()["stop_grace_period"]) >= own + 10
    assert Settings.from_environment(compose()["environment"]).grace_s == settings.grace_s


def test_the_proxy_lets_the_server_answer_first() -> None:
    text = (DEPLOY / "nginx.conf").read_text()
    (wait,) = re.findall(r"proxy_read_timeout (\d+)s;", text)
    (megabytes,) = re.findall(r"client_max_body_size (\d+)m;", text)
    assert int(wait) > Settings().max_timeout_s
    taken = ("max_body_bytes", "max_document_bytes", "max_file_bytes", "max_memory_bytes")
    assert int(megabytes) * 2**20 > max(getattr(Settings(), name) for name in taken)
    assert "proxy_buffering off;" in text


# compose


def compose() -> Any:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["macaron"]


@pytest.mark.parametrize("name", ["compose.yaml", "compose.replicas.yaml"])
def test_compose_file_fits_its_schema(name: str) -> None:
    done = check_compose(DEPLOY / name)
    assert done.returncode == 0, done.stdout


def replicas() -> dict[str, Any]:
    services: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.replicas.yaml").read_text())[
        "services"
    ]
    return services


def named_volumes() -> set[str]:
    return set(yaml.safe_load((DEPLOY / "compose.replicas.yaml").read_text())["volumes"])


def test_the_detector_of_languages_can_be_unpacked() -> None:
    # Its package unpacks it into a file of /tmp each time that it is loaded.
    (packed,) = Path(py3langid.__file__).parent.glob("data/*.xz")
    with lzma.open(packed) as file:
        size = sum(len(part) for part in iter(lambda: file.read(2**20), b""))
    for service in (compose(), replicas()["macaron-1"]):
        (megabytes,) = re.findall(r"^/tmp:size=(\d+)m,", service["tmpfs"][0])
        assert int(megabytes) * 2**20 > 2 * size


def test_replicas_keep_their_addresses() -> None:
    # nginx looks names up once, and docker and podman may give a container another address.
    networks = yaml.safe_load((DEPLOY / "compose.replicas.yaml").read_text())["networks"]
    ((subnet,),) = [each["ipam"]["config"] for each in networks.values()]
    addresses = {
        replicas()[name]["networks"]["default"]["ipv4_address"]
        for name in ("macaron-1", "macaron-2")
    }
    assert len(addresses) == 2
    network = ipaddress.ip_network(subnet["subnet"])
    assert all(ipaddress.ip_address(address) in network for address in addresses)


def test_images_of_others_name_their_registry() -> None:
    # Podman knows few names without one.
    for name in ("proxy", "postgresql"):
        assert replicas()[name]["image"].startswith("docker.io/library/")


def test_replicas_are_the_same_server_with_a_store() -> None:
    first, second = replicas()["macaron-1"], replicas()["macaron-2"]
    assert {**first, "networks": None} == {**second, "networks": None}
    others = ("depends_on", "environment", "networks", "ports", "volumes")
    own, alone = (
        {name: value for name, value in server.items() if name not in others}
        for server in (first, compose())
    )
    assert {**own, "stop_grace_period": ""} == {**alone, "stop_grace_period": ""}
    values = {"STORE_PASSWORD": "abc", "ADMIN_KEY": "x" * 16}
    given = {
        name: re.sub(r"\$\{(\w+):\?[^}]*\}", lambda match: values[match[1]], value)
        for name, value in first["environment"].items()
    }
    settings = Settings.from_environment(given)
    assert compose()["environment"].items() <= given.items()
    # Each in a volume that both servers have, at a folder that the image gives to their user.
    assert first["volumes"] == [f"files:{settings.files}", f"documents:{settings.documents}"]
    assert {mount.partition(":")[0] for mount in first["volumes"]} <= named_volumes()
    assert (
        f"install -d -o 10001 -g 10001 -m 700 {settings.files} {settings.documents}\n"
        in (DEPLOY / "Containerfile").read_text()
    )
    assert len(settings.admin_key.get_secret_value()) == 16
    url, database = make_url(settings.store.get_secret_value()), replicas()["postgresql"]
    assert url.host == "postgresql"
    assert url.username == database["environment"]["POSTGRES_USER"]
    assert url.database == database["environment"]["POSTGRES_DB"]
    assert "STORE_PASSWORD" in database["environment"]["POSTGRES_PASSWORD"]
    command = json.loads(last("CMD"))
    own_s = int(command[command.index("--timeout-graceful-shutdown") + 1])
    assert seconds(first["stop_grace_period"]) >= own_s + settings.drain_s + 10
    assert settings.grace_s >= settings.max_timeout_s


def test_replicas_are_reached_by_their_proxy_alone() -> None:
    text, alone = (DEPLOY / "nginx.replicas.conf").read_text(), (DEPLOY / "nginx.conf").read_text()
    servers = [name for name in replicas() if name.startswith("macaron-")]
    assert re.findall(r"server ([\w-]+):(\d+) ", text) == [(n, last("EXPOSE")) for n in servers]
    assert [name for name, service in replicas().items() if "ports" in service] == ["proxy"]
    (port,) = replicas()["proxy"]["ports"]
    assert f"listen {port.rpartition(':')[2]};" in text
    for line in (
        "client_max_body_size",
        "proxy_read_timeout",
        "proxy_buffering",
        "X-Forwarded-For",
        "Host",
    ):
        (own,) = re.findall(rf"^ *(.*{line}.*;)$", text, re.MULTILINE)
        assert own in alone
    (mount,) = replicas()["proxy"]["volumes"]
    assert (DEPLOY / mount.partition(":")[0]).samefile(DEPLOY / "nginx.replicas.conf")


def test_a_misspelt_field_of_compose_is_found(tmp_path: Path) -> None:
    text = (DEPLOY / "compose.yaml").read_text()
    (tmp_path / "compose.yaml").write_text(text.replace("stop_grace_period", "stop_grace"))
    done = check_compose(tmp_path / "compose.yaml")
    assert done.returncode == 1
    assert "stop_grace" in done.stdout


def check_compose(path: Path) -> subprocess.CompletedProcess[str]:
    check = Path(sys.executable).with_name("check-jsonschema")
    return subprocess.run(
        [check, "--builtin-schema", "vendor.compose-spec", path], capture_output=True, text=True
    )


def test_compose_builds_and_runs_the_image() -> None:
    build = compose()["build"]
    assert (DEPLOY / build["context"]).resolve() == ROOT
    assert (ROOT / build["dockerfile"]).is_file()
    (port,) = compose()["ports"]
    assert port.endswith(":" + last("EXPOSE"))
    assert compose()["read_only"] is True
    assert [mount.partition(":")[0] for mount in compose()["tmpfs"]] == ["/tmp", image_home()]


def image_home() -> str:
    """The folder of BentoML in the image; the files of metrics are in it."""
    return dict(part.split("=", 1) for part in shlex.split(last("ENV")))["BENTOML_HOME"]


# The image


def test_image_and_version_are_the_same_everywhere() -> None:
    assert compose()["image"] == container()["image"] == IMAGE
    (image,) = read("kustomization.yaml")["images"]
    assert f"{image['name']}:{image['newTag']}" == IMAGE
    assert f'version="{VERSION}"' in last("LABEL")
    python = yaml.safe_load((ROOT / "bentofile.yaml").read_text())["docker"]["python_version"]
    base = next(value for name, value in instructions() if name == "ARG")
    assert base.startswith(f"BASE=docker.io/library/python:{python}-slim")
    assert f"Python {python}" in (ROOT / "requirements/serve.txt").read_text()


def test_what_is_copied_is_there_and_not_ignored() -> None:
    ignored = PathSpec.from_lines("gitignore", (ROOT / ".dockerignore").read_text().splitlines())
    sources = [
        source
        for word, arguments in instructions()
        if word == "COPY" and not arguments.startswith("--from")
        for source in arguments.split()[:-1]
    ]
    assert {"serving", "models", "requirements/serve.txt", "LICENSE"} <= set(sources)
    for source in sources:
        path = ROOT / source
        files = [path] if path.is_file() else list(path.rglob("*.*"))
        kept = [f for f in files if not ignored.match_file(f.relative_to(ROOT))]
        assert kept, source
        assert not any("__pycache__" in file.parts for file in kept)


def test_whatever_is_written_goes_to_tmp() -> None:
    values = dict(part.split("=", 1) for part in shlex.split(last("ENV")))
    for name in ("HOME", "XDG_CACHE_HOME", "BENTOML_HOME"):
        assert Path(values[name]).parts[:2] == ("/", "tmp")
    assert values["BENTOML_DO_NOT_TRACK"] == "True"
    (mount,) = container()["volumeMounts"]
    assert mount["mountPath"] == "/tmp"


# BentoML's command line sets up logging for the whole process when it is imported.
PARSE = """
import json, sys
from bentoml_cli.cli import cli
verb, *options = sys.argv[1:]
print(json.dumps(cli.get_command(None, verb).make_context(verb, options).params))
"""


def test_bentoml_knows_the_options() -> None:
    program, *arguments = json.loads(last("CMD"))
    assert program == "bentoml"
    done = subprocess.run(
        [sys.executable, "-c", PARSE, *arguments], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["host"], str(found["port"])) == ("0.0.0.0", last("EXPOSE"))
    assert found["timeout_graceful_shutdown"] == 130


@pytest.fixture
def answering() -> Iterator[dict[str, int]]:
    """A server whose /readyz answers `status`, at `port`."""
    state = {"status": 200}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(state["status"] if self.path == "/readyz" else 404)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    state["port"] = server.server_port
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield state
    server.shutdown()
    thread.join()
    server.server_close()


def test_health_check_asks_for_ready(answering: dict[str, int]) -> None:
    program, flag, code = json.loads(last("HEALTHCHECK").partition(" CMD ")[2])
    assert (program, flag) == ("python", "-c")

    def healthy(port: int) -> bool:
        moved = code.replace(last("EXPOSE"), str(port))
        return subprocess.run([sys.executable, "-c", moved], capture_output=True).returncode == 0

    assert healthy(answering["port"])
    answering["status"] = 503
    assert not healthy(answering["port"])
    assert not healthy(1)

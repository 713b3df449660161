"""The Helm chart, rendered by Helm's own engine and checked by Kubernetes' schemas; alerts and dashboard by PromQL."""

from __future__ import annotations

import copy
import functools
import json
import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import promql_parser
import pytest
from cryptography import x509
from ruamel.yaml import YAML

from proxy.config import Settings, load_settings
from proxy.fleet.key_encryption_key import read_kek
from proxy.identity.settings import load_identity
from proxy.kubernetes.injection import Injection, load_injection
from proxy.kubernetes.pod import hold, objections
from tests.support.harness import REPOSITORY
from tests.support.helm_chart import CHART, NAMESPACE, ChartError, lint, render

KUBERNETES = ("1.29", "1.37")
FULL: dict[str, Any] = {
    "database": {"existingSecret": "interlock-database", "deny": {"hosts": ["db.data.svc"], "cidrs": ["10.9.0.0/28"]}},
    "fleet": {"existingSecret": "interlock-fleet"},
    "telemetry": {"otlpEndpoint": "http://collector.monitoring.svc:4318", "headersSecret": "otlp"},
    "sidecar": {"metrics": True},
    "policy": {"files": {"mine.yaml": "version: 1\ndefault: deny\n"}, "namespaces": ["agents"]},
    "settings": {"log_level": "warning", "agent_auth": "required", "mcp_endpoints": ["https://a.example/mcp"]},
    "gateway": {
        "enabled": True,
        "clusterIP": "10.96.7.7",
        "storage": {"className": "fast"},
        "autoscaling": {"enabled": True},
        "networkPolicy": {"lockedNamespaces": ["agents"]},
        "identity": {"kubernetes": {"enabled": True}},
    },
    "injector": {"certificate": {"certManagerIssuer": "ClusterIssuer/company"}},
    "monitoring": {"serviceMonitor": True, "rules": True, "dashboard": True, "labels": {"release": "prometheus"}},
    "imagePullSecrets": [{"name": "registry"}],
}
type Manifest = dict[str, Any]


@functools.cache
def rendered(name: str) -> dict[tuple[str, str], Manifest]:
    every = render(**(FULL if name == "full" else {}))
    found = {
        (each["kind"], f"{each['metadata'].get('namespace', '')}/{each['metadata']['name']}"): each for each in every
    }
    assert len(found) == len(every)
    return found


def of_kind(kind: str, name: str = "full") -> list[Manifest]:
    return [each for (its, _), each in rendered(name).items() if its == kind]


@pytest.mark.parametrize("values", [{}, FULL], ids=["defaults", "full"])
def test_helm_finds_nothing_to_complain_of(values: Manifest) -> None:
    assert lint(**values) == []


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("name", ["defaults", "full"])
def test_every_manifest_is_one_of_kubernetes(name: str, version: str) -> None:
    checked = 0
    for manifest in rendered(name).values():
        # Those of operators have no schema here; what is in them is looked at below.
        if not manifest["apiVersion"].startswith(("monitoring.coreos.com/", "cert-manager.io/")):
            kubernetes_validate.validate(manifest, version, strict=True)
            checked += 1
    assert checked >= 8


@pytest.mark.parametrize(
    "values",
    [
        {"gateway": {"replicas": 0}},
        {"gateway": {"workers": "many"}},
        {"policy": {"profile": "lax"}},
        {"policy": {"files": {"sidecar.yaml": ""}}},
        {"policy": {"files": {"../x.yaml": ""}}},
        {"settings": {"database_url": "postgresql://u:secret@h/d"}},
        {"settings": {"Listen": "x"}},
        {"gateway": {"networkPolicy": {"agents": []}}},
        {"sidecars": {}},
        # Two gateways with a CA each: agents would trust one of them.
        {"gateway": {"enabled": True}},
        {"gateway": {"enabled": True}, "database": {"existingSecret": "db"}},
        {"gateway": {"enabled": True, "replicas": 1, "autoscaling": {"enabled": True}}},
        {
            "gateway": {
                "enabled": True,
                "replicas": 1,
                "identity": {"existingSecret": "i", "kubernetes": {"enabled": True}},
            }
        },
        {"settings": {"sinks": []}},
        {"telemetry": {"otlpEndpoint": "collector:4318"}},
    ],
)
def test_a_value_that_means_nothing_is_refused(values: Manifest) -> None:
    with pytest.raises(ChartError):
        render(**values)


def pods(name: str) -> list[tuple[str, Manifest]]:
    return [
        (manifest["metadata"]["name"], manifest["spec"]["template"]["spec"])
        for kind in ("Deployment", "StatefulSet")
        for manifest in of_kind(kind, name)
    ]


@pytest.mark.parametrize("name", ["defaults", "full"])
def test_what_the_chart_runs_has_no_rights_and_bounds(name: str) -> None:
    for _, spec in pods(name):
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in spec["containers"]:
            context = container["securityContext"]
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert (context["runAsNonRoot"], context["runAsUser"]) == (True, 10001)
            assert context["readOnlyRootFilesystem"]
            assert not context["allowPrivilegeEscalation"]
            assert container["resources"].keys() == {"requests", "limits"}
            assert {"readinessProbe", "livenessProbe"} <= container.keys()


def injection_of(name: str, folder: Path) -> Injection:
    (config,) = [each for each in of_kind("ConfigMap", name) if each["metadata"]["name"] == "interlock-injector"]
    file = folder / "injection.yaml"
    file.write_text(config["data"]["injection.yaml"])
    return load_injection(file)


@pytest.mark.parametrize("name", ["defaults", "full"])
def test_the_injector_makes_of_a_bare_pod_one_that_kubernetes_takes(name: str, tmp_path: Path) -> None:
    injection = injection_of(name, tmp_path)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "agent"},
        "spec": {"containers": [{"name": "agent", "image": "python:3"}]},
    }
    held = hold(pod, injection)
    for version in KUBERNETES:
        kubernetes_validate.validate(held, version, strict=True)
    assert objections(held, injection) == []
    first, *_ = held["spec"]["initContainers"]
    assert (first["name"], first["securityContext"]["capabilities"]["add"]) == ("interlock-rules", ["NET_ADMIN"])


def test_the_pod_of_deploy_is_what_the_injector_makes(tmp_path: Path) -> None:
    # One sidecar, two ways to have it: what differs is the names, and what a volume or container is called.
    written = YAML(typ="safe", pure=True).load(REPOSITORY / "deploy" / "kubernetes.yaml")["spec"]
    injected = {each["name"]: each for each in injection_of("full", tmp_path).init_containers}
    for ours, theirs in (("rules", "interlock-rules"), ("interlock", "interlock"), ("gateway", "interlock-gateway")):
        (container,) = [each for each in written["initContainers"] if each["name"] == ours]
        for field in ("args", "restartPolicy", "startupProbe", "readinessProbe", "livenessProbe"):
            assert container.get(field) == injected[theirs].get(field), (ours, field)
        rights = {**injected[theirs]["securityContext"]}
        rights.pop("runAsNonRoot" if ours == "rules" else "", None)
        assert container["securityContext"] == rights


@pytest.mark.parametrize("name", ["defaults", "full"])
def test_a_pod_that_the_injector_has_not_seen_does_not_start(name: str) -> None:
    for kind, path in (("Mutating", "/mutate"), ("Validating", "/validate")):
        (manifest,) = of_kind(f"{kind}WebhookConfiguration", name)
        (hook,) = manifest["webhooks"]
        assert (hook["failurePolicy"], hook["sideEffects"]) == ("Fail", "None")
        assert hook["namespaceSelector"] == {"matchLabels": {"mcp-interlock/inject": "enabled"}}
        assert hook["clientConfig"]["service"]["path"] == path
        changed = {"UPDATE pods"} if kind == "Validating" else set()
        assert {"CREATE pods", "UPDATE pods/ephemeralcontainers"} | changed == {
            f"{rule['operations'][0]} {rule['resources'][0]}" for rule in hook["rules"]
        }


def test_helm_makes_a_certificate_for_the_webhooks_name() -> None:
    import base64

    (secret,) = of_kind("Secret", "defaults")
    own = x509.load_pem_x509_certificate(base64.b64decode(secret["data"]["tls.crt"]))
    ca = x509.load_pem_x509_certificate(base64.b64decode(secret["data"]["ca.crt"]))
    own.verify_directly_issued_by(ca)
    names = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert f"interlock-injector.{NAMESPACE}.svc" in names.get_values_for_type(x509.DNSName)
    (hook,) = of_kind("MutatingWebhookConfiguration", "defaults")[0]["webhooks"]
    assert hook["clientConfig"]["caBundle"] == secret["data"]["ca.crt"]


def test_with_cert_manager_no_key_is_in_the_release() -> None:
    assert of_kind("Secret") == []
    (certificate,) = of_kind("Certificate")
    assert certificate["spec"]["issuerRef"] == {"kind": "ClusterIssuer", "name": "company"}
    (hook,) = of_kind("MutatingWebhookConfiguration")
    assert hook["metadata"]["annotations"] == {"cert-manager.io/inject-ca-from": f"{NAMESPACE}/interlock-injector"}


def test_the_gateway_serves_agents_alone_and_locked_namespaces_reach_nothing_else() -> None:
    own, locked = of_kind("NetworkPolicy")
    assert [rule["ports"][0]["port"] for rule in own["spec"]["ingress"]] == ["proxy", "health"]
    assert own["spec"]["ingress"][0]["from"] == [
        {"namespaceSelector": {"matchLabels": {"mcp-interlock/agents": "true"}}}
    ]
    assert (locked["metadata"]["namespace"], locked["spec"]["podSelector"]) == ("agents", {})
    (way,) = locked["spec"]["egress"]
    assert way["ports"] == [{"port": 8080, "protocol": "TCP"}]
    assert way["to"][0]["podSelector"] == own["spec"]["podSelector"]


def environment(name: str, container: Manifest) -> dict[str, str]:
    secret = {"INTERLOCK_KEK": "00112233445566778899aabbccddeeff" * 2, "OTEL_EXPORTER_OTLP_HEADERS": "a=b"}
    assert all(isinstance(each.get("value"), str) != (each["name"] in secret) for each in container["env"]), name
    assert len({each["name"] for each in container["env"]}) == len(container["env"]), name
    return {each["name"]: each.get("value") or secret.get(each["name"], "") for each in container["env"]}


def test_the_environment_is_one_that_the_proxy_takes(tmp_path: Path) -> None:
    (gateway,) = [spec["containers"][0] for name, spec in pods("full") if name == "interlock-gateway"]
    sidecar = injection_of("full", tmp_path).init_containers[1]
    url = tmp_path / "url"
    url.write_text("postgresql://u:p@db.data.svc/interlock?sslmode=verify-full")
    for name, container in (("gateway", gateway), ("sidecar", sidecar)):
        env = environment(name, container) | {"INTERLOCK_DATABASE_URL_FILE": str(url)}
        settings: Settings = load_settings({}, environ=env).settings
        assert settings.agent_auth == "required"
        assert settings.mcp_endpoints == ("https://a.example/mcp",)
        assert settings.log_level == "warning"
        assert settings.key_encryption_key is not None
        assert len(read_kek(settings.key_encryption_key, env).secret) == 32
        assert [sink.kind for sink in settings.sinks] == ["otlp"]
        assert env["SIDECAR_FLEET"] == "1"


def test_a_service_accounts_token_names_an_agent_of_the_gateway(tmp_path: Path) -> None:
    (config,) = [each for each in of_kind("ConfigMap") if each["metadata"]["name"] == "interlock-gateway-identity"]
    text = config["data"]["identity.yaml"]
    (gateway,) = [spec for name, spec in pods("full") if name == "interlock-gateway"]
    mounts = {each["name"]: each["mountPath"] for each in gateway["containers"][0]["volumeMounts"]}
    env = environment("gateway", gateway["containers"][0])
    assert env["INTERLOCK_IDENTITY"] == f"{mounts['identity']}/identity.yaml"
    for name in ("ca.crt", "token"):
        (tmp_path / name).write_text("x")
        assert f"{mounts['account']}/{name}" in text
    file = tmp_path / "identity.yaml"
    file.write_text(text.replace(mounts["account"], str(tmp_path)))
    settings = load_identity(file, "agent")
    assert settings is not None
    assert [(one.name, one.type) for one in settings.providers] == [("cluster", "kubernetes")]
    (binding,) = of_kind("ClusterRoleBinding")
    assert binding["roleRef"]["name"] == "system:auth-delegator"
    assert binding["subjects"][0]["name"] == gateway["serviceAccountName"]


def test_metrics_of_sidecars_have_a_port_and_a_monitor(tmp_path: Path) -> None:
    (monitor,) = of_kind("PodMonitor")
    sidecar = injection_of("full", tmp_path).init_containers[1]
    assert monitor["spec"]["podMetricsEndpoints"][0]["port"] == sidecar["ports"][0]["name"]
    assert monitor["spec"]["namespaceSelector"] == {"matchNames": ["agents"]}
    assert "ports" not in injection_of("defaults", tmp_path).init_containers[1]


def test_agents_of_a_gateway_say_who_they_are() -> None:
    (gateway,) = [
        each["spec"]["template"]["spec"]["containers"][0]
        for each in render(gateway={"enabled": True, "replicas": 1})
        if each["kind"] == "StatefulSet"
    ]
    assert environment("gateway", gateway)["INTERLOCK_AGENT_AUTH"] == "required"


def test_the_policy_is_in_every_namespace_and_a_good_one(tmp_path: Path) -> None:
    from proxy.policy.load import load_policy

    maps = [each for each in of_kind("ConfigMap") if each["metadata"]["name"] == "interlock-policy"]
    assert [each["metadata"]["namespace"] for each in maps] == [NAMESPACE, "agents"]
    assert maps[0]["data"] == maps[1]["data"]
    for name, text in maps[0]["data"].items():
        (tmp_path / name).write_text(text)
    policy = load_policy(tmp_path)
    assert {rule.id for rule in policy.egress.section.rules} == {"sidecar-store-name", "sidecar-store"}


def test_replicas_come_back_to_their_own_volume_and_scale_by_our_metric() -> None:
    (stateful,) = of_kind("StatefulSet")
    assert "replicas" not in stateful["spec"]
    assert stateful["spec"]["volumeClaimTemplates"][0]["spec"]["storageClassName"] == "fast"
    (scaler,) = of_kind("HorizontalPodAutoscaler")
    assert scaler["spec"]["scaleTargetRef"]["name"] == stateful["metadata"]["name"]
    assert scaler["spec"]["metrics"][0]["pods"]["metric"]["name"] in known_metrics()


# What Prometheus is asked.


@functools.cache
def known_metrics() -> frozenset[str]:
    table = (REPOSITORY / "docs" / "operations.md").read_text()
    named = re.findall(
        r"`(interlock_\w+)(?:\{[\w,]*\})?`(?:, `(interlock_\w+)`)?.* \| (counter|gauge|histogram) \|", table
    )
    every = {metric for first, second, _ in named for metric in (first, second) if metric}
    every |= {
        f"{first}_{part}" for first, _, kind in named if kind == "histogram" for part in ("bucket", "sum", "count")
    }
    assert len(every) > 20
    return frozenset(every)


def selectors(expression: str) -> set[str]:
    found: set[str] = set()

    def visit(node: Any) -> None:
        if isinstance(node, promql_parser.VectorSelector):
            found.add(node.name)
        for part in ("vector_selector", "expr", "lhs", "rhs", "param"):
            if (inner := getattr(node, part, None)) is not None:
                visit(inner)
        for inner in getattr(node, "args", None) or ():
            visit(inner)

    visit(promql_parser.parse(expression.replace("$instance", ".*")))
    return found


def alerts() -> list[Manifest]:
    content = YAML(typ="safe", pure=True).load(CHART / "files" / "alerts.yaml")
    return [rule for group in content["groups"] for rule in group["rules"]]


def panels() -> list[Manifest]:
    return [
        each for each in json.loads((CHART / "files" / "dashboard.json").read_text())["panels"] if each["type"] != "row"
    ]


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: rule["alert"])
def test_an_alert_asks_for_metrics_that_exist_and_says_what_to_do(rule: Manifest) -> None:
    asked = selectors(rule["expr"])
    assert asked
    assert asked <= known_metrics()
    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert rule["annotations"].keys() == {"summary", "description"}


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: panel["title"])
def test_a_panel_asks_for_metrics_that_exist(panel: Manifest) -> None:
    assert panel["description"]
    for target in panel["targets"]:
        asked = selectors(target["expr"])
        assert asked
        assert asked <= known_metrics()


def test_the_store_people_and_sinks_are_watched_as_well() -> None:
    shown = {name for panel in panels() for target in panel["targets"] for name in selectors(target["expr"])}
    told = {name for rule in alerts() for name in selectors(rule["expr"])}
    both = {"interlock_proposals_waiting", "interlock_store_seconds_bucket", "interlock_store_errors_total"}
    both |= {f"interlock_sink_{part}" for part in ("lag_seconds", "lost_events", "problem")}
    assert both <= shown & told
    assert "interlock_server_seconds_bucket" in shown


def test_no_panel_lies_on_another() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells


def test_rules_and_dashboard_arrive_whole() -> None:
    (rules,) = of_kind("PrometheusRule")
    assert [each["alert"] for each in rules["spec"]["groups"][0]["rules"]] == [each["alert"] for each in alerts()]
    (shown,) = [each for each in of_kind("ConfigMap") if each["metadata"]["labels"].get("grafana_dashboard")]
    assert json.loads(shown["data"]["interlock.json"]) == json.loads((CHART / "files" / "dashboard.json").read_text())
    assert copy.copy(shown["metadata"]["labels"])["release"] == "prometheus"

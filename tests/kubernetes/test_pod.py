from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from proxy.kubernetes.injection import Injection
from proxy.kubernetes.pod import ACCOUNT_FOLDER, hold, objections, objections_to_change, opted_out

if TYPE_CHECKING:
    from collections.abc import Callable

type Pod = dict[str, Any]


def test_the_sidecar_starts_before_every_container_of_the_pod(pod: Pod, injection: Injection) -> None:
    spec = hold(pod, injection)["spec"]
    assert [each["name"] for each in spec["initContainers"]] == ["interlock-rules", "interlock", "prepare"]
    assert [each["name"] for each in spec["volumes"]] == ["interlock-state", "interlock-share", "interlock-database"]
    assert spec["securityContext"] == {"fsGroup": 10001}


def test_the_pods_own_containers_have_no_rights_and_trust_the_proxy(pod: Pod, injection: Injection) -> None:
    spec = hold(pod, injection)["spec"]
    for container in (spec["initContainers"][2], spec["containers"][0]):
        assert container["securityContext"] == {
            "runAsUser": 10002,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["env"] == [{"name": "SSL_CERT_FILE", "value": "/share/bundle.pem"}]
        assert container["volumeMounts"] == [{"name": "interlock-share", "mountPath": "/share", "readOnly": True}]


def test_what_a_container_says_of_its_user_and_environment_stays(pod: Pod, injection: Injection) -> None:
    agent = pod["spec"]["containers"][0]
    agent |= {"env": [{"name": "SSL_CERT_FILE", "value": "/mine"}], "securityContext": {"runAsUser": 0}}
    pod["spec"]["securityContext"] = {"runAsUser": 555, "fsGroup": 9}
    held = hold(pod, injection)["spec"]
    assert held["containers"][0]["env"] == [{"name": "SSL_CERT_FILE", "value": "/mine"}]
    assert held["containers"][0]["securityContext"]["runAsUser"] == 0
    assert "runAsUser" not in held["initContainers"][2]["securityContext"]
    assert held["securityContext"] == {"runAsUser": 555, "fsGroup": 9}


def test_a_held_pod_is_as_it_must_be_and_holding_it_again_changes_nothing(pod: Pod, injection: Injection) -> None:
    before = copy.deepcopy(pod)
    held = hold(pod, injection)
    assert pod == before
    assert objections(held, injection) == []
    assert hold(held, injection) == held


def test_a_pod_cannot_bring_a_sidecar_of_its_own(pod: Pod, injection: Injection) -> None:
    pod["spec"]["initContainers"].append({"name": "interlock", "image": "evil:1"})
    pod["spec"]["volumes"] = [{"name": "interlock-state", "secret": {"secretName": "evil"}}]
    spec = hold(pod, injection)["spec"]
    assert [each["image"] for each in spec["initContainers"]] == ["interlock:1", "interlock:1", "busybox:1"]
    assert spec["volumes"][0] == {"name": "interlock-state", "emptyDir": {}}


def test_what_the_api_server_fills_in_is_no_difference(pod: Pod, injection: Injection) -> None:
    held = hold(pod, injection)
    for container in held["spec"]["initContainers"]:
        container |= {"terminationMessagePath": "/dev/termination-log", "imagePullPolicy": "IfNotPresent"}
        container.setdefault("volumeMounts", []).append({"name": "kube-api-x", "mountPath": ACCOUNT_FOLDER})
    assert objections(held, injection) == []


def first_init(pod: Pod) -> Pod:
    return pod["spec"]["initContainers"][1]


def agent(pod: Pod) -> Pod:
    return pod["spec"]["containers"][0]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda pod: pod["spec"].update(hostNetwork=True), "hostNetwork"),
        (lambda pod: pod["spec"].update(hostPID=True), "hostPID"),
        (lambda pod: pod["spec"].update(hostIPC=True), "hostIPC"),
        (lambda pod: pod["spec"].update(hostAliases=[{"ip": "6.6.6.6", "hostnames": ["api.example"]}]), "hostAliases"),
        (lambda pod: pod["spec"].update(dnsConfig={"nameservers": ["6.6.6.6"]}), "nameservers"),
        (lambda pod: pod["spec"].update(os={"name": "windows"}), "spec.os"),
        (lambda pod: pod["spec"]["volumes"].append({"name": "out", "nfs": {"server": "evil.example"}}), "'out' (nfs)"),
        (lambda pod: pod["spec"]["volumes"].append({"name": "out", "gitRepo": {}}), "'out' (gitRepo)"),
        (lambda pod: agent(pod).update(livenessProbe={"httpGet": {"host": "evil.example"}}), "'evil.example', around"),
        (lambda pod: agent(pod).update(startupProbe={"tcpSocket": {"host": "127.0.0.1"}}), "'127.0.0.1', around"),
        (lambda pod: agent(pod).update(lifecycle={"preStop": {"httpGet": {"host": "e.example"}}}), "preStop lets the"),
        (lambda pod: agent(pod)["securityContext"].update(windowsOptions={"hostProcess": True}), "privileged"),
        (lambda pod: pod["spec"]["securityContext"].update(windowsOptions={"hostProcess": True}), "privileged"),
        (
            lambda pod: pod["spec"].update(ephemeralContainers=[{"name": "d", "targetContainerName": "interlock"}]),
            "it would see the proxy's processes",
        ),
        (lambda pod: pod["spec"]["volumes"].append({"name": "v", "secret": {"secretName": "db"}}), "secret 'db'"),
        (
            lambda pod: pod["spec"]["volumes"].append(
                {"name": "v", "projected": {"sources": [{"secret": {"name": "db"}}]}}
            ),
            "secret 'db'",
        ),
        (lambda pod: agent(pod).update(envFrom=[{"secretRef": {"name": "kek"}}]), "secret 'kek'"),
        (
            lambda pod: agent(pod)["env"].append({"name": "X", "valueFrom": {"secretKeyRef": {"name": "kek"}}}),
            "secret 'kek'",
        ),
        (lambda pod: pod["spec"].update(shareProcessNamespace=True), "shareProcessNamespace"),
        (lambda pod: pod["spec"]["volumes"].append({"name": "node", "hostPath": {"path": "/"}}), "hostPath"),
        (lambda pod: pod["spec"]["securityContext"].update(sysctls=[{"name": "net.ipv4.ip_forward"}]), "sysctls"),
        (lambda pod: pod["spec"]["initContainers"].reverse(), "container 'interlock-rules' has env"),
        (lambda pod: pod["spec"].update(initContainers=[]), "missing"),
        (lambda pod: pod["spec"].pop("initContainers"), "missing"),
        (lambda pod: pod["spec"]["volumes"].pop(0), "volume 'interlock-state'"),
        (lambda pod: first_init(pod).update(image="evil:1"), "container 'interlock', image"),
        (lambda pod: first_init(pod)["env"].append({"name": "INTERLOCK_POLICY", "value": "/tmp"}), "'interlock', env"),
        (lambda pod: first_init(pod)["env"][0].update(value="watch"), "env[0], value"),
        (lambda pod: first_init(pod).update(command=["sh"]), "has command"),
        (lambda pod: first_init(pod).update(lifecycle={}), "has lifecycle"),
        (lambda pod: first_init(pod)["volumeMounts"].append({"name": "x", "mountPath": "/opt"}), "volumeMounts"),
        (lambda pod: agent(pod)["securityContext"].update(runAsUser=10001), "user 10001 is the proxy's"),
        (lambda pod: agent(pod)["securityContext"].pop("runAsUser"), "name its user"),
        (lambda pod: agent(pod)["securityContext"].update(privileged=True), "privileged"),
        (lambda pod: agent(pod)["securityContext"].pop("allowPrivilegeEscalation"), "allowPrivilegeEscalation"),
        (lambda pod: agent(pod)["securityContext"].update(capabilities={}), "drop: [ALL]"),
        (lambda pod: agent(pod)["securityContext"]["capabilities"].update(add=["NET_ADMIN"]), "NET_ADMIN"),
        (lambda pod: agent(pod)["securityContext"]["capabilities"].update(add=["CAP_setuid"]), "SETUID"),
        (lambda pod: agent(pod)["securityContext"].update(procMount="Unmasked"), "procMount"),
        (lambda pod: agent(pod).pop("securityContext"), "name its user"),
        (lambda pod: agent(pod)["volumeMounts"].append({"name": "interlock-state", "mountPath": "/s"}), "sidecar's"),
        (lambda pod: agent(pod)["volumeMounts"][0].pop("readOnly"), "'interlock-share' is the sidecar's"),
        (lambda pod: agent(pod)["volumeMounts"].insert(0, {"name": "interlock-share"}), "'interlock-share' is the"),
        (lambda pod: pod["spec"].update(ephemeralContainers=[{"name": "debugger"}]), "container 'debugger'"),
        (lambda pod: agent(pod).update(name="interlock", securityContext={}), "container 'interlock': name its user"),
    ],
)
def test_a_pod_that_would_not_be_held_is_refused_with_the_reason(
    pod: Pod, injection: Injection, change: Callable[[Pod], object], said: str
) -> None:
    held = hold(pod, injection)
    change(held)
    told = "; ".join(objections(held, injection))
    assert said in told


def test_what_does_not_lead_around_the_rules_is_not_refused(pod: Pod, injection: Injection) -> None:
    pod["spec"] |= {
        "hostUsers": False,
        "dnsConfig": {"options": [{"name": "ndots", "value": "1"}]},
        "os": {"name": "linux"},
        "securityContext": {"sysctls": [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}]},
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "own", "secret": {"secretName": "mine"}},
            {"name": "secrets", "csi": {"driver": "secrets-store.csi.k8s.io"}},
        ],
    }
    agent(pod).update({"readinessProbe": {"httpGet": {"path": "/", "port": 80}}, "ports": [{"containerPort": 80}]})
    pod["spec"]["containers"][0]["securityContext"] = {"capabilities": {"add": ["IPC_LOCK"]}, "runAsUser": 0}
    assert objections(hold(pod, injection), injection) == []


def test_the_sidecar_of_a_pod_that_runs_stays_as_it_was(pod: Pod, injection: Injection) -> None:
    held = hold(pod, injection)
    first_init(held)["terminationMessagePath"] = "/dev/termination-log"
    newer = Injection.model_validate(
        injection.model_dump(by_alias=True)
        | {"initContainers": [{**each, "image": "interlock:2"} for each in injection.init_containers]}
    )
    labelled = {**copy.deepcopy(held), "metadata": {"name": "agent", "labels": {"a": "b"}}}
    debugged = copy.deepcopy(held)
    debugged["spec"]["ephemeralContainers"] = [{"name": "debugger", "image": "busybox:1"}]
    debugged["spec"]["ephemeralContainers"][0] |= {"securityContext": agent(held)["securityContext"]}
    for template in (injection, newer):
        assert objections_to_change(held, labelled, template) == []
        assert objections_to_change(held, debugged, template) == []
    for change, said in (
        (lambda new: first_init(new).update(image="evil:1"), "container 'interlock', image"),
        (lambda new: agent(new)["securityContext"].update(runAsUser=10001), "user 10001 is the proxy's"),
    ):
        changed = copy.deepcopy(held)
        change(changed)
        assert said in "; ".join(objections_to_change(held, changed, injection))
    # A pod from before the namespace had its label has no sidecar and gets no debugger; it can be deleted.
    bare = {**pod, "metadata": {"finalizers": []}}
    assert objections_to_change(pod, bare, injection) == []
    with_debugger = {**pod, "spec": {**pod["spec"], "ephemeralContainers": [{"name": "debugger"}]}}
    assert any("interlock-rules" in each for each in objections_to_change(pod, with_debugger, injection))


def test_a_pods_user_counts_for_containers_that_name_none(pod: Pod, injection: Injection) -> None:
    pod["spec"]["securityContext"] = {"runAsUser": 10001}
    assert any("user 10001 is the proxy's" in each for each in objections(hold(pod, injection), injection))


def test_a_debugging_container_gets_no_rights_either(pod: Pod, injection: Injection) -> None:
    held = hold(pod, injection)
    held["spec"]["ephemeralContainers"] = [{"name": "debugger", "image": "busybox:1"}]
    again = hold(held, injection)
    assert again["spec"]["ephemeralContainers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert objections(again, injection) == []


def test_a_pod_may_go_without_only_where_the_injection_says_so(pod: Pod, injection: Injection) -> None:
    pod["metadata"]["annotations"] = {"mcp-interlock/inject": "disabled"}
    assert not opted_out(pod, injection)
    assert opted_out(pod, injection.model_copy(update={"opt_out": True}))
    assert not opted_out({"spec": {}}, injection.model_copy(update={"opt_out": True}))

"""Changes a pod so that its agent has no way out but the proxy, and says why a pod cannot be held. Pure: no I/O.

The sidecar's rules tell the proxy from the agent by its user. So no other container of the pod may become that user,
change the rules, or stand outside the pod's network.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proxy.kubernetes.injection import Injection, Manifest

OPT_OUT: Final = "mcp-interlock/inject"
KINDS: Final = ("initContainers", "containers", "ephemeralContainers")
PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
HOOKS: Final = ("postStart", "preStop")
# A port below 1024 and locked memory lead nowhere. Every other capability is more than an agent needs.
HARMLESS: Final = frozenset({"NET_BIND_SERVICE", "IPC_LOCK"})
# The kinds of volumes of Kubernetes' own restricted level. Others are the node's, or mounted over its network (nfs).
VOLUMES: Final = frozenset(
    {
        *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected"),
        "secret",
    }
)
# What Kubernetes calls safe, of its baseline level: none of it leads around the rules.
SYSCTLS: Final = frozenset(
    {
        *("kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_unprivileged_port_start"),
        *("net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range", "net.ipv4.ip_local_reserved_ports"),
        *("net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl"),
        *("net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"),
        *("net.ipv4.tcp_slow_start_after_idle", "net.ipv4.tcp_notsent_lowat"),
    }
)
SECRET_REFERENCES: Final = ("secretKeyRef", "secretRef", "nodePublishSecretRef")
# The API server mounts the pod's service account here, in containers that were injected, too.
ACCOUNT_FOLDER: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
# What the API server fills in where a manifest is silent. It says nothing about what a container may do.
DEFAULTED: Final = frozenset(
    {
        *("terminationMessagePath", "terminationMessagePolicy", "imagePullPolicy", "successThreshold"),
        *("timeoutSeconds", "periodSeconds", "failureThreshold", "apiVersion", "defaultMode", "protocol", "scheme"),
    }
)


def opted_out(pod: Manifest, injection: Injection) -> bool:
    """Return whether the pod asks for no sidecar, and may."""
    annotations = pod.get("metadata", {}).get("annotations") or {}
    return injection.opt_out and annotations.get(OPT_OUT) == "disabled"


def hold(pod: Manifest, injection: Injection) -> Manifest:
    """Return the pod with the sidecar in it, and its own containers without rights. Twice is the same as once.

    Whatever has the name of one of our containers or volumes is replaced: a pod cannot bring a sidecar of its own.
    """
    held = copy.deepcopy(pod)
    spec = held.setdefault("spec", {})
    ours, volumes = injection.container_names, injection.volume_names
    before = [each for each in spec.get("initContainers") or () if each.get("name") not in ours]
    spec["initContainers"] = [*copy.deepcopy(list(injection.init_containers)), *before]
    kept = [each for each in spec.get("volumes") or () if each.get("name") not in volumes]
    spec["volumes"] = [*kept, *copy.deepcopy(list(injection.volumes))]
    context = spec["securityContext"] = spec.get("securityContext") or {}
    context.setdefault("fsGroup", injection.proxy_user)  # else the proxy could not read its secrets
    for container in own_containers(held, injection):
        _take_rights(container, context, injection)
        _equip(container, injection)
    return held


def own_containers(pod: Manifest, injection: Injection) -> Iterator[Manifest]:
    """Yield the containers that are not ours."""
    for kind in KINDS:
        for container in pod["spec"].get(kind) or ():
            if kind != "initContainers" or container.get("name") not in injection.container_names:
                yield container


def _take_rights(container: Manifest, pod_context: Manifest, injection: Injection) -> None:
    context = container["securityContext"] = container.get("securityContext") or {}
    if "runAsUser" not in context and "runAsUser" not in pod_context:
        context["runAsUser"] = injection.agent_user  # the image's own user is not known here, and may be the proxy's
    context.setdefault("allowPrivilegeEscalation", False)
    capabilities = context["capabilities"] = context.get("capabilities") or {}
    capabilities["drop"] = ["ALL"]


def _equip(container: Manifest, injection: Injection) -> None:
    env = container["env"] = container.get("env") or []
    named = {each.get("name") for each in env}
    env += [dict(each) for each in injection.agents.env if each.get("name") not in named]
    mounts = container["volumeMounts"] = container.get("volumeMounts") or []
    given = {each["name"] for each in injection.agents.volume_mounts}
    mounts[:] = [each for each in mounts if each.get("name") not in given]
    mounts += [dict(each) for each in injection.agents.volume_mounts]


def objections(pod: Manifest, injection: Injection) -> list[str]:
    """Return why the pod would not be held as it stands: nothing where it would be."""
    spec = pod.get("spec") or {}
    said = [*_of_the_pod(spec), *_of_ours(spec, injection), *_of_its_containers(pod, injection)]
    return [*said, *_of_secrets(pod, injection)] if "spec" in pod else said


def _of_secrets(pod: Manifest, injection: Injection) -> Iterator[str]:
    """Say where the pod's own parts read a secret of the sidecar: the database's login, the key of the fleet's keys."""
    ours = secrets_in([*injection.init_containers, *injection.volumes])
    own = [each for each in pod["spec"].get("volumes") or () if each.get("name") not in injection.volume_names]
    for name in sorted(ours & secrets_in([*own, *own_containers(pod, injection)])):
        yield f"secret {name!r} is the sidecar's; do not mount it, nor take variables from it"


def secrets_in(part: Any) -> frozenset[str]:
    """Return the names of the secrets that a part of a manifest reads, in whatever way."""
    if isinstance(part, list):
        return frozenset().union(*map(secrets_in, part))
    if not isinstance(part, dict):
        return frozenset()
    named = [part["secret"].get(key) for key in ("secretName", "name")] if isinstance(part.get("secret"), dict) else []
    named += [part[key].get("name") for key in SECRET_REFERENCES if isinstance(part.get(key), dict)]
    return frozenset(each for each in named if isinstance(each, str)).union(*map(secrets_in, part.values()))


def _of_the_pod(spec: Manifest) -> Iterator[str]:
    for field, why in (
        ("hostNetwork", "the pod uses the node's network, where the rules would cut off the node; remove it"),
        ("hostPID", "the pod sees every process of the node; remove it"),
        ("hostIPC", "the pod sees the memory that other pods of the node share, proxies among them; remove it"),
        ("hostAliases", "the pod says what names mean to the proxy, whose rules go by names; remove it"),
        ("shareProcessNamespace", "the agent would see the proxy's processes; remove it"),
    ):
        if spec.get(field):
            yield f"spec.{field}: {why}"
    if (spec.get("dnsConfig") or {}).get("nameservers"):
        yield "spec.dnsConfig.nameservers: the pod says what names mean to the proxy, whose rules go by them; remove it"
    if (spec.get("os") or {}).get("name", "linux") != "linux":
        yield "spec.os: the rules are those of Linux alone; run it in another namespace"
    for volume in spec.get("volumes") or ():
        if foreign := volume.keys() - VOLUMES - {"name"}:
            kind = min(foreign)
            yield f"volume {volume.get('name')!r} ({kind}) is the node's, around the proxy; use another kind of volume"
    for sysctl in (spec.get("securityContext") or {}).get("sysctls") or ():
        if sysctl.get("name") not in SYSCTLS:
            yield f"spec.securityContext.sysctls: {sysctl.get('name')!r} changes the pod's network; remove it"


def objections_to_change(before: Manifest, pod: Manifest, injection: Injection) -> list[str]:
    """Return why a pod that runs must not be changed so: its sidecar stays as it was, also if the template is newer."""
    old = before.get("spec") or {}
    if old == pod.get("spec"):
        return []  # labels, annotations, finalizers
    first = (old.get("initContainers") or [])[: len(injection.init_containers)]
    if [each.get("name") for each in first] == [each["name"] for each in injection.init_containers]:
        volumes = [each for each in old.get("volumes") or () if each.get("name") in injection.volume_names]
        started = [_without_account(each) for each in first]
        injection = injection.model_copy(update={"init_containers": tuple(started), "volumes": tuple(volumes)})
    return objections(pod, injection)


def _of_ours(spec: Manifest, injection: Injection) -> Iterator[str]:
    """Say where our containers and volumes are not as we define them; another webhook may have changed them."""
    there = (spec.get("initContainers") or [])[: len(injection.init_containers)]
    for wanted, found in zip(injection.init_containers, there, strict=False):
        if difference := _difference(wanted, _without_account(found), f"container {wanted['name']!r}"):
            yield difference
    if len(there) < len(injection.init_containers):
        yield "the sidecar's containers are missing; they must be the first of spec.initContainers"
    volumes = {each.get("name"): each for each in spec.get("volumes") or ()}
    for wanted in injection.volumes:
        if difference := _difference(wanted, volumes.get(wanted["name"]), f"volume {wanted['name']!r}"):
            yield difference


def _without_account(container: Manifest) -> Manifest:
    mounts = [each for each in container.get("volumeMounts") or () if each.get("mountPath") != ACCOUNT_FOLDER]
    rest = {key: value for key, value in container.items() if key != "volumeMounts"}
    return {**rest, "volumeMounts": mounts} if mounts else rest


def _difference(wanted: Any, found: Any, where: str) -> str | None:
    """Return where a value is not the injected one; only what the API server fills in may be there beside it."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        if added := found.keys() - wanted.keys() - DEFAULTED:
            return f"{where} has {min(added)}, which the injector does not set"
        keyed = (_difference(value, found.get(key), f"{where}, {key}") for key, value in wanted.items())
        return next((said for said in keyed if said), None)
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        pairs = zip(wanted, found, strict=True)
        listed = (_difference(each, other, f"{where}[{number}]") for number, (each, other) in enumerate(pairs))
        return next((said for said in listed if said), None)
    return None if wanted == found else f"{where} is not as the injector sets it"


def _of_its_containers(pod: Manifest, injection: Injection) -> Iterator[str]:
    context = (pod.get("spec") or {}).get("securityContext") or {}
    if "spec" in pod:
        for container in own_containers(pod, injection):
            for said in _unsafe(container, context, injection):
                yield f"container {container.get('name')!r}: {said}"


def _unsafe(container: Manifest, pod_context: Manifest, injection: Injection) -> Iterator[str]:
    context = container.get("securityContext") or {}
    user = context.get("runAsUser", pod_context.get("runAsUser"))
    if user is None:
        yield f"name its user, for example runAsUser: {injection.agent_user}"
    elif user == injection.proxy_user:
        yield f"user {user} is the proxy's, whose traffic the rules let out; run it as another"
    windows = {**(pod_context.get("windowsOptions") or {}), **(context.get("windowsOptions") or {})}
    if context.get("privileged") or windows.get("hostProcess"):
        yield "it is privileged, so that it could remove the rules; remove privileged"
    if context.get("allowPrivilegeEscalation") is not False:
        yield "it could gain rights; set allowPrivilegeEscalation: false"
    yield from _capabilities(context.get("capabilities") or {})
    if context.get("procMount") not in {None, "Default"}:
        yield f"procMount {context['procMount']!r} opens the kernel's settings; remove it"
    if container.get("targetContainerName") in injection.container_names:
        yield "it would see the proxy's processes; name another target"
    yield from _asked_by_the_node(container)
    for mount in container.get("volumeMounts") or ():
        to_read = mount.get("name") in injection.agents_volumes and mount.get("readOnly") is True
        if mount.get("name") in injection.volume_names and not to_read:
            yield f"volume {mount['name']!r} is the sidecar's; do not mount it"


def _asked_by_the_node(container: Manifest) -> Iterator[str]:
    """Name the probes and hooks of other hosts: the node itself connects to them."""
    lifecycle = container.get("lifecycle") or {}
    actions = {name: container.get(name) for name in PROBES} | {name: lifecycle.get(name) for name in HOOKS}
    for name, action in actions.items():
        for kind in ("httpGet", "tcpSocket"):
            # Also 127.0.0.1, which is the node's own loopback.
            if host := ((action or {}).get(kind) or {}).get("host"):
                yield f"{name} lets the node connect to {host!r}, around the proxy; remove its host"


def _capabilities(capabilities: Manifest) -> Iterator[str]:
    if "ALL" not in (capabilities.get("drop") or ()):
        yield "it keeps the image's capabilities; set capabilities: {drop: [ALL]}"
    names = {str(each).upper().removeprefix("CAP_") for each in capabilities.get("add") or ()}
    for name in sorted(names - HARMLESS):
        yield f"capability {name} could change the rules or the user; remove it"

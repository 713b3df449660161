"""What is deployed, by linters and rules of our own: the Dockerfile, its scripts, compose, Kubernetes and systemd."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.support.docker_compose import read_compose
from tests.support.docker_image import read_dockerfile, sent_to_the_builder
from tests.support.harness import REPOSITORY
from tests.support.system_needs import needs

BIN = Path(sys.prefix) / "bin"
DEPLOY = REPOSITORY / "deploy"
COMPOSE = REPOSITORY / "docker-compose.yml"
TRANSPARENT = DEPLOY / "compose.transparent.yml"
BOTH = pytest.mark.parametrize("file", [COMPOSE, TRANSPARENT], ids=lambda file: file.stem)
OURS = ["deploy/entrypoint", "deploy/make-secrets"]
POD = YAML(typ="safe", pure=True).load(DEPLOY / "kubernetes.yaml")["spec"]


def quiet(*command: str | Path) -> None:
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, done.stdout + done.stderr)


def has_compose() -> bool:
    docker = shutil.which("docker")
    return (
        bool(docker)
        and not subprocess.run([str(docker), "compose", "version"], capture_output=True, check=False).returncode
    )


class TestLinters:
    def test_the_dockerfile(self) -> None:
        quiet(BIN / "hadolint", "Dockerfile")

    def test_shell_scripts(self) -> None:
        quiet(BIN / "shellcheck", *OURS)
        quiet(BIN / "shellcheck", "--severity=warning", "scripts/find-python", "scripts/system-packages", ".ci/run")

    def test_compose_files(self) -> None:
        quiet(BIN / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", COMPOSE, TRANSPARENT)
        if has_compose():
            for file in (COMPOSE, TRANSPARENT):
                quiet("docker", "compose", "-f", file, "config", "--quiet")

    @needs("systemd-analyze")
    def test_the_unit(self, tmp_path: Path) -> None:
        unit = (DEPLOY / "interlock.service").read_text()
        (tmp_path / "interlock.service").write_text(unit.replace("/opt/interlock/bin/interlock", "/bin/true"))
        quiet("systemd-analyze", "verify", tmp_path / "interlock.service")


class TestDockerfile:
    def test_bases_are_pinned_and_nothing_is_installed_without_its_hash(self) -> None:
        steps = read_dockerfile(REPOSITORY / "Dockerfile")
        assert {step.text.split()[0] for step in steps if step.word == "FROM"} == {"python:3.13.9-slim-bookworm"}
        (install,) = [step.text for step in steps if "requirements.lock" in step.text and step.word == "RUN"]
        assert {"--require-hashes", "--only-binary=:all:", "--no-deps"} <= set(install.split())
        assert not re.search(r"https?://(?!127\.0\.0\.1)|index-url", (REPOSITORY / "Dockerfile").read_text())

    def test_it_ends_as_a_user_with_a_health_check(self) -> None:
        last = {step.word: step.text for step in read_dockerfile(REPOSITORY / "Dockerfile")}
        assert last["USER"] == "10001:10001"
        assert last["HEALTHCHECK"].startswith("--interval=")

    def test_the_builder_gets_no_secret_history_or_test(self) -> None:
        sent = sent_to_the_builder(REPOSITORY)
        tops = {Path(path).parts[0] for path in sent}
        assert tops == {
            "requirements.lock",
            "pyproject.toml",
            "README.md",
            "LICENSE",
            "mcp_interlock",
            "proxy",
            "addons",
            "policies",
            "sql",
            "man",
            "deploy",
        }
        assert {path for path in sent if path.startswith("deploy/")} == {"deploy/entrypoint", "deploy/sidecar.yaml"}
        assert not {path for path in sent if "__pycache__" in path}


def networks(file: Path) -> dict[str, set[str]]:
    return {name: set(said.get("networks", ())) for name, said in read_compose(file)["services"].items()}


@BOTH
class TestCompose:
    def test_every_service_is_bounded_and_has_no_more_rights_than_it_needs(self, file: Path) -> None:
        for name, said in read_compose(file)["services"].items():
            assert said["read_only"], name
            assert said["cap_drop"] == ["ALL"], name
            assert said["security_opt"] == ["no-new-privileges:true"], name
            assert {"mem_limit", "cpus", "pids_limit", "restart"} <= said.keys(), name
            assert re.fullmatch(r"[a-z]+:\d+\.\d+[\w.-]*", said["image"]), name
            raised = name == "interlock" and file == TRANSPARENT
            assert said.get("cap_add", []) == (["NET_ADMIN", "SETUID", "SETGID", "SETPCAP"] if raised else []), name
            assert (str(said.get("user", "10001")).startswith("0")) is raised, name

    def test_secrets_are_files_and_only_for_those_who_need_them(self, file: Path) -> None:
        content = read_compose(file)
        assert {name: said.get("secrets", []) for name, said in content["services"].items() if said.get("secrets")} == {
            "interlock": ["database_url"],
            "db": ["postgres_password"],
        }
        given = {name for said in content["services"].values() for name in said.get("environment", ())} - {"MCP_URL"}
        assert not {name for name in given if re.search("PASSWORD$|TOKEN|SECRET|URL$", name)}

    def test_the_agent_has_the_certificate_to_read_and_not_the_state(self, file: Path) -> None:
        agent = read_compose(file)["services"]["agent"]
        assert [volume for volume in agent["volumes"] if not volume.endswith(":ro")] == []
        assert "certificate:/share:ro" in agent["volumes"]
        assert not [volume for volume in agent["volumes"] if volume.startswith("state")]
        assert agent["user"].split(":")[0] not in {"0", "10001"}

    def test_the_store_is_where_the_policy_keeps_agents_from(self, file: Path) -> None:
        content = read_compose(file)
        (subnet,) = [part["subnet"] for part in content["networks"]["store"]["ipam"]["config"]]
        assert f"cidrs: [{subnet}]" in (DEPLOY / "sidecar.yaml").read_text()


def test_the_agents_only_network_leads_to_the_sidecar_alone() -> None:
    content, joined = read_compose(COMPOSE), networks(COMPOSE)
    assert joined["agent"] == {"inside"}
    assert [name for name, theirs in joined.items() if "inside" in theirs] == ["agent", "interlock"]
    assert content["networks"]["inside"]["internal"] is True
    assert content["services"]["agent"]["dns"] == ["127.0.0.1"]


def test_an_agent_in_the_sidecars_network_starts_once_that_has_its_rules() -> None:
    services = read_compose(TRANSPARENT)["services"]
    assert services["interlock"]["environment"]["SIDECAR_CONFINE"] == "1"
    for name in ("agent", "gateway"):
        assert services[name]["network_mode"] == "service:interlock"
        assert services[name]["depends_on"]["interlock"] == {"condition": "service_healthy", "restart": True}


def containers() -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in (*POD["initContainers"], *POD["containers"])}


def test_a_pod_has_its_rules_first_and_rights_for_that_alone() -> None:
    every = containers()
    assert list(every) == ["rules", "interlock", "gateway", "agent"]
    for name, each in every.items():
        context = each["securityContext"]
        assert context["capabilities"] == {"drop": ["ALL"], **({"add": ["NET_ADMIN"]} if name == "rules" else {})}
        assert (context["runAsUser"] == 0) is (name == "rules")
        assert context["readOnlyRootFilesystem"]
        assert not context["allowPrivilegeEscalation"]
        assert {"requests", "limits"} == each["resources"].keys()
    assert {mount["name"]: mount.get("readOnly") for mount in every["agent"]["volumeMounts"]} == {"certificate": True}
    assert every["agent"]["securityContext"]["runAsUser"] != every["interlock"]["securityContext"]["runAsUser"]


def test_secrets_are_made_once_and_their_folder_is_closed(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    for _ in range(2):
        subprocess.run([DEPLOY / "make-secrets", folder], check=True, capture_output=True)
    password, url = ((folder / name).read_text() for name in ("postgres_password", "database_url"))
    assert folder.stat().st_mode & 0o777 == 0o700
    assert re.fullmatch("[0-9a-f]{48}", password)
    assert url == f"postgresql://interlock:{password}@db:5432/interlock"


def test_secrets_may_name_another_database_and_ask_for_tls_then(tmp_path: Path) -> None:
    subprocess.run([DEPLOY / "make-secrets", tmp_path, "pg.data.svc:5432/audit"], check=True, capture_output=True)
    url = (tmp_path / "database_url").read_text()
    assert url.endswith("@pg.data.svc:5432/audit?sslmode=verify-full&sslrootcert=system")


@pytest.mark.parametrize("database", ["pg.data.svc", "pg/audit;x", "/audit", "pg/", "a/b/c"])
def test_a_database_that_makes_no_url_is_refused(tmp_path: Path, database: str) -> None:
    done = subprocess.run(
        [DEPLOY / "make-secrets", tmp_path / "secrets", database], check=False, capture_output=True, text=True
    )
    assert (done.returncode, (tmp_path / "secrets").exists()) == (2, False)
    assert "HOST:PORT/DATABASE" in done.stderr

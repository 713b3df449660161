from __future__ import annotations

from typing import Any

import pytest

from proxy.kubernetes.injection import Injection


@pytest.fixture
def injection() -> Injection:
    return Injection.model_validate(
        {
            "initContainers": [
                {"name": "interlock-rules", "image": "interlock:1", "args": ["apply-rules"]},
                {
                    "name": "interlock",
                    "image": "interlock:1",
                    "env": [
                        {"name": "INTERLOCK_PROFILE", "value": "strict"},
                        {"name": "INTERLOCK_KEK", "valueFrom": {"secretKeyRef": {"name": "kek", "key": "key"}}},
                    ],
                    "volumeMounts": [{"name": "interlock-state", "mountPath": "/var/lib/interlock"}],
                },
            ],
            "volumes": [
                {"name": "interlock-state", "emptyDir": {}},
                {"name": "interlock-share", "emptyDir": {}},
                {"name": "interlock-database", "secret": {"secretName": "db"}},
            ],
            "agents": {
                "env": [{"name": "SSL_CERT_FILE", "value": "/share/bundle.pem"}],
                "volumeMounts": [{"name": "interlock-share", "mountPath": "/share", "readOnly": True}],
            },
        }
    )


@pytest.fixture
def pod() -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "agent"},
        "spec": {
            "initContainers": [{"name": "prepare", "image": "busybox:1"}],
            "containers": [{"name": "agent", "image": "python:3"}],
        },
    }

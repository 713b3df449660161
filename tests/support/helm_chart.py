"""Renders the Helm chart with Helm's own engine, in a process of its own: Go's threads do not survive a fork."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

CHART = Path(__file__).resolve().parents[2] / "deploy" / "helm" / "interlock"
NAMESPACE = "interlock-system"


class ChartError(Exception):
    """What Helm says about a chart or its values."""


def render(**values: Any) -> list[dict[str, Any]]:
    """Return every manifest that the chart gives for these values. Raises ChartError."""
    files = _helm("render", values)
    texts = [text for name, text in sorted(files.items()) if name.endswith(".yaml")]
    yaml = YAML(typ="safe", pure=True)
    return [each for text in texts for each in yaml.load_all(text) if each]


def lint(**values: Any) -> list[str]:
    """Return what `helm lint --strict` finds."""
    return [str(each["error"]) for each in _helm("lint", values)["messages"] if each["severity"] > 1]


def _helm(job: str, values: dict[str, Any]) -> Any:
    asked = json.dumps({"job": job, "values": values})
    command = [sys.executable, __file__]
    done = subprocess.run(command, input=asked, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise ChartError(done.stderr)
    return json.loads(done.stdout)


def main() -> None:
    import helm_python

    asked = json.load(sys.stdin)
    try:
        if asked["job"] == "lint":
            said = helm_python.lint(CHART, asked["values"], strict=True, namespace=NAMESPACE, kube_version="v1.34.0")
        else:
            chart = helm_python.Chart.load(CHART)
            chart.validate_schema(asked["values"])
            said = chart.render(asked["values"], name="interlock", namespace=NAMESPACE)
    except helm_python.HelmError as error:
        sys.exit(str(error))
    json.dump(said, sys.stdout)


if __name__ == "__main__":
    main()

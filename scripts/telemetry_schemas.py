"""Fetch the published schemas that tests/telemetry checks against, and write them to tests/telemetry/schemas.

Of OCSF it keeps what its validator asks of the classes and objects that Interlock writes: attributes with their type,
requirement and values, and the constraints of objects. Give clones to read in place of the network:

    python scripts/telemetry_schemas.py --ocsf ../ocsf-schema/.git --cloudevents ../spec/.git
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

OCSF, OCSF_TAG = "https://github.com/ocsf/ocsf-schema", "1.8.0"
CLOUDEVENTS, CLOUDEVENTS_TAG = "https://github.com/cloudevents/spec", "HEAD"
FOLDER = Path(__file__).parents[1] / "tests" / "telemetry" / "schemas"
CLASSES = {"api_activity": "events/application/api_activity.json"}
CLASSES["detection_finding"] = "events/findings/detection_finding.json"
KINDS = ("events", "events/application", "events/findings", "objects", "profiles")


class Tree:
    """The JSON files of one commit."""

    def __init__(self, git: Path, commit: str) -> None:
        self._git = git
        self._commit = commit

    def read(self, path: str) -> dict[str, Any]:
        """Return a file's content."""
        command = ["git", "--git-dir", str(self._git), "show", f"{self._commit}:{path}"]
        found: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        return found

    def find(self, name: str) -> dict[str, Any]:
        """Return the class or object of a name."""
        for kind in KINDS:
            try:
                return self.read(f"{kind}/{name}.json")
            except subprocess.CalledProcessError:
                continue
        raise SystemExit(f"no {name}.json in {', '.join(KINDS)}")


def whole(tree: Tree, definition: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the attributes and the constraints of a definition, with those that it extends and includes."""
    attributes: dict[str, Any] = {}
    constraints: dict[str, Any] = {}
    if parent := definition.get("extends"):
        attributes, constraints = whole(tree, tree.find(parent))
    own = dict(definition["attributes"])
    for path in own.pop("$include", ()):
        profile = tree.read(path)
        for name, more in profile["attributes"].items():
            # What a profile requires is required only of events that say they have it.
            attributes[name] = attributes.get(name, {}) | more | {"of": profile["name"]}
    for name, more in own.items():
        before = attributes.get(name, {})
        values = before.get("enum", {}) | more.get("enum", {})
        attributes[name] = before | more | ({"enum": values} if values else {})
        if "profile" in more and more["profile"] is None:
            attributes[name].pop("of", None)
    return attributes, definition.get("constraints", constraints)


def compact(tree: Tree, dictionary: dict[str, Any], definition: dict[str, Any]) -> dict[str, Any]:
    attributes, constraints = whole(tree, definition)
    shown = {}
    for name, own in attributes.items():
        known = dictionary.get(name, {}) | own
        values = dictionary.get(name, {}).get("enum", {}) | own.get("enum", {})
        shown[name] = {
            "type": dictionary.get(name, {}).get("type") if "type" not in own else own["type"],
            "requirement": known.get("requirement", "optional"),
            **({"array": True} if known.get("is_array") else {}),
            **({"of": known["of"]} if known.get("of") else {}),
            **({"sibling": known["sibling"]} if known.get("sibling") else {}),
            **({"values": {key: value["caption"] for key, value in values.items()}} if values else {}),
        }
    return {"attributes": dict(sorted(shown.items())), **({"constraints": constraints} if constraints else {})}


def ocsf(tree: Tree) -> dict[str, Any]:
    """Return the classes, and every object that can be reached from them."""
    file = tree.read("dictionary.json")
    dictionary, types = file["attributes"], set(file["types"]["attributes"])
    found: dict[str, Any] = {}
    classes = {name: compact(tree, dictionary, tree.read(path)) for name, path in CLASSES.items()}
    waiting = [one["type"] for made in classes.values() for one in made["attributes"].values()]
    while waiting:
        name = waiting.pop()
        if name in types or name in found or name in ("object", None):
            continue
        found[name] = compact(tree, dictionary, tree.read(f"objects/{name}.json"))
        waiting += [one["type"] for one in found[name]["attributes"].values()]
    return {"version": tree.read("version.json")["version"], "classes": classes, "objects": dict(sorted(found.items()))}


def main() -> None:
    """Write both files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ocsf", type=Path, help="git folder of a clone of ocsf-schema")
    parser.add_argument("--cloudevents", type=Path, help="git folder of a clone of cloudevents/spec")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        schemas = {
            "ocsf.json": ocsf(Tree(given.ocsf or _clone(OCSF, folder), OCSF_TAG)),
            "cloudevents.json": Tree(given.cloudevents or _clone(CLOUDEVENTS, folder), CLOUDEVENTS_TAG).read(
                "cloudevents/formats/cloudevents.json"
            ),
        }
    for name, schema in schemas.items():
        (FOLDER / name).write_text(json.dumps(schema, separators=(",", ":"), sort_keys=True) + "\n")


def _clone(url: str, folder: str) -> Path:
    path = Path(folder) / url.rpartition("/")[2]
    subprocess.run(["git", "clone", "--quiet", "--bare", url, str(path)], check=True)
    return path


if __name__ == "__main__":
    main()

"""Answers AdmissionReview requests of the Kubernetes API server about pods. Pure: no I/O.

`mutate` puts the sidecar in; `validate` has the last word, after every other webhook. Whatever is not understood is
refused: a pod that starts without its sidecar is an agent that nobody sees.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, Final

from proxy.kubernetes.pod import hold, objections, objections_to_change, opted_out

if TYPE_CHECKING:
    from proxy.kubernetes.injection import Injection, Manifest

VERSION: Final = "admission.k8s.io/v1"
POD: Final = {"group": "", "version": "v1", "kind": "Pod"}


class ReviewError(Exception):
    """A body that is no AdmissionReview, so that there is nothing to answer."""


def mutate(review: Any, injection: Injection) -> Manifest:
    """Answer with a patch that puts the sidecar in, or with a refusal. Raises ReviewError."""
    request = _request(review)
    if said := _unfit(request):
        return _refusal(request, said)
    pod = request["object"]
    if opted_out(pod, injection):
        return _answer(request, {"allowed": True})
    held = hold(pod, injection)
    if _before(request) is not None:
        # Of a pod that runs, debugging containers alone can be added.
        added = {key: held["spec"][key] for key in ("ephemeralContainers",) if key in pod["spec"]}
        held = {**pod, "spec": {**pod["spec"], **added}}
    # Said at once, before a scheduler looks at the pod; `validate` would say it, too.
    if said := _objections(request, held, injection):
        return _refusal(request, said)
    if held == pod:
        return _answer(request, {"allowed": True})
    patch = [{"op": "replace" if "spec" in pod else "add", "path": "/spec", "value": held["spec"]}]
    encoded = base64.b64encode(json.dumps(patch).encode()).decode()
    return _answer(request, {"allowed": True, "patchType": "JSONPatch", "patch": encoded})


def validate(review: Any, injection: Injection) -> Manifest:
    """Answer whether the pod is held as it is. Raises ReviewError."""
    request = _request(review)
    if said := _unfit(request):
        return _refusal(request, said)
    pod = request["object"]
    if opted_out(pod, injection):
        return _answer(request, {"allowed": True})
    if said := _objections(request, pod, injection):
        return _refusal(request, said)
    return _answer(request, {"allowed": True})


def _before(request: Manifest) -> Manifest | None:
    """Return the pod as it was, where one that runs is changed."""
    old = request.get("oldObject")
    return old if request.get("operation") == "UPDATE" and isinstance(old, dict) else None


def _objections(request: Manifest, pod: Manifest, injection: Injection) -> list[str]:
    before = _before(request)
    return objections(pod, injection) if before is None else objections_to_change(before, pod, injection)


def _request(review: Any) -> Manifest:
    request = review.get("request") if isinstance(review, dict) else None
    if not isinstance(request, dict) or not isinstance(request.get("uid"), str):
        raise ReviewError(f"not an AdmissionReview of {VERSION} with a request")
    if review.get("apiVersion") != VERSION or review.get("kind") != "AdmissionReview":
        raise ReviewError(f"an AdmissionReview of {VERSION} is understood, not {review.get('apiVersion')!r}")
    return request


def _unfit(request: Manifest) -> list[str]:
    """Return why a request is not about a pod that can be read."""
    if request.get("kind") != POD or not isinstance(request.get("object"), dict):
        return ["the injector decides on pods alone; correct the webhook's rules"]
    spec = request["object"].get("spec")
    if not isinstance(spec, dict) or not isinstance(spec.get("containers"), list):
        return ["the pod has no containers to be read"]
    return []


def _refusal(request: Manifest, said: list[str]) -> Manifest:
    message = f"Interlock would not hold this pod: {'; '.join(said)}"
    return _answer(request, {"allowed": False, "status": {"code": 403, "reason": "Forbidden", "message": message}})


def _answer(request: Manifest, response: Manifest) -> Manifest:
    return {"apiVersion": VERSION, "kind": "AdmissionReview", "response": {"uid": request["uid"], **response}}

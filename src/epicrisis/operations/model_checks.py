"""Check the endpoints of chat models that the settings name: whether they answer, and list the model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from epicrisis.core.errors import ModelMissing, SettingsError
from epicrisis.core.printable import printable
from epicrisis.operations.cluster_parts import ClusterCheck
from epicrisis.system.local_only import strip_secrets

if TYPE_CHECKING:
    from epicrisis.settings.settings import ModelSettings, Settings

_TIMEOUT_SECONDS = 10.0


def check_models(settings: Settings) -> Iterator[ClusterCheck]:
    """Yield a check of each endpoint that the settings name. Sends no prompt."""
    models: dict[str, ModelSettings] = {}
    for role in settings.roles:
        for model in settings.model_for(role).endpoints:
            if "://" in model.name:
                models.setdefault(model.name, model)
    for model in models.values():
        yield _check_model(model)


def _check_model(model: ModelSettings) -> ClusterCheck:
    import httpx2

    from epicrisis.models.chat.endpoints.endpoint import parse_endpoint, require_key

    part = strip_secrets(model.name)
    try:
        endpoint = parse_endpoint(model.name)
        key = require_key(model)
    except (ModelMissing, SettingsError) as error:
        return ClusterCheck(part, "model", "problem", error.message)
    if endpoint.kind != "openai":
        message = f"{endpoint.kind} lists no models: `epicrisis ask` with a short question tests it"
        return ClusterCheck(part, "model", "unknown", message)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        reply = httpx2.get(
            f"{endpoint.base_url}/models",
            headers=headers,
            params=dict(endpoint.query),
            auth=endpoint.login,
            timeout=_TIMEOUT_SECONDS,
        )
        if reply.status_code in (401, 403):
            return ClusterCheck(part, "model", "problem", "refuses the key: check api_key_file or the variable")
        body: Any = reply.raise_for_status().json()
        names = [str(row["id"]) for row in body["data"]]
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, KeyError, TypeError) as error:
        message = f"does not answer at /models ({type(error).__name__}): check that the model server runs, and the URL"
        return ClusterCheck(part, "model", "problem", message)
    listed = printable(", ".join(names[:5]))
    if endpoint.model is not None and endpoint.model not in names:
        message = f"does not list {endpoint.model}, but {listed or 'nothing'}: correct the part of the URL after #"
        return ClusterCheck(part, "model", "problem", message)
    return ClusterCheck(part, "model", "ok", f"answers, with {listed}")

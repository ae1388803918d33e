"""LibreTranslate's part of the OpenAPI document."""

from __future__ import annotations

from serving.server.api.description import (
    QUICK,
    Description,
    add_forms,
    content,
    get,
    operation,
    reference,
)
from serving.server.dialects.libretranslate.wire import (
    DetectedLanguage,
    DetectRequest,
    FrontendSettings,
    Health,
)
from serving.server.http.wire import Error


def describe() -> Description:
    """Describe LibreTranslate's routes besides those that it shares with the native dialect."""
    found = {"type": "array", "items": reference(DetectedLanguage)}
    detect = operation("detect", "Languages that a text may be in", found, (*QUICK, 403), Error)
    detect["requestBody"] = {"required": True, "content": content(reference(DetectRequest))}
    add_forms({"post": detect}, DetectRequest, ("q", "api_key"))
    frontend = reference(FrontendSettings)
    return Description(
        paths={
            "/detect": {"post": detect},
            "/frontend/settings": get("frontend_settings", "What a page has to know", frontend),
            "/health": get("health", "Whether it can translate", reference(Health)),
            "/spec": get("spec", "This document", {"type": "object"}, ()),
        },
        requests=(DetectRequest,),
        answers=(DetectedLanguage, FrontendSettings, Health),
    )

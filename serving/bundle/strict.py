"""Parts of a manifest: they are never changed, and refuse what they do not know."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """One part, checked as it is read."""

    model_config = ConfigDict(extra="forbid", frozen=True)

"""Base class for the parts of a manifest. They cannot be changed, and unknown fields are an
error."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """Part of a manifest, checked as it is read."""

    model_config = ConfigDict(extra="forbid", frozen=True)

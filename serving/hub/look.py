"""What a name stands for now, by whoever publishes models of its kind."""

from __future__ import annotations

from serving.hub.names import HubName, Name
from serving.hub.published import Published


def look(name: Name) -> Published:
    """Ask the publisher; raises ModelNameError where it cannot be asked, or has no such model."""
    # Each here, for no publisher needs what the others do.
    assert isinstance(name, HubName)
    from serving.hub.hugging_face import look

    return look(name)

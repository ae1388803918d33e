"""Looks up what a name currently stands for, with its publisher."""

from __future__ import annotations

from serving.hub.names import ArgosName, FirefoxName, HubName, Name
from serving.hub.publishers import argos, firefox, urls
from serving.hub.publishers.published import Published


def look(name: Name) -> Published:
    """Ask the publisher. Raises ModelNameError if it cannot be reached or has no such model."""
    if isinstance(name, HubName):
        # Imported here, because its library takes a while to load.
        from serving.hub.publishers import hugging_face

        return hugging_face.look(name)
    if isinstance(name, FirefoxName):
        return firefox.look(name)
    if isinstance(name, ArgosName):
        return argos.look(name)
    return urls.look(name)

"""What a name stands for now, by whoever publishes models of its kind."""

from __future__ import annotations

from serving.hub.names import ArgosName, FirefoxName, HubName, Name
from serving.hub.publishers import argos, firefox, urls
from serving.hub.publishers.published import Published


def look(name: Name) -> Published:
    """Ask the publisher; raises ModelNameError where it cannot be asked, or has no such model."""
    if isinstance(name, HubName):
        # Here, as its library takes a while to load.
        from serving.hub.publishers import hugging_face

        return hugging_face.look(name)
    if isinstance(name, FirefoxName):
        return firefox.look(name)
    if isinstance(name, ArgosName):
        return argos.look(name)
    return urls.look(name)

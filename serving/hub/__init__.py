"""Models by name: finds, downloads and caches them, and returns a bundle's folder. Models that are
not bundles are imported in another process, because no torch is loaded here."""

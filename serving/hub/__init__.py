"""Models by name: from a name to a bundle's folder, by way of downloads and a cache; what is no
bundle yet is imported by a process of its own, as no torch is loaded here."""

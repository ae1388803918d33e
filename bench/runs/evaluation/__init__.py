"""The quality of translations: scores of systems, bundles with their speed, and repairs. Nothing
here is compared with another engine."""

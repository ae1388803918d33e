"""Imports checkpoints of other projects: recognises them, reads them without executing anything in
them, and exports them as models of `training.models`. Defines no architecture."""

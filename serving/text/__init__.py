"""Divides texts into sentences for a model, and puts their translations together without losing
anything between; no model."""

"""Pipelines that share their components, a module each: what they are made of and called with."""

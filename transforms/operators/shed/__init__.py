"""Shed: no more rows than can be worked on."""

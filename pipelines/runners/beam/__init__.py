"""The Beam runners."""

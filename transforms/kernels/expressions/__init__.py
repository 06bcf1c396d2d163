"""The register machine for conditions."""

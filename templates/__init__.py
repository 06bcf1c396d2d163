"""Shipped templates, one scenario per YAML file."""

if __name__ != "slackwater.templates":
    raise ImportError(f"import slackwater.templates, not {__name__}: the folder is not a top-level package")

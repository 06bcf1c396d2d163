"""Assembly: template to plan to job; sources, sinks, command line."""

if __name__ != "slackwater.pipelines":
    raise ImportError(f"import slackwater.pipelines, not {__name__}: the folder is not a top-level package")

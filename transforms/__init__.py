"""The engine-neutral operator, its row store and its kernels; engine adapters below."""

if __name__ != "slackwater.transforms":
    raise ImportError(f"import slackwater.transforms, not {__name__}: the folder is not a top-level package")

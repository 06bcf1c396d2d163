"""What executors find as ``slackwater`` when it was shipped: unpacks the archive that it is in, once per host.

Code inside an archive has another path in every application, so compiled kernels would never be found again.
Unpacked, they are found by all that run on the host, and those that were compiled where it was shipped from come
along. Needs nothing but the standard library.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import zipfile
from pathlib import Path


def unpack(archive: str) -> str:
    """Return the folder with the content of an archive, which is made unless it is there."""
    with open(archive, "rb") as file:
        content = hashlib.file_digest(file, "sha256").hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"slackwater-{os.getuid()}-{content}"
    if not folder.is_dir() or folder.stat().st_uid != os.getuid():
        made = Path(tempfile.mkdtemp(prefix="slackwater-unpacked-"))
        with zipfile.ZipFile(archive) as zipped:
            zipped.extractall(made)
        try:
            made.rename(folder)
        except OSError:
            # Another worker was faster, or the name is somebody else's.
            if not folder.is_dir() or folder.stat().st_uid != os.getuid():
                return str(made / "slackwater")
            shutil.rmtree(made, ignore_errors=True)
    return str(folder / "slackwater")


if __name__ == "slackwater":
    __path__ = [unpack(__spec__.loader.archive)]  # type: ignore[union-attr]

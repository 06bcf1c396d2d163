"""Java libraries from Maven repositories, by ``mvn``, which knows the registry that the machine is set up for."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

_PLUGIN: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"
_TIMEOUT_S: Final = 900
_POM: Final = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion><groupId>slackwater</groupId><artifactId>fetched</artifactId>
<version>1</version>
<dependencyManagement><dependencies>{pinned}</dependencies></dependencyManagement>
<dependencies>{modules}</dependencies></project>
"""


class Module(NamedTuple):
    """The coordinates of a library."""

    group: str
    artifact: str
    version: str

    def __str__(self) -> str:
        return ":".join(self)


def copy(module: Module, folder: Path) -> None:
    """Fetch one library without what it needs into a folder.

    Raises:
        OSError: There is no Maven, or it could not.
    """
    _run(folder, "copy", f"-Dartifact={module}", f"-DoutputDirectory={folder}")


def copy_with_dependencies(
    modules: Iterable[Module], folder: Path, *, pinned: Iterable[Module] = (), only: Iterable[str] = ()
) -> None:
    """Fetch libraries and all that they need into a folder of their own, which is there if all of it is.

    Args:
        modules: the libraries.
        folder: where to; replaced if it is there.
        pinned: versions to take of what the libraries need, instead of those they ask for.
        only: names of artifacts to copy, by default all.

    Raises:
        OSError: There is no Maven, or it could not.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as made:
        pom = _POM.format(modules=_dependencies(modules), pinned=_dependencies(pinned))
        Path(made, "pom.xml").write_text(pom)
        wanted = [f"-DincludeArtifactIds={','.join(only)}"] if only else []
        _run(Path(made), "copy-dependencies", f"-DoutputDirectory={made}/jars", "-DincludeScope=runtime", *wanted)
        shutil.rmtree(folder, ignore_errors=True)
        Path(made, "jars").rename(folder)


def brief(error: BaseException) -> str:
    """The first sentence of an error."""
    return re.split(r"\. | -> \[Help|\n", str(error).strip(), maxsplit=1)[0] or type(error).__name__


def _dependencies(modules: Iterable[Module]) -> str:
    return "".join(
        f"<dependency><groupId>{m.group}</groupId><artifactId>{m.artifact}</artifactId>"
        f"<version>{m.version}</version></dependency>"
        for m in modules
    )


def _run(folder: Path, goal: str, *arguments: str) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise FileNotFoundError("it is not installed")
    command = [maven, "-q", "-B", "-Dstyle.color=never", f"{_PLUGIN}:{goal}", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if done.returncode:
        errors = re.findall(r"\[ERROR\] (\S.*)", done.stdout)
        raise OSError(errors[0] if errors else f"exit code {done.returncode}")

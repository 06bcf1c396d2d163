"""Beam's Spark job server: where its jar is, or how to get it.

A job server runs Spark inside its own JVM and has nothing to do with an installed PySpark. It is looked for
in this order: the jar that SLACKWATER_SPARK_JOB_SERVER names; Beam's jar cache; a download by Beam; ``mvn``.
Where a repository lacks the jar, ``mvn`` puts one together from Beam's published modules: of the same version,
else of the last version this was tried with. ``python -m slackwater.pipelines.runners.beam.job_server`` does all
of it ahead of time and prints the path.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from slackwater.transforms.engine import maven
from slackwater.transforms.engine.maven import Module
from slackwater.transforms.errors import SlackwaterError

VARIABLE: Final = "SLACKWATER_SPARK_JOB_SERVER"
ARTIFACT: Final = "beam-runners-spark-3-job-server"
SPARK_VERSION: Final = "3.5.0"
FALLBACK_VERSION: Final = "2.62.0"
"""Beam's modules of this version make a job server that runs pipelines of later SDKs too."""
_GROUP: Final = "org.apache.beam"
_MAIN_CLASS: Final = "org.apache.beam.runners.spark.SparkJobServerDriver"


def java() -> str:
    """Return the Java launcher, of JAVA_HOME or on the path; raise if there is none."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home, "bin"))) if home else None
    found = found or shutil.which("java")
    if found is None:
        raise SlackwaterError(
            "beam-spark needs Java, and there is none on the path; install Java 17 (or 11), or set JAVA_HOME"
        )
    return found


def job_server_jar(version: str, cache: Path) -> Path:
    """Return the jar for a version of Beam, fetching it into Beam's jar cache if it is not there."""
    named = os.environ.get(VARIABLE)
    if named:
        if not Path(named).is_file():
            raise SlackwaterError(f"{VARIABLE} names {named!r}, which is no file; correct or unset it")
        return Path(named)
    jar = cache / f"{ARTIFACT}-{version}.jar"
    made = [_assembled(cache, v) for v in (version, FALLBACK_VERSION)]
    for known in (jar, *made):
        if known.is_file():
            return known
    faults = []
    ways: list[tuple[str, Callable[[], object]]] = [
        ("Beam", lambda: _fetch_by_beam(version, jar)),
        ("mvn", lambda: _fetch_by_maven(version, jar)),
        (f"modules {version}", lambda: assemble(version, cache)),
        (f"modules {FALLBACK_VERSION}", lambda: assemble(FALLBACK_VERSION, cache)),
    ]
    for name, fetch in ways:
        try:
            fetch()
        except (OSError, RuntimeError, subprocess.SubprocessError, ValueError) as error:
            faults.append(f"{name}: {maven.brief(error)}")
        for known in (jar, *made):
            if known.is_file():
                return known
    raise SlackwaterError(
        f"beam-spark needs the job server {_GROUP}:{ARTIFACT}:{version}, and it could not be fetched "
        f"({'; '.join(faults)}); put the jar into {cache}, or name one in {VARIABLE}"
    )


def _assembled(cache: Path, version: str) -> Path:
    return cache / f"slackwater-job-server-{version}.jar"


def _fetch_by_beam(version: str, jar: Path) -> None:
    from apache_beam.utils.subprocess_server import JavaJarServer

    url = JavaJarServer.path_to_beam_jar(":runners:spark:3:job-server:shadowJar", version=version)
    JavaJarServer.local_jar(url, str(jar.parent))


def _fetch_by_maven(version: str, jar: Path) -> None:
    with tempfile.TemporaryDirectory(dir=_made(jar.parent)) as folder:
        maven.copy(Module(_GROUP, ARTIFACT, version), Path(folder))
        os.replace(Path(folder, jar.name), jar)


def assemble(version: str, cache: Path) -> Path:
    """Put a job server together from Beam's modules of this version and Spark; return its jar.

    The jar only lists the libraries beside it, so all stay where they are.
    """
    jar = _assembled(_made(cache), version)
    libraries = cache / f"slackwater-job-server-{version}"
    if jar.is_file():
        return jar
    beam = ("beam-runners-spark-3", "beam-runners-java-job-service")
    modules = [Module(_GROUP, name, version) for name in beam]
    spark = ("spark-core_2.12", "spark-streaming_2.12", "spark-sql_2.12")
    modules += [Module("org.apache.spark", name, SPARK_VERSION) for name in spark]
    modules.append(Module("com.fasterxml.jackson.module", "jackson-module-scala_2.12", "2.15.2"))
    maven.copy_with_dependencies(modules, libraries)
    manifest = [f"Main-Class: {_MAIN_CLASS}"]
    manifest.append("Class-Path: " + " ".join(f"{libraries.name}/{f.name}" for f in sorted(libraries.iterdir())))
    with zipfile.ZipFile(jar, "w") as out:
        out.writestr(
            "META-INF/MANIFEST.MF", "\r\n".join(["Manifest-Version: 1.0", *map(_folded, manifest), "", ""])
        )
    return jar


def _folded(line: str) -> str:
    """Break a line as manifests want it: 72 bytes at most, continued after a blank."""
    parts = [line[:70], *(line[at : at + 69] for at in range(70, len(line), 69))]
    return "\r\n ".join(parts)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def main() -> int:
    """Make sure that there is a job server for the installed Beam, and print its path."""
    import apache_beam
    from apache_beam.utils.subprocess_server import JavaJarServer

    try:
        jar = job_server_jar(apache_beam.__version__, Path(JavaJarServer.JAR_CACHE))
    except SlackwaterError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    sys.stdout.write(f"{jar}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

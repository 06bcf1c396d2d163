"""The decorator of every kernel, and the cache of what it compiled.

An entry is found by content: the source of the kernel's module and of every module that it imports, the versions
of Python, Numba and llvmlite, the CPU, and the types of the arguments. Checkouts, installations and processes
share entries, and a changed helper recompiles every kernel that calls it.

Entries lie in ``$SLACKWATER_CACHE``, else in the user's cache directory, else in a private temporary directory.
Each is one file with a checksum, written under another name first: processes that compile at the same time do not
disturb each other, and a damaged entry is compiled again. Entries that came with the package are read only.

Numba's own cache is not enough: its key leaves out callees, two processes may give one file name to two entries,
and a damaged entry or a read-only folder ends the run.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import os
import pickle
import pkgutil
import re
import sys
import tempfile
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import llvmlite
import numba
from numba import njit
from numba.core import compiler, serialize

SHIPPED: Final = Path(__file__).with_name("compiled")
"""Where entries are that came with the package."""
_MAGIC: Final = b"SLKWK1\n"
_ENDING: Final = ".kernel"
_KEPT_DAYS: Final = 30
_IMPORTS: Final = re.compile(r"^(?:from +([\w.]+) +import +(\([^)]*\)|.*)|import +([\w.]+))", re.MULTILINE)
_VERSIONS: Final = f"{sys.implementation.cache_tag} numba {numba.__version__} llvmlite {llvmlite.__version__}"


def kernel(function: Any = None, *, inline: bool = False) -> Any:
    """Compile a function when it is first called, without the interpreter lock, or load what was compiled before.

    Args:
        function: the function.
        inline: let LLVM inline it into its callers.
    """
    if function is None:
        return lambda function: kernel(function, inline=inline)
    compiled = njit(nogil=True, forceinline=inline)(function)
    if hasattr(compiled, "py_func"):
        compiled._cache = KernelCache(function)
    return compiled


class KernelCache:
    """What Numba's dispatcher asks for compiled forms of one function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._module, self._name = function.__module__, function.__qualname__

    @property
    def cache_path(self) -> str:
        """Folder of the entries; empty where none can be kept."""
        root = directory()
        return "" if root is None else str(root / _folder(self._module))

    def load_overload(self, signature: Any, context: Any) -> Any:
        """Return the compiled form for a signature, or None if there is none that can be used."""
        context.refresh()
        name = self._file(signature, context.codegen())
        for root in (SHIPPED, directory()):
            payload = None if root is None else _read(root / _folder(self._module) / name)
            if payload is not None:
                # A form that Numba cannot rebuild is as good as none.
                with contextlib.suppress(Exception):
                    return compiler.CompileResult._rebuild(context, *payload)
        return None

    def save_overload(self, signature: Any, result: Any) -> None:
        """Keep a compiled form, if there is a place for it."""
        root = directory()
        if root is None or result.lifted or result.library.has_dynamic_globals:
            return
        folder = root / _folder(self._module)
        try:
            if not folder.is_dir():
                folder.mkdir(parents=True, exist_ok=True)
                _forget_unused(root, self._module)
            _write(folder / self._file(signature, result.codegen), serialize.dumps(result._reduce()))
        except OSError as error:
            _say_once(
                f"compiled kernels cannot be kept in {root} ({error.strerror}); they are compiled in every run"
            )

    def flush(self) -> None:
        """Forget the entries of this function."""
        for file in Path(self.cache_path).glob(f"{self._name}-*{_ENDING}") if self.cache_path else ():
            file.unlink(missing_ok=True)

    def enable(self) -> None:
        """Entries are always used."""

    def disable(self) -> None:
        """Entries are always used."""

    def _file(self, signature: Any, codegen: Any) -> str:
        key = repr((_VERSIONS, str(signature), codegen.magic_tuple()))
        return f"{self._name}-{hashlib.sha256(key.encode()).hexdigest()[:24]}{_ENDING}"


def _folder(module: str) -> str:
    return f"{module}-{source_hash(module)[:16]}"


@cache
def source_hash(module: str) -> str:
    """Return a hash over the source of a loaded module and of what it imports from its own package or ours."""
    found = hashlib.sha256()
    for name in sorted(_closure(module)):
        found.update(name.encode() + b"\0" + _source(name) + b"\0")
    return found.hexdigest()


def _closure(module: str) -> set[str]:
    """Return the module and those that it imports, directly or not; all are loaded when a kernel is made."""
    roots = {module.split(".", 1)[0], "slackwater"}
    found: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in found or name not in sys.modules or name.split(".", 1)[0] not in roots:
            continue
        found.add(name)
        for origin, names, plain in _IMPORTS.findall(_source(name).decode("utf-8", "replace")):
            waiting += [origin or plain, *(f"{origin}.{word}" for word in re.findall(r"\w+", names))]
    return found


@cache
def _source(module: str) -> bytes:
    file = getattr(sys.modules[module], "__file__", None)
    try:
        return Path(file).read_bytes() if file else b""
    except OSError:
        # Inside an archive.
        loader: Any = getattr(sys.modules[module], "__loader__", None)
        return str(loader.get_source(module)).encode() if hasattr(loader, "get_source") else b""


@cache
def directory() -> Path | None:
    """Return the folder for compiled kernels: the first that can be written to; None if there is none."""
    named = os.environ.get("SLACKWATER_CACHE")
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    wanted = Path(named) if named else Path(home) / "slackwater"
    for root in (wanted, *_temporary()):
        folder = root / "kernels"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError:
            continue
        if root is not wanted:
            _say_once(
                f"{wanted} cannot be written; kernels are kept in {folder}. SLACKWATER_CACHE names another folder"
            )
        return folder
    _say_once(
        f"{wanted} cannot be written, nor can a temporary folder; every run compiles kernels. SLACKWATER_CACHE "
        "names another folder"
    )
    return None


def entries() -> Iterator[tuple[str, Path]]:
    """Yield the compiled forms of all kernels of this package, as (path below a cache folder, file)."""
    for module in pkgutil.walk_packages([str(Path(__file__).parent)], f"{__package__}."):
        importlib.import_module(module.name)
        for root in filter(None, (SHIPPED, directory())):
            for file in (root / _folder(module.name)).glob(f"*{_ENDING}"):
                yield f"{_folder(module.name)}/{file.name}", file


def _temporary() -> Iterator[Path]:
    """Yield a temporary folder of this user alone: what is loaded from it is run."""
    try:
        folder = Path(tempfile.gettempdir()) / f"slackwater-{os.getuid() if hasattr(os, 'getuid') else 'cache'}"
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return
    if not folder.is_symlink() and (not hasattr(os, "getuid") or found.st_uid == os.getuid()):
        if found.st_mode & 0o022:
            return
        yield folder


def _write(file: Path, payload: bytes) -> None:
    partial = file.with_name(f".{uuid.uuid4().hex}.partial")
    try:
        partial.write_bytes(_MAGIC + hashlib.sha256(payload).digest() + payload)
        partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)


def _read(file: Path) -> Any:
    """Return what an entry holds, None if it is not there or damaged."""
    try:
        content = file.read_bytes()
    except OSError:
        return None
    start = len(_MAGIC) + hashlib.sha256().digest_size
    if not content.startswith(_MAGIC) or hashlib.sha256(content[start:]).digest() != content[len(_MAGIC) : start]:
        return None
    with contextlib.suppress(Exception):
        return pickle.loads(memoryview(content)[start:])  # noqa: S301 - written by this user, checksum intact
    return None


def _forget_unused(root: Path, module: str) -> None:
    """Remove what other versions of a module left behind and nobody has added to for a month."""
    for folder in root.glob(f"{module}-*"):
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime > _KEPT_DAYS * 86_400:
                for file in folder.iterdir():
                    file.unlink()
                folder.rmdir()


@cache
def _say_once(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=2)

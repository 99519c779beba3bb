"""Names of results: digests of what a stage was asked, what it read and the code it ran.

A stage's artifact is named by the digest of its *specification* (never of arrays: two equal arrays in
another memory layout hash differently, two different ones can hash alike when shape is left out), of
the fingerprints of its inputs, and of the source of every module it can reach. Editing a module
therefore changes the names of exactly the artifacts that depend on it.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import threading
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

_OURS = "pipeline_lib"
_parsing = threading.Lock()


def canonical_json(value: Any) -> str:
    """Serialise a specification so that equal ones give equal text (sorted keys, shortest floats)."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def digest(value: Any) -> str:
    """SHA-256 of a specification's canonical JSON, as 64 hexadecimal digits."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def fingerprint(
    stage: str, spec: Mapping[str, Any], inputs: Iterable[str], modules: Iterable[str]
) -> str:
    """Name the artifact of a stage.

    Parameters
    ----------
    stage : str
        ``ingest``, ``features``, ``fit`` or ``evaluate``.
    spec : mapping
        Everything the stage was asked for; plain JSON values.
    inputs : iterable of str
        Fingerprints of the artifacts it reads, in order.
    modules : iterable of str
        Modules whose code it runs; what they import from this project is followed.

    Returns
    -------
    str
        32 hexadecimal digits.
    """
    parts = {
        "stage": stage,
        "spec": spec,
        "inputs": list(inputs),
        "code": code_digest(tuple(sorted(set(modules)))),
    }
    return digest(parts)[:32]


@cache
def code_digest(modules: tuple[str, ...]) -> str:
    """Digest of the sources of the modules and of all they import from this project."""
    return digest(source_digests(modules))


def source_digests(modules: Iterable[str]) -> dict[str, str]:
    """SHA-256 of the source of the modules and of all they import from this project, by name."""
    # CPython 3.11 counts the depth of syntax trees in one place for all threads.
    with _parsing:
        return {name: _source_digest(name) for name in sorted(import_closure(modules))}


def import_closure(modules: Iterable[str]) -> set[str]:
    """Names of the modules reachable by imports from the given ones, within this project.

    Modules of other packages (plug-ins) are followed inside their own top-level package. Package
    ``__init__`` files, which only re-export, are left out unless named.
    """
    seen: set[str] = set()
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        waiting.extend(_imports(name))
    return seen


@cache
def _imports(module: str) -> tuple[str, ...]:
    path = _source_path(module)
    if path is None:
        return ()
    roots = {_OURS, module.partition(".")[0]}
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes(), filename=str(path))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return tuple(
        sorted(
            name
            for name in found
            if name.partition(".")[0] in roots
            and _source_path(name) not in (None, path)
            and not _is_package(name)
        )
    )


def _is_package(name: str) -> bool:
    path = _source_path(name)
    return path is not None and path.name == "__init__.py"


@cache
def _source_path(module: str) -> Path | None:
    """Source file of a module, found without importing it."""
    root, *rest = module.split(".")
    base = _root_folder(root)
    if base is None:
        return None
    path = base.joinpath(*rest)
    for candidate in (path / "__init__.py", path.with_name(path.name + ".py")):
        if candidate.is_file():
            return candidate
    return None


@cache
def _root_folder(root: str) -> Path | None:
    spec = importlib.util.find_spec(root)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


@cache
def _source_digest(module: str) -> str:
    path = _source_path(module)
    return "" if path is None else hashlib.sha256(path.read_bytes()).hexdigest()

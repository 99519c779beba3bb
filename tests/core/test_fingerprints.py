"""Names of artifacts change with specification, inputs and code, and with nothing else."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline_lib import fingerprints

ROOT = Path(fingerprints.__file__).resolve().parent.parent


def test_key_order_does_not_matter_and_values_do() -> None:
    one = fingerprints.digest({"a": 1, "b": [1, 2.5, None, "x"]})
    assert one == fingerprints.digest({"b": [1, 2.5, None, "x"], "a": 1})
    assert one != fingerprints.digest({"a": 1, "b": [1, 2.5, None, "y"]})
    assert fingerprints.digest({"a": 1}) != fingerprints.digest({"a": "1"})


def test_every_part_of_the_question_is_in_the_name() -> None:
    base = ("fit", {"C": 1.0}, ["in"], ["pipeline_lib.seeds"])
    names = {
        fingerprints.fingerprint(*base),
        fingerprints.fingerprint("evaluate", *base[1:]),
        fingerprints.fingerprint("fit", {"C": 2.0}, *base[2:]),
        fingerprints.fingerprint("fit", {"C": 1.0}, ["other"], base[3]),
        fingerprints.fingerprint("fit", {"C": 1.0}, ["in"], ["pipeline_lib.suggest"]),
    }
    assert len(names) == 5
    assert fingerprints.fingerprint(*base) in names


def test_infinity_has_no_name() -> None:
    with pytest.raises(ValueError, match="JSON"):
        fingerprints.digest({"a": float("inf")})


def test_imports_are_followed_but_packages_are_not() -> None:
    closure = fingerprints.import_closure(["pipeline_lib.suggest"])
    assert closure == {"pipeline_lib.suggest", "pipeline_lib.errors"}


def test_editing_a_module_renames_exactly_what_imports_it(tmp_path: Path) -> None:
    package = tmp_path / "plugin"
    package.mkdir()
    (package / "__init__.py").write_text("from plugin.a import A\n")
    (package / "shared.py").write_text("x = 1\n")
    (package / "a.py").write_text("from plugin.shared import x\nA = x\n")
    (package / "b.py").write_text("def B():\n    from plugin import shared\n    return shared.x\n")
    (package / "c.py").write_text("C = 3\n")

    def digests() -> dict[str, str]:
        script = (
            "from pipeline_lib.fingerprints import code_digest\n"
            "print(*(code_digest((f'plugin.{m}',)) for m in 'abc'))"
        )
        done = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONPATH": f"{tmp_path}:{ROOT}", "PATH": ""},
        )
        return dict(zip("abc", done.stdout.split(), strict=True))

    before = digests()
    (package / "shared.py").write_text("x = 2\n")
    after = digests()
    assert {m for m in "abc" if before[m] != after[m]} == {"a", "b"}


def test_the_library_imports_from_modules_not_from_packages() -> None:
    """What a package re-exports is not followed, so nobody may import through it."""
    offenders = []
    packages = {
        ".".join(init.parent.relative_to(ROOT).parts)
        for init in (ROOT / "pipeline_lib").rglob("__init__.py")
        if init.read_text().strip()
    }
    for path in sorted((ROOT / "pipeline_lib").rglob("*.py")):
        if path.name == "__init__.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ImportFrom) or node.module not in packages:
                continue
            folder = ROOT.joinpath(*node.module.split("."))
            for alias in node.names:
                module = folder / f"{alias.name}.py"
                if not module.exists() and not (folder / alias.name).is_dir():
                    offenders.append(
                        f"{path.relative_to(ROOT)}: from {node.module} import {alias.name}"
                    )
    assert offenders == []


def test_the_pure_library_knows_nothing_of_the_orchestration() -> None:
    for path in sorted((ROOT / "pipeline_lib").rglob("*.py")):
        names = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names.update(alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module.partition(".")[0])
        assert "prefect" not in names, path
        assert not names & {"flows", "tasks"}, path
        if path.name != "tracking.py":
            assert "mlflow" not in names, path

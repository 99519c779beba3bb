"""The catalogue: what datasets exist, from where, in which parts, and what each part must look like.

One TOML file per dataset in ``data/catalogue``; its stem is the dataset's name. A declaration says

- **what it is**: ``title``, ``kind`` (layout of its canonical Parquet, see `canonical`), ``licence``,
  ``homepage``, ``sources`` (official addresses), ``citation``, ``traps`` (what goes wrong with it),
  ``basis`` (where the numbers come from that its parts are held against);
- **where its files lie** under a data root: ``folders`` (alternatives, the first is the one imports
  use) and ``aliases`` (other names a release gives the same file; accepted, and reported as a hint);
- **how it is read**: ``reader.format`` (a key of `readers.READERS`) and ``reader.options``, which a
  part may override;
- **its parts**: for each a name such as ``fold1/train``, its files, and what is expected of it: rows,
  queries, features, tags, label counts, range. What is not declared is not checked;
- a **subset** of a part: the rows that a stored split (the file with the role ``split``) gives it;
- **variants** of a part: other releases of it, known to differ (a cut copy, a copy without document
  ids), each with its own expectation, recognised by checksum or by its counts;
- **versions**: the whole release again in another preparation (LETOR's ``NULL`` and ``MIN`` files);
  the parts of version ``null`` are called ``null/fold1/train``.

A part without files is made by its reader (bundled or generated data) from the options and a seed.

To add a dataset: write its TOML; if its format is new, write a reader and enter it in `readers`.
Declarations of the user's own lie in the folder ``catalogue`` of a data root; `own` writes them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from pipeline_lib.datasets.layout import Kind
from pipeline_lib.errors import InputError
from pipeline_lib.suggest import unknown_name


class _Declaration(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Expectation(_Declaration):
    """What a part must look like; a field left out is not checked.

    ``labels`` maps each label to its number of rows (all labels, then), ``largest_label`` bounds
    them; ``minimum`` and ``maximum`` bound the features; ``tag_entries`` is the number of ones in
    the tag table. Fields named in ``unconfirmed`` are numbers in circulation that were held against
    neither the files nor a publication: data that differ are taken, and the difference is reported.
    """

    rows: int | None = Field(default=None, ge=1)
    queries: int | None = Field(default=None, ge=1)
    features: int | None = Field(default=None, ge=0)
    tags: int | None = Field(default=None, ge=1)
    tag_entries: int | None = Field(default=None, ge=0)
    labels: dict[str, int] | None = None
    largest_label: int | None = Field(default=None, ge=0)
    minimum: float | None = None
    maximum: float | None = None
    unconfirmed: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _names_fields(self) -> Expectation:
        for name in self.unconfirmed:
            if name == "unconfirmed" or getattr(self, name, None) is None:
                raise ValueError(f"{name!r} is not declared, so it cannot be unconfirmed")
        return self

    def mismatches(self, counts: Mapping[str, Any]) -> list[str]:
        """Each number that differs, as a phrase; ``counts`` is `canonical.Summary.as_dict`."""
        return [text for name, text in self._differences(counts) if name not in self.unconfirmed]

    def doubts(self, counts: Mapping[str, Any]) -> list[str]:
        """The same for what is unconfirmed."""
        return [text for name, text in self._differences(counts) if name in self.unconfirmed]

    def _differences(self, counts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        for what in ("rows", "queries", "features", "tags", "tag_entries"):
            declared, seen = getattr(self, what), counts.get(what, 0)
            if declared is not None and declared != seen:
                yield what, f"{what.replace('_', ' ')}: {seen:,} found, {declared:,} declared"
        labels, expected = counts.get("labels", {}), self.labels or {}
        for label in sorted({*expected, *labels}) if self.labels is not None else ():
            declared, seen = expected.get(label, 0), labels.get(label, 0)
            if declared != seen:
                yield "labels", f"rows with label {label}: {seen:,} found, {declared:,} declared"
        largest = max((int(label) for label in labels), default=0)
        if self.largest_label is not None and largest > self.largest_label:
            yield "largest_label", f"largest label: {largest} found, {self.largest_label} declared"
        low, high = counts.get("minimum"), counts.get("maximum")
        if self.minimum is not None and low is not None and low < self.minimum:
            yield (
                "minimum",
                f"smallest feature value: {low:g} found, at least {self.minimum:g} declared",
            )
        if self.maximum is not None and high is not None and high > self.maximum:
            yield (
                "maximum",
                f"largest feature value: {high:g} found, at most {self.maximum:g} declared",
            )


class FileSpec(_Declaration):
    """A raw file of a part: its place below the folder (``*`` matches), and what it is to the reader."""

    name: str
    role: str = "data"
    sha256: str | None = Field(default=None, pattern="^[0-9a-f]{64}$")


class Variant(_Declaration):
    """A known release of a part that differs from the official one."""

    name: str
    note: str
    expect: Expectation = Expectation()
    sha256: str | None = Field(default=None, pattern="^[0-9a-f]{64}$")


class Subset(_Declaration):
    """Which rows of the files a part is: those of ``part`` in a trial of the stored split."""

    trial: int = Field(ge=0)
    part: str


class PartSpec(_Declaration):
    """One part: its files, expectation, and what it changes of the dataset's reader."""

    name: str = Field(pattern=r"^[a-z0-9_.-]+(/[a-z0-9_.-]+)*$")
    files: tuple[FileSpec, ...] = ()
    kind: Kind | None = None
    options: dict[str, Any] = {}
    expect: Expectation = Expectation()
    subset: Subset | None = None
    variants: tuple[Variant, ...] = ()
    note: str = ""


class Version(_Declaration):
    """The release in another preparation.

    Its parts have the features of the plain ones and a range of their own, and with ``same_rows``
    also their rows, queries and label counts; ``expect`` replaces all of it for the parts it names.
    """

    name: str = Field(pattern=r"^[a-z0-9_.-]+$")
    title: str
    folders: tuple[str, ...] = Field(min_length=1)
    options: dict[str, Any] = {}
    same_rows: bool = True
    minimum: float | None = None
    maximum: float | None = None
    expect: dict[str, Expectation] = {}


class ReaderSpec(_Declaration):
    """The format, and the options its reader is called with."""

    format: str
    options: dict[str, Any] = {}


class Source(_Declaration):
    """An official address; ``files`` says what is found there.

    One with a ``hash`` (of the file behind ``url``) is fetched, from ``mirrors`` when the address
    fails; one without is a page for people. ``bytes`` is the size of the file. What an archive holds,
    or the file itself, is put into ``folder`` below the dataset's folder.
    """

    url: str = Field(pattern="^https?://")
    files: str = ""
    hash: str | None = Field(default=None, pattern="^(sha256:[0-9a-f]{64}|md5:[0-9a-f]{32})$")
    bytes: int | None = Field(default=None, ge=1)
    mirrors: tuple[str, ...] = ()
    folder: str = Field(default="", pattern=r"^[\w-]*$")


class DatasetSpec(_Declaration):
    """The declaration of one dataset; see the module's description."""

    name: str = Field(pattern="^[a-z0-9-]+$")
    title: str
    kind: Kind
    licence: str
    homepage: str = Field(default="", pattern="^(https?://.*)?$")
    sources: tuple[Source, ...] = ()
    citation: str = ""
    basis: str = ""
    folders: tuple[str, ...] = ()
    aliases: dict[str, tuple[str, ...]] = {}
    reader: ReaderSpec
    parts: tuple[PartSpec, ...] = Field(min_length=1)
    versions: tuple[Version, ...] = ()
    traps: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _says_where_files_lie(self) -> DatasetSpec:
        if not self.folders and any(part.files for part in self.parts):
            raise ValueError("there are files, and no folders to look for them in")
        return self

    def part_names(self) -> list[str]:
        """All parts, those of the versions after the plain ones."""
        plain = [part.name for part in self.parts]
        return plain + [f"{version.name}/{part}" for version in self.versions for part in plain]

    def part(self, name: str | None = None) -> Part:
        """One part with everything that applies to it; the first one when no name is given.

        Raises
        ------
        InputError
            There is no such part; the sentence offers the nearest names.
        """
        name = self.parts[0].name if name is None else name.strip("/")
        for version in (None, *self.versions):
            prefix = f"{version.name}/" if version else ""
            for spec in self.parts:
                if prefix + spec.name == name:
                    return _resolve(self, spec, version, name)
        raise unknown_name(f"part of {self.name}", name, self.part_names())


@dataclass(frozen=True)
class Part:
    """A part as acquisition and ingestion use it: dataset, version and part merged."""

    dataset: DatasetSpec
    name: str
    kind: Kind
    folders: tuple[str, ...]
    files: tuple[FileSpec, ...]
    format: str
    options: Mapping[str, Any]
    expect: Expectation
    variants: tuple[Variant, ...]
    subset: Subset | None = None

    def judge(self, counts: Mapping[str, Any], digests: Iterable[str]) -> tuple[str, list[str]]:
        """Compare what was read with what is declared.

        Returns
        -------
        variant : str
            ``official``, or the name of the declared variant the part turned out to be.
        mismatches : list of str
            Numbers that differ; empty when the part is what it is declared to be.
        """
        digests = set(digests)
        for variant in self.variants:
            if variant.sha256 in digests:
                return variant.name, variant.expect.mismatches(counts)
        mismatches = self.expect.mismatches(counts)
        for variant in self.variants if mismatches else ():
            if variant.sha256 is None and not variant.expect.mismatches(counts):
                return variant.name, []
        return "official", mismatches


def _resolve(dataset: DatasetSpec, spec: PartSpec, version: Version | None, name: str) -> Part:
    expect, variants, folders = spec.expect, spec.variants, dataset.folders
    options = {**dataset.reader.options, **spec.options}
    if version is not None:
        base = spec.expect
        if not version.same_rows:
            base = base.model_copy(update={"rows": None, "queries": None, "labels": None})
        own = {"minimum": version.minimum, "maximum": version.maximum}
        expect = version.expect.get(spec.name, base.model_copy(update=own))
        variants, folders = (), version.folders
        options |= version.options
    return Part(
        dataset=dataset,
        name=name,
        kind=spec.kind or dataset.kind,
        folders=folders,
        files=spec.files,
        format=dataset.reader.format,
        options=options,
        expect=expect,
        variants=variants,
        subset=spec.subset,
    )


def catalogue_dir() -> Path:
    """The folder of declarations: beside the checkout, else inside the installed package."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package.parent / "data" / "catalogue", package / "_data" / "catalogue"):
        if folder.is_dir():
            return folder
    raise InputError(
        "the dataset catalogue is missing", path=package, remedy="reinstall affinity-bench"
    )


def own_folders() -> list[Path]:
    """Folders of the user's own declarations: ``catalogue`` below each data root."""
    # Roots are a matter of raw files, which are looked for by what is declared here.
    from pipeline_lib.datasets.rawfiles import data_roots

    return [root / "catalogue" for root in data_roots()]


def _declarations() -> dict[str, Path]:
    """Declaration by name; the project's own come before the user's, and those of earlier roots."""
    found: dict[str, Path] = {}
    for folder in (catalogue_dir(), *own_folders()):
        for path in sorted(folder.glob("*.toml")):
            found.setdefault(path.stem, path)
    return found


def names() -> list[str]:
    """Names of all declared datasets, sorted."""
    return sorted(_declarations())


def read_all() -> tuple[list[DatasetSpec], list[InputError]]:
    """Every declaration that is valid, by name, and what is wrong with the others.

    One file that a user has damaged must not hide the rest.
    """
    specs, errors = [], []
    for name in names():
        try:
            specs.append(dataset_spec(name))
        except InputError as error:
            errors.append(error)
    return specs, errors


def forget_declarations() -> None:
    """Read declarations anew: one was written."""
    _read_declaration.cache_clear()


def dataset_spec(name: str) -> DatasetSpec:
    """The declaration of one dataset.

    Raises
    ------
    InputError
        No such dataset (the nearest names are offered), or its declaration is not valid.
    """
    return _read_declaration(declaration_path(name))


def declaration_path(name: str) -> Path:
    """Where a dataset is declared; errors as of `dataset_spec`."""
    known = _declarations()
    if name not in known:
        raise unknown_name("dataset", name, sorted(known))
    return known[name]


@cache
def _read_declaration(path: Path) -> DatasetSpec:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the declaration cannot be read ({error})", path=path) from None
    return parse_declaration(text, path)


def parse_declaration(text: str, path: Path) -> DatasetSpec:
    """The declaration in a TOML text that stands, or is to stand, in ``path``.

    Raises
    ------
    InputError
        It is not TOML, or not a declaration of the dataset that the file is named after.
    """
    try:
        spec = DatasetSpec.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"not valid TOML ({error})", path=path) from error
    except ValidationError as error:
        first = error.errors()[0]
        place = "".join(f"{step}: " for step in [".".join(map(str, first["loc"]))] if step)
        what = first["msg"].removeprefix("Value error, ")
        raise InputError(place + what, path=path, expected="a dataset declaration") from error
    if spec.name != path.stem:
        raise InputError(f"declares the name {spec.name!r}", path=path, expected=repr(path.stem))
    repeated = {name for name in spec.part_names() if spec.part_names().count(name) > 1}
    if repeated:
        raise InputError(f"declares part {min(repeated)!r} more than once", path=path)
    return spec

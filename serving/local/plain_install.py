"""Puts a small distribution of pure Python into an environment, without a build tool or a network.

Enough for our own: the packages that its `pyproject.toml` names for hatchling are copied, and
name, version and entry points are written beside them as metadata. Nothing is compiled.
"""

from __future__ import annotations

import hashlib
import shutil
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path


def files_of(source: Path) -> list[Path]:
    """Every file of a distribution, in a fixed order; what Python makes by itself is left out."""
    found = (path for path in source.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return sorted(path for path in found if "__pycache__" not in path.parts)


def digest(sources: Iterable[Path]) -> str:
    """A hash over names and contents, which changes whenever a distribution does."""
    sha = hashlib.sha256()
    for source in sources:
        for path in files_of(source):
            sha.update(f"{source.name}/{path.relative_to(source)}\0".encode())
            sha.update(hashlib.sha256(path.read_bytes()).digest())
    return sha.hexdigest()


def install(source: Path, site_packages: Path) -> None:
    """Put the distribution there, in place of what an earlier call put there."""
    document = tomllib.loads((source / "pyproject.toml").read_text(encoding="utf-8"))
    project = document["project"]
    for package in document["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        target = site_packages / Path(package).name
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source / package, target, ignore=shutil.ignore_patterns("__pycache__"))
    stem = project["name"].replace("-", "_")
    for old in site_packages.glob(f"{stem}-*.dist-info"):
        shutil.rmtree(old)
    write_metadata(
        site_packages,
        name=project["name"],
        version=project["version"],
        entry_points=project.get("entry-points", {}),
    )


def write_metadata(
    site_packages: Path,
    *,
    name: str,
    version: str,
    entry_points: Mapping[str, Mapping[str, str]] | None = None,
) -> None:
    """A `dist-info` folder from which `importlib.metadata` knows the distribution."""
    folder = site_packages / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(exist_ok=True)
    lines = [
        line
        for group, entries in (entry_points or {}).items()
        for line in (f"[{group}]", *(f"{key} = {value}" for key, value in entries.items()), "")
    ]
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    (folder / "METADATA").write_text(metadata, encoding="utf-8")
    (folder / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
    (folder / "INSTALLER").write_text("phasewise\n", encoding="utf-8")
